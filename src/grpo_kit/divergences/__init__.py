"""Divergences: how far the current policy is from another one."""

from typing import Protocol, runtime_checkable

from grpo_kit.divergences.adaptive_coefficient import AdaptiveCoefficient
from grpo_kit.divergences.sampled_kl import SampledKL
from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken


@runtime_checkable
class Divergence(Protocol):
    """Log-probabilities of the current policy (with gradient) and of another (fixed) in, a loss per token out."""

    def __call__(self, current: PerToken, other: PerToken) -> PerToken:
        """Loss of each token; its inputs are already selected by the mask."""
        ...


DIVERGENCES = Role("divergences", Divergence, {"sampled_kl": SampledKL})

__all__ = ["DIVERGENCES", "AdaptiveCoefficient", "Divergence", "SampledKL"]
