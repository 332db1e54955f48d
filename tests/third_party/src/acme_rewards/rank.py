"""An advantage that sees only the order of a group's rewards."""

from typing import Annotated

import torch
from pydantic import Field

from grpo_kit.parts import part


@part("rank")
class Rank:
    """The rows of a group that a row beats, less those that beat it, as a share of the others: from -span to span.

    A missing reward (NaN) is no row and gets 0, as does a group of one.

    Attributes:
        span: advantage of a row that beats all others; above 0.
    """

    span: Annotated[float, Field(gt=0)] = 1.0

    @property
    def compares_rows(self) -> bool:
        """Always, so that a recipe with groups of one is refused."""
        return True

    def __call__(self, rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        """Advantages of the rows."""
        known = ~rewards.isnan()
        others = (groups[:, None] == groups[None, :]) & known[:, None] & known[None, :]
        others.fill_diagonal_(False)
        beaten = torch.where(others, (rewards[:, None] - rewards[None, :]).sign(), 0).sum(1)
        return self.span * beaten / others.sum(1).clamp(min=1)
