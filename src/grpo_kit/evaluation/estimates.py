r"""Estimates from right and judged completions a question: accuracy, its interval, pass@k.

Each question has $n$ judged completions of which $c$ are right. A completion without a verdict is in neither number.
"""

from collections.abc import Sequence
from math import comb, nan, sqrt
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple


class Tally(NamedTuple):
    """What is known of one question: right completions, and completions with a verdict."""

    right: int
    judged: int


def accuracy(tallies: Sequence[Tally]) -> float:
    """Mean over questions of each one's share of right completions; NaN without a verdict.

    A question without any verdict is left out. The others count the same however many verdicts they have.

    Example:
        >>> accuracy([Tally(1, 4), Tally(3, 3), Tally(0, 0)])
        0.625
    """
    shares = _shares(tallies)
    return fmean(shares) if shares else nan


def standard_error(tallies: Sequence[Tally]) -> float:
    """Standard error of `accuracy` over questions: their standard deviation (n - 1) by the root of their number.

    NaN with fewer than two questions. Completions of one question are not independent, so questions are the unit
    (arXiv:2411.00640).
    """
    shares = _shares(tallies)
    return stdev(shares) / sqrt(len(shares)) if len(shares) > 1 else nan


def interval(tallies: Sequence[Tally], confidence: float = 0.95) -> tuple[float, float]:
    r"""Wilson's interval for the accuracy on all questions of this kind, at the effective number of completions.

    $$\frac{p + z^2/2m \pm z \sqrt{p(1-p)/m + z^2/4m^2}}{1 + z^2/m}, \qquad m = \frac{p(1-p)}{s^2/q}$$

    with $p$ the accuracy, $q$ the number of questions and $s^2/q$ the square of `standard_error`. $m$ is as many
    independent completions as would give the same error; it is kept between $q$ (each question decides all its
    completions alike) and the number of verdicts (they are independent). With one completion a question $m = q$, and
    this is Wilson's own interval (1927); with several it is the one recommended for clustered proportions (Dean and
    Pagano 2015). Unlike mean +- 1.96 errors it is sound for few questions, and not empty when all or none are right.

    Returns:
        Lower and upper end, in [0, 1]; NaN both without a verdict.

    Example:
        >>> low, high = interval([Tally(0, 1)] * 30)
        >>> round(low, 3), round(high, 3)
        (0.0, 0.114)
    """
    shares = _shares(tallies)
    if not shares:
        return nan, nan
    mean, least, most = fmean(shares), len(shares), sum(tally.judged for tally in tallies)
    variance = standard_error(tallies) ** 2 if least > 1 else nan
    effective = float(least)
    if 0 < mean < 1 and variance >= 0:
        effective = min(max(mean * (1 - mean) / variance, least), most) if variance > 0 else most
    return wilson(mean, float(effective), confidence)


def wilson(share: float, effective: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a share found in an effective number of independent trials; see `interval`.

    Example:
        >>> low, high = wilson(0.5, 100.0)
        >>> round(low, 3), round(high, 3)
        (0.404, 0.596)
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    center = share + z * z / (2 * effective)
    half = z * sqrt(share * (1 - share) / effective + z * z / (4 * effective**2))
    scale = 1 + z * z / effective
    return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)


def pass_at_k(right: int, judged: int, k: int) -> float:
    r"""Chance that `k` of the judged completions, drawn without putting back, hold a right one.

    $1 - \binom{n-c}{k} / \binom{n}{k}$: unbiased for the chance that one of `k` fresh completions is right (Chen et
    al. 2021, arXiv:2107.03374), where $1 - (1 - c/n)^k$ is too low. ValueError unless 1 <= k <= n.

    Example:
        >>> pass_at_k(1, 4, 2)
        0.5
    """
    if not 1 <= k <= judged:
        raise ValueError(f"pass@{k} needs at least {k} judged completions, there are {judged}")
    return 1 - comb(judged - right, k) / comb(judged, k)


def mean_pass_at_k(tallies: Sequence[Tally], k: int) -> float:
    """Mean of `pass_at_k` over the questions with at least `k` verdicts; NaN where there is none."""
    found = [pass_at_k(tally.right, tally.judged, k) for tally in tallies if tally.judged >= k]
    return fmean(found) if found else nan


def sizes(samples: int) -> tuple[int, ...]:
    """The k of pass@k that are reported: 1, 2, 4, ... and the number of samples itself.

    Example:
        >>> sizes(6)
        (1, 2, 4, 6)
    """
    return (*(2**power for power in range(samples.bit_length()) if 2**power < samples), samples)


def bounds(right: int, missing: int, total: int) -> tuple[float, float]:
    """Share of right completions if every missing verdict were wrong, and if every one were right.

    Example:
        >>> bounds(6, 2, 10)
        (0.6, 0.8)
    """
    return right / total, (right + missing) / total


def _shares(tallies: Sequence[Tally]) -> list[float]:
    return [tally.right / tally.judged for tally in tallies if tally.judged]
