"""The numbers of one model on one set of questions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import isnan
from statistics import fmean
from typing import Any

from grpo_kit.evaluation.estimates import accuracy, bounds, interval, mean_pass_at_k, sizes
from grpo_kit.evaluation.measure import Completion
from grpo_kit.evaluation.verdicts import tally
from grpo_kit.evaluation.votes import Ballot, Same, majority

EXAMPLES = 3
"""Completions shown of each status that is not `ok`."""
SHOWN = 300
"""Characters shown of a completion's end, where its answer should be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One model on one set; every mean is over questions or completions as said.

    Attributes:
        policy: name of the model.
        data: name of the set.
        questions: how many were asked.
        samples: completions a question.
        accuracy: mean over questions of the share of right completions among those with a verdict.
        interval: 95 % confidence interval of `accuracy` over questions of this kind.
        missing: completions without a verdict; they are in no other share.
        bounds: share of right completions if every missing verdict were wrong, and if every one were right.
        pass_at: unbiased pass@k for each k, over the questions with at least k verdicts.
        majority: share of questions whose most frequent answer is right; NaN with one completion a question.
        majority_missing: questions left out of `majority`, since their most frequent answer has no verdict.
        length: mean tokens a completion.
        truncated: share of completions cut at the length limit.
        statuses: completions of each status.
        examples: the first completions of each status that is not `ok`.
        skipped: rows of the set that were not asked, and why.
        max_new_tokens: the length limit.
        sampling_seconds: time spent sampling.
        grading_seconds: time spent grading, votes included.
        tokens_per_second: tokens written a second of sampling.
    """

    policy: str
    data: str
    questions: int
    samples: int
    accuracy: float
    interval: tuple[float, float]
    missing: int
    bounds: tuple[float, float]
    pass_at: dict[int, float]
    majority: float
    majority_missing: int
    length: float
    truncated: float
    statuses: dict[str, int]
    examples: tuple[dict[str, Any], ...]
    skipped: tuple[str, ...]
    max_new_tokens: int
    sampling_seconds: float
    grading_seconds: float
    tokens_per_second: float


def votes(completions: Sequence[Completion], samples: int, same: Same) -> list[float]:
    """The verdict of each question's most frequent answer; see `majority`."""
    ballots = [Ballot(answer=one.answer, verdict=one.verdict.right) for one in completions]
    return majority([ballots[start : start + samples] for start in range(0, len(ballots), samples)], same)


def conclude(
    completions: Sequence[Completion],
    *,
    voted: Sequence[float],
    samples: int,
    policy: str,
    data: str,
    skipped: Sequence[str],
    max_new_tokens: int,
    sampling_seconds: float,
    grading_seconds: float,
) -> Result:
    """Put together the numbers from all completions of a set, question after question."""
    tallies = tally([one.verdict for one in completions], samples)
    known = [verdict for verdict in voted if not isnan(verdict)]
    missing = sum(one.verdict.right is None for one in completions)
    tokens = sum(one.tokens for one in completions)
    return Result(
        policy=policy,
        data=data,
        questions=len(tallies),
        samples=samples,
        accuracy=accuracy(tallies),
        interval=interval(tallies),
        missing=missing,
        bounds=bounds(sum(one.right for one in tallies), missing, len(completions)),
        pass_at={k: mean_pass_at_k(tallies, k) for k in sizes(samples)},
        majority=fmean(known) if known else float("nan"),
        majority_missing=len(voted) - len(known),
        length=tokens / len(completions),
        truncated=sum(one.stop_reason == "length" for one in completions) / len(completions),
        statuses=dict(Counter(one.verdict.status for one in completions).most_common()),
        examples=tuple(_examples(completions)),
        skipped=tuple(skipped),
        max_new_tokens=max_new_tokens,
        sampling_seconds=sampling_seconds,
        grading_seconds=grading_seconds,
        tokens_per_second=tokens / sampling_seconds,
    )


def _examples(completions: Sequence[Completion]) -> list[dict[str, Any]]:
    statuses = dict.fromkeys(one.verdict.status for one in completions if one.verdict.status != "ok")
    return [
        {"status": status, "question": one.question, "gold": one.gold, "end": one.text[-SHOWN:]}
        for status in statuses
        for one in islice((one for one in completions if one.verdict.status == status), EXAMPLES)
    ]
