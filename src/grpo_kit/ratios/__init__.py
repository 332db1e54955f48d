"""Ratios: at which level the surrogate compares the current policy with its anchor."""

from typing import Protocol, runtime_checkable

from grpo_kit.parts import Role
from grpo_kit.ratios.sequence import SequenceRatio
from grpo_kit.ratios.token import TokenRatio
from grpo_kit.shapes import PerToken, TokenMask


@runtime_checkable
class Ratio(Protocol):
    """Token log-ratios current - anchor in, the log-ratio that the surrogate sees out.

    One that leaves each token by itself says so by an attribute `token_local` that is True.
    """

    def __call__(self, log_ratio: PerToken, mask: TokenMask) -> PerToken:
        """Bring the log-ratio to the part's level; 0 outside the mask."""
        ...


RATIOS = Role("ratios", Ratio, {"token": TokenRatio, "sequence": SequenceRatio})

__all__ = ["RATIOS", "Ratio", "SequenceRatio", "TokenRatio"]
