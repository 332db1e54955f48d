"""The numbers of one comparison: the overlap ratio as a whole and by position, and what stands beside it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from grpo_kit.overlap.estimate import Estimate, mean, share
from grpo_kit.overlap.measure import Measured

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Of the log-ratios of single tokens."""
SHARES = ("student_common", "teacher_common", "student_top", "teacher_top")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
    """The tokens at some positions of the completions.

    Attributes:
        first: the first position, from 1.
        last: the last one.
        tokens: how many there are.
        prompts: of how many prompts.
        overlap: the overlap ratio there.
        student_common: the student's probability of the common tokens there.
        teacher_common: the teacher's.
    """

    first: int
    last: int
    tokens: int
    prompts: int
    overlap: Estimate
    student_common: Estimate
    teacher_common: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """One comparison; every mean is over tokens, every interval at 95 % over prompts; fields as in `Comparison`.

    Attributes:
        student: its name.
        teacher: its name.
        k: likeliest tokens compared.
        vocabulary: of so many.
        prompts: with a token.
        rollouts: completions compared.
        tokens: theirs.
        overlap: the output-token overlap ratio.
        masses: probabilities inside the common tokens and inside each one's own `k`, by name.
        log_ratio: log teacher / student of the tokens written, in nats.
        quantiles: of `log_ratio` over single tokens.
        log_ratio_at_end: `log_ratio` of the end-of-sequence tokens alone; None where no completion ended with one.
        teacher_logprob: the teacher's log-probability of the tokens written, in nats.
        reverse_kl: in nats a token.
        by_position: from the first tokens to the last, each bin twice as wide as the one before.
        lengths: mean, median and longest.
        stop_reasons: completions of each.
    """

    student: str
    teacher: str
    k: int
    vocabulary: int
    prompts: int
    rollouts: int
    tokens: int
    overlap: Estimate
    masses: dict[str, Estimate]
    log_ratio: Estimate
    quantiles: dict[str, float]
    log_ratio_at_end: Estimate | None
    teacher_logprob: Estimate
    reverse_kl: Estimate
    by_position: tuple[Bin, ...]
    lengths: dict[str, float]
    stop_reasons: dict[str, int]

    @property
    def cut(self) -> float:
        """Share of completions that ended at the length limit."""
        return self.stop_reasons.get("length", 0) / self.rollouts


def conclude(measured: Measured, *, student: str, teacher: str, k: int, vocabulary: int) -> Overlap:
    """The numbers of what was measured; ValueError where no token was written."""
    values, prompts = measured.values, measured.prompts
    if not len(prompts):
        raise ValueError("no completion has a token, so there is nothing to compare.")
    at = np.quantile(values.log_ratio.numpy(), QUANTILES).tolist()
    lengths, ends = measured.lengths.tolist(), measured.ends
    return Overlap(
        student=student,
        teacher=teacher,
        k=k,
        vocabulary=vocabulary,
        prompts=len(prompts.unique()),
        rollouts=len(lengths),
        tokens=len(prompts),
        overlap=share(values.overlap, prompts),
        masses={name: share(getattr(values, name), prompts) for name in SHARES},
        log_ratio=mean(values.log_ratio, prompts),
        quantiles={f"{level:g}": value for level, value in zip(QUANTILES, at, strict=True)},
        log_ratio_at_end=mean(values.log_ratio[ends], prompts[ends]) if len(ends) else None,
        teacher_logprob=mean(values.teacher_logprob, prompts),
        reverse_kl=mean(values.reverse_kl, prompts),
        by_position=tuple(_by_position(measured)),
        lengths={"mean": fmean(lengths), "median": median(lengths), "longest": max(lengths)},
        stop_reasons=dict(Counter(measured.stop_reasons).most_common()),
    )


def _by_position(measured: Measured) -> Iterator[Bin]:
    """Positions 1, 2, 3 and 4, 5 to 8, 9 to 16, ... as far as there are tokens."""
    first, last, longest = 1, 1, int(measured.positions.max()) + 1
    while first <= longest:
        last = min(last, longest)
        inside = (measured.positions >= first - 1) & (measured.positions < last)
        prompts = measured.prompts[inside]
        yield Bin(
            first=first,
            last=last,
            tokens=int(inside.sum()),
            prompts=len(prompts.unique()),
            overlap=share(measured.values.overlap[inside], prompts),
            student_common=share(measured.values.student_common[inside], prompts),
            teacher_common=share(measured.values.teacher_common[inside], prompts),
        )
        first, last = last + 1, 2 * last
