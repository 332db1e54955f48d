"""Grade completions: extract the final answer, decide the easy cases at once, give the rest to the pool."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from grpo_kit.grading.extract import final_answer, last_boxed
from grpo_kit.grading.number import read_number, same_number
from grpo_kit.grading.overdue import is_overdue, note_overdue
from grpo_kit.grading.pool import shared_pool
from grpo_kit.grading.status import Status
from grpo_kit.grading.text import normal

LONGEST_TIMEOUT = 86_400
SHORT = 200
"""Only texts up to this length are looked at in the caller's own process, where nothing can be killed."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What grading one completion came to.

    Attributes:
        value: 1 for the gold answer, 0 for another one or none; NaN where there is no verdict.
        status: `ok`, or why the value is what it is; see `Status`.
        parsed: the final answer found in the completion; None without one.
    """

    value: float
    status: Status
    parsed: str | None


def grade(gold: Any, answer: str, *, timeout: float = 2.0, strict: bool = False) -> Grade:
    r"""Whether the final answer of a completion is the gold answer; from any thread.

    Args:
        gold: the right answer, a text or a number; anything else is `unparsed_gold`. Of a worked solution, its last
            box or what follows `####` counts.
        answer: the completion; its final answer is found by the rule of `final_answer`.
        timeout: seconds of work after which a comparison is given up.
        strict: only a boxed answer counts.

    Raises:
        ValueError: when `answer` is no text or `timeout` is not positive.
        RuntimeError: when no worker process can be started.

    Example:
        >>> grade(r"\frac{1}{2}", r"so it is \boxed{0.5}")
        Grade(value=1.0, status='ok', parsed='0.5')
        >>> grade("42", "I could not finish the")
        Grade(value=0.0, status='no_answer', parsed=None)
    """
    return grade_all([gold], [answer], timeout=timeout, strict=strict)[0]


def grade_all(
    golds: Sequence[Any], answers: Sequence[str], *, timeout: float = 2.0, strict: bool = False, fast: bool = True
) -> list[Grade]:
    """Grade many completions, those that hang last, so that they hold up no other; see `grade`.

    `fast=False` gives every pair to the workers, which is only of use to check that the short way says the same.
    """
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise ValueError(f"timeout is {timeout}; give a number of seconds above 0, at most {LONGEST_TIMEOUT}")
    if wrong := [type(answer).__name__ for answer in answers if not isinstance(answer, str)]:
        raise ValueError(f"a completion is a {wrong[0]}; give its text")
    texts = [gold_text(gold) for gold in golds]
    parsed = [final_answer(answer, strict=strict) for answer in answers]
    grades = [_at_once(gold, answer, fast=fast) for gold, answer in zip(texts, parsed, strict=True)]
    waiting = [row for row, found in enumerate(grades) if found is None]
    judged = _judged([(texts[row], parsed[row] or "") for row in waiting], timeout)
    for row, (equal, status) in zip(waiting, judged, strict=True):
        grades[row] = Grade(float(equal) if status == "ok" else math.nan, status, parsed[row])
    return [found for found in grades if found is not None]


def _judged(pairs: Sequence[tuple[str, str]], timeout: float) -> list[tuple[bool, Status]]:
    """The workers' verdicts; what the run at work gave up before is given up at once."""
    asked = [pair for pair in pairs if not is_overdue("mathematics", timeout, *pair)]
    verdicts = dict(zip(asked, shared_pool().judge_all(asked, timeout), strict=True)) if asked else {}
    for pair, (_, status) in verdicts.items():
        if status == "timeout":
            note_overdue("mathematics", timeout, *pair)
    return [verdicts.get(pair, (False, "timeout")) for pair in pairs]


def unreadable(golds: Sequence[Any]) -> list[int]:
    """The places of gold answers that nothing but their own text could equal; see `unparsed_gold`."""
    texts = [gold_text(gold) for gold in golds]
    asked = [row for row, text in enumerate(texts) if not _is_number(text)]
    judged = shared_pool().judge_all([(texts[row], None) for row in asked], 2.0) if asked else []
    return [row for row, (_, status) in zip(asked, judged, strict=True) if status == "unparsed_gold"]


def gold_text(gold: Any) -> str:
    r"""A gold answer as text: of a worked solution, its last box or what follows `####`.

    Example:
        >>> gold_text(42), gold_text("6 * 7 = 42\n#### 42"), gold_text(r"So \boxed{42}.")
        ('42', '42', '42')
    """
    text = plain_gold(gold) or ""
    return (last_boxed(text) or text.rpartition("####")[2]).strip()


def plain_gold(gold: Any) -> str | None:
    """A gold value of a data set as text: texts, whole and decimal numbers; None for anything else, or nothing.

    Example:
        >>> plain_gold(42), plain_gold(0.5), plain_gold(" "), plain_gold(None), plain_gold(True), plain_gold([1])
        ('42', '0.5', None, None, None, None)
    """
    if isinstance(gold, bool):
        return None
    if isinstance(gold, int):
        return str(Decimal(gold))  # str of an int refuses 4300 digits and more
    if isinstance(gold, float):
        return repr(gold) if math.isfinite(gold) else None
    return gold if isinstance(gold, str) and gold.strip() else None


def _at_once(gold: str, answer: str | None, *, fast: bool) -> Grade | None:
    """The grade where no algebra is needed; None where the workers must look."""
    if answer is None:
        return Grade(0.0, "no_answer", None)
    if not gold:
        return Grade(math.nan, "unparsed_gold", answer)
    if not fast:
        return None
    if gold == answer:
        return Grade(1.0, "ok", answer)
    if max(len(gold), len(answer)) > SHORT:
        return None
    first, second = normal(gold), normal(answer)
    if first == second:
        return Grade(1.0, "ok", answer)
    number, other = read_number(first), read_number(second)
    if number is None or other is None:
        return None
    return Grade(float(same_number(number, other)), "ok", answer)


def _is_number(text: str) -> bool:
    return len(text) <= SHORT and bool(text) and read_number(normal(text)) is not None
