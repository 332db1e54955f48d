"""Corrections: detached importance weights for tokens that another distribution wrote."""

from typing import Protocol, runtime_checkable

from grpo_kit.corrections.importance_weight import ImportanceWeight
from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken, TokenMask


@runtime_checkable
class Correction(Protocol):
    """Log-ratios anchor - behavior in, a detached weight per token out; 1 where the two agree."""

    def __call__(self, log_ratio: PerToken, mask: TokenMask) -> PerToken:
        """Weight of each token; 0 outside the mask."""
        ...


CORRECTIONS = Role("corrections", Correction, {"importance_weight": ImportanceWeight})

__all__ = ["CORRECTIONS", "Correction", "ImportanceWeight"]
