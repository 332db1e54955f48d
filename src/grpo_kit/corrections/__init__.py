"""Corrections: detached importance weights for tokens that another distribution wrote."""

from typing import Any, Protocol, runtime_checkable

from grpo_kit.corrections.importance_weight import ImportanceWeight
from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken, TokenMask


@runtime_checkable
class Correction(Protocol):
    """Log-ratios anchor - behavior in, a detached weight per token out; 1 where the two agree.

    A correction that needs more names it as a parameter: `groups` (GroupId) and `advantages` (PerToken). One that is
    decided anew at every optimizer step, from current / behavior, says so by a property `at_update` that is True; it
    may only keep or drop, since a weight there would be applied twice.
    """

    def __call__(self, log_ratio: PerToken, mask: TokenMask, *args: Any, **asked: Any) -> PerToken:
        """Weight of each token; 0 outside the mask."""
        ...


CORRECTIONS = Role("corrections", Correction, {"importance_weight": ImportanceWeight})


def factors(correction: Correction | None) -> list[tuple[Correction, bool]]:
    """A correction as its factors, each with whether it is decided anew at every update."""
    parts = () if correction is None else getattr(correction, "factors", (correction,))
    return [(part, bool(getattr(part, "at_update", False))) for part in parts]


__all__ = ["CORRECTIONS", "Correction", "ImportanceWeight", "factors"]
