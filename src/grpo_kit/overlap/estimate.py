r"""Means over tokens, with intervals that know that the tokens of one prompt are not independent.

A mean over tokens is a ratio $\hat R = \sum_c y_c / \sum_c n_c$, with $y_c$ the sum and $n_c$ the number of the tokens
of one of $C$ prompts. Its variance over prompts is that of the linearized ratio,
$\frac{C}{C - 1} \sum_c (y_c - \hat R n_c)^2 / (\sum_c n_c)^2$, as for a cluster sample (Cochran 1977, section 6.3).
"""

from dataclasses import dataclass
from math import nan, sqrt
from statistics import NormalDist

import torch
from jaxtyping import Float, Int
from torch import Tensor

from grpo_kit.evaluation.estimates import wilson

CONFIDENCE = 0.95

Values = Float[Tensor, " token"]
Clusters = Int[Tensor, " token"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tokens and its 95 % confidence interval over prompts; None both where one prompt gives none."""

    value: float
    low: float | None
    high: float | None


def mean(values: Values, clusters: Clusters) -> Estimate:
    """The mean of numbers of any size: plus and minus 1.96 standard errors; a token at least."""
    value, error, _ = _ratio(values, clusters)
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
    return Estimate(value, None, None) if error != error else Estimate(value, value - half, value + half)


def share(values: Values, clusters: Clusters) -> Estimate:
    r"""The mean of numbers in [0, 1]: Wilson's interval at the effective number of tokens, which stays in [0, 1].

    That is as many independent tokens as would give the same error, between the number of equally long prompts that
    are as good as these, $(\sum_c n_c)^2 / \sum_c n_c^2$, and the number of tokens.
    """
    value, error, least = _ratio(values, clusters)
    effective = least
    if 0 < value < 1 and error >= 0:
        most = float(len(values))
        effective = min(max(value * (1 - value) / error**2, least), most) if error > 0 else most
    return Estimate(value, *wilson(value, effective, CONFIDENCE))


def _ratio(values: Values, clusters: Clusters) -> tuple[float, float, float]:
    """The mean, its standard error (NaN for one cluster), and the effective number of clusters."""
    values = values.double()
    ids, index = torch.unique(clusters, return_inverse=True)
    counts = values.new_zeros(len(ids)).index_add(0, index, torch.ones_like(values))
    sums = values.new_zeros(len(ids)).index_add(0, index, values)
    total = float(counts.sum())
    value = float(sums.sum()) / total
    least = total**2 / float(counts.square().sum())
    if len(ids) < 2:
        return value, nan, least
    beside = float((sums - value * counts).square().sum())
    return value, sqrt(len(ids) / (len(ids) - 1) * beside) / total, least
