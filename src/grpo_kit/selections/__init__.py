"""Selections: which of a group's sampled rows are trained on (M sampled, G kept)."""

from typing import Any, Protocol, runtime_checkable

from grpo_kit.parts import Role
from grpo_kit.selections.max_variance import MaxVariance
from grpo_kit.selections.random import RandomRows
from grpo_kit.selections.spread import Spread
from grpo_kit.selections.top_bottom import TopBottom
from grpo_kit.shapes import GroupId, PerRow, RowMask


@runtime_checkable
class Selection(Protocol):
    """Rewards and groups in, the rows to keep out; rows with a missing reward (NaN) are never kept.

    What it draws it draws from the keyword `generator`, the loop's.
    """

    def __call__(self, rewards: PerRow, groups: GroupId, *args: Any, **asked: Any) -> RowMask:
        """True for the rows to keep."""
        ...


SELECTIONS = Role(
    "selections",
    Selection,
    {"max_variance": MaxVariance, "top_bottom": TopBottom, "random": RandomRows, "spread": Spread},
)

__all__ = ["SELECTIONS", "MaxVariance", "RandomRows", "Selection", "Spread", "TopBottom"]
