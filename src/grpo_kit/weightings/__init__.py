"""Weightings: how much each token of an optimizer step counts; the only place where a loss is divided by a count."""

from typing import Protocol, runtime_checkable

from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.weightings.equal_rows import EqualRows
from grpo_kit.weightings.equal_tokens import EqualTokens
from grpo_kit.weightings.fixed_length import FixedLength


@runtime_checkable
class Weighting(Protocol):
    """The mask of all rows of one optimizer step in, a weight per token out; the loss is then a plain sum."""

    def __call__(self, mask: TokenMask) -> PerToken:
        """Weight of each token; 0 outside the mask."""
        ...


WEIGHTINGS = Role(
    "weightings", Weighting, {"equal_tokens": EqualTokens, "equal_rows": EqualRows, "fixed_length": FixedLength}
)

__all__ = ["WEIGHTINGS", "EqualRows", "EqualTokens", "FixedLength", "Weighting"]
