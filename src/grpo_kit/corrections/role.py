"""What a correction is, and the table of its kinds; apart from the kinds, since one of them holds others."""

from typing import Any, Protocol, runtime_checkable

from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken, TokenMask


@runtime_checkable
class Correction(Protocol):
    """Log-ratios anchor - behavior in, a detached weight per token out; 1 where the two agree.

    A correction that needs more names it as a parameter: `groups` (GroupId) and `advantages` (PerToken). One that is
    decided anew at every optimizer step, from current / behavior, says so by a property `at_update` that is True; it
    may only keep or drop, since a weight there would be applied twice. One that bounds a weight may give, by a method
    `log_weight` of the same two inputs, the weight's logarithm before the bounds, for the metrics.
    """

    def __call__(self, log_ratio: PerToken, mask: TokenMask, *args: Any, **asked: Any) -> PerToken:
        """Weight of each token; 0 outside the mask."""
        ...


CORRECTIONS = Role("corrections", Correction, {})
