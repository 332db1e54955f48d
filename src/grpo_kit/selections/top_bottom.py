"""Keep the best and the worst rows of a group."""

from typing import Annotated

import torch
from pydantic import Field, model_validator

from grpo_kit.parts import part
from grpo_kit.selections.ranking import ranked_groups
from grpo_kit.shapes import GroupId, PerRow, RowMask


@part("top_bottom")
class TopBottom:
    """Of each group keep the `top` highest and the `bottom` lowest rewards.

    A group with no more than `top` + `bottom` known rewards keeps them all; ties go to the earlier row
    from below and to the later one from above.

    Attributes:
        top: rows kept from the top of each group; at least 0.
        bottom: rows kept from the bottom; at least 0, and not both 0.

    Example:
        >>> TopBottom(top=1, bottom=1)(torch.tensor([0.5, 1.0, 0.0]), torch.tensor([3, 3, 3]))
        tensor([False,  True,  True])
    """

    top: Annotated[int, Field(ge=0)]
    bottom: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _keeps_something(self) -> "TopBottom":
        if self.keep == 0:
            raise ValueError("top and bottom are both 0: no row would be left; raise one of them")
        return self

    @property
    def keep(self) -> int:
        """Rows kept a group."""
        return self.top + self.bottom

    def __call__(self, rewards: PerRow, groups: GroupId) -> RowMask:
        """Rows to keep; see the class."""
        kept = torch.zeros_like(rewards, dtype=torch.bool)
        for rows in ranked_groups(rewards, groups):
            kept[rows[: self.bottom]] = True
            kept[rows[max(0, len(rows) - self.top) :]] = True
        return kept
