"""maj@k: is the answer that most completions of a question give the right one?"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Literal

Same = Callable[[Sequence[tuple[str, str]]], Sequence[bool]]
"""Whether each pair of answers is the same mathematics; called once with all pairs, as the grader likes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ballot:
    """One completion's vote.

    Attributes:
        answer: its final answer; None abstains.
        verdict: 1 right, 0 wrong, None where the grader had no verdict.
    """

    answer: str | None
    verdict: float | None


def majority(questions: Sequence[Sequence[Ballot]], same: Same) -> list[float]:
    """For each question the verdict of its most frequent answer; NaN where that has no verdict.

    Answers are one when both are right, when their texts are equal (runs of spaces are one), or when the grader calls
    them the same. Only wrong answers of different texts are put to the grader, each pair of a question: every right one
    equals the gold answer, and one without a verdict is compared by its text alone. Completions without an answer
    abstain; when all do, the question is wrong. Of n answers with equally many votes each counts 1/n: the expected
    verdict when a tie is broken at random.

    Example:
        >>> right, wrong = Ballot(answer="1/2", verdict=1.0), Ballot(answer="3", verdict=0.0)
        >>> majority([[right, wrong, right], [right, wrong]], lambda pairs: [False for _ in pairs])
        [1.0, 0.5]
    """
    wrong = [_wrong_texts(ballots) for ballots in questions]
    pairs = [(one, other) for texts in wrong for place, one in enumerate(texts) for other in texts[place + 1 :]]
    verdicts = dict(zip(pairs, same(pairs), strict=True)) if pairs else {}
    kinds = [_first_of_kind(texts, verdicts) for texts in wrong]
    return [_count(ballots, kind) for ballots, kind in zip(questions, kinds, strict=True)]


def _wrong_texts(ballots: Sequence[Ballot]) -> list[str]:
    """The different texts of a question's wrong answers, in the order they were given."""
    return list(dict.fromkeys(_text(b.answer) for b in ballots if b.answer is not None and b.verdict == 0))


def _first_of_kind(texts: Sequence[str], same: Mapping[tuple[str, str], bool]) -> dict[str, str]:
    """For each text the first one that is the same answer."""
    found: dict[str, str] = {}
    for text in texts:
        firsts = dict.fromkeys(found.values())
        found[text] = next((first for first in firsts if same[first, text]), text)
    return found


def _count(ballots: Sequence[Ballot], kind: Mapping[str, str]) -> float:
    right = {_text(ballot.answer) for ballot in ballots if ballot.answer is not None and ballot.verdict == 1}
    votes: Counter[str | Literal[True]] = Counter()
    for ballot in ballots:
        if ballot.answer is not None:
            text = _text(ballot.answer)
            votes[True if text in right else kind.get(text, text)] += 1
    if not votes:
        return 0.0
    most = max(votes.values())
    leading = [answer for answer, count in votes.items() if count == most]
    return sum(1.0 if answer is True else 0.0 if answer in kind else nan for answer in leading) / len(leading)


def _text(answer: str) -> str:
    return " ".join(answer.split())
