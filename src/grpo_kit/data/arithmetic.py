r"""Chains of additions and subtractions, `3+8-5+2=`, and the worked answers that end in `\boxed{8}`."""

import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Annotated, Literal

import datasets
from pydantic import Field

from grpo_kit.parts import part

Task = Literal["plain", "sparse"]
Split = Literal["train", "eval", "warm_up"]

TERMS: dict[Task, range] = {"plain": range(3, 6), "sparse": range(6, 9)}
"""Numbers of terms in a question of each task."""
FIFTHS: tuple[Split, ...] = ("warm_up", "warm_up", "train", "train", "eval")
SLIPS = tuple(slip for slip in range(-9, 10) if slip)
"""How far a wrong total may be off."""


@part("arithmetic")
class Arithmetic:
    r"""Distinct questions of an arithmetic task: columns `prompt` (`3+8-5+2=`), `answer` (`8`) and `completion`.

    The completion is a worked answer without an error, for supervised learning; see `worked_answer`.

    Terms are the digits 0 to 9, joined by `+` and `-`; numbers of terms take turns. There are only about 1600 training
    and 800 evaluation questions of three terms: where rows ask for more, the longer questions fill their place.

    Attributes:
        task: `plain` has 3 to 5 terms; `sparse` has 6 to 8, which the tiny pair seldom gets right, so that
            rewards are rare.
        split: `train`, `eval`, or `warm_up`, the questions that the tiny pair learned from. A question belongs to one
            split, see `split_of`, so no two of them meet.
        rows: number of questions.
        seed: which questions, in which order.

    Example:
        >>> Arithmetic(rows=2)()["prompt"][:]
        ['5-5+8=', '8-1+5-1=']
    """

    task: Task = "plain"
    split: Split = "train"
    rows: Annotated[int, Field(ge=1, le=100_000)] = 4096
    seed: int = 0

    def __call__(self) -> datasets.Dataset:
        """Draw the questions; see the class."""
        random = Random(self.seed)
        questions = list(
            islice(_take_turns([_distinct(terms, self.split, random) for terms in TERMS[self.task]]), self.rows)
        )
        answers = [str(gold(text)) for text in questions]
        worked = [worked_answer(text, 0.0, random) for text in questions]
        return datasets.Dataset.from_dict({"prompt": questions, "answer": answers, "completion": worked})


def split_of(question: str) -> Split:
    """The one split that a question belongs to: by its hash, two fifths warm-up, two train and one evaluation.

    Example:
        >>> split_of("3+8-5+2=")
        'warm_up'
    """
    return FIFTHS[int.from_bytes(sha256(question.encode()).digest()[:8], "big") % len(FIFTHS)]


def terms_of(question: str) -> list[str]:
    """The signed terms of a question.

    Example:
        >>> terms_of("3+8-5+2=")
        ['3', '+8', '-5', '+2']
    """
    return re.findall(r"[+-]?\d", question)


def gold(question: str) -> int:
    """The right answer."""
    return sum(int(term) for term in terms_of(question))


def worked_answer(question: str, error_rate: float, random: Random) -> str:
    r"""A worked answer: a running total a line, then the last one boxed.

    Each total is wrong with probability `error_rate`, by one of the 18 `SLIPS` at random; the lines after it go on
    from the wrong total. The right total stays the likeliest one up to an error rate of 18/19.

    Example:
        >>> print(worked_answer("3+8-5+2=", 0.0, Random(0)))
        3+8=11
        11-5=6
        6+2=8
        \boxed{8}
    """
    first, *rest = terms_of(question)
    total, lines = int(first), []
    for term in rest:
        result = total + int(term)
        if random.random() < error_rate:
            result += random.choice(SLIPS)
        lines.append(f"{total}{term}={result}")
        total = result
    return "\n".join([*lines, rf"\boxed{{{total}}}"])


def draw_question(terms: int, random: Random) -> str:
    """A question of that many terms, all equally likely."""
    signed = [random.choice("+-") + random.choice("0123456789") for _ in range(terms)]
    return "".join(signed)[1:] + "="


def _distinct(terms: int, split: Split, random: Random) -> Iterator[str]:
    """Every question of that many terms in the split, once, in random order."""
    seen: set[str] = set()
    while len(seen) < 10**terms * 2 ** (terms - 1):
        question = draw_question(terms, random)
        if question not in seen:
            seen.add(question)
            if split_of(question) == split:
                yield question


def _take_turns(sources: list[Iterator[str]]) -> Iterator[str]:
    """One item of each source in turn; a source that has run out is passed over."""
    while sources:
        for source in list(sources):
            item = next(source, None)
            if item is None:
                sources.remove(source)
            else:
                yield item
