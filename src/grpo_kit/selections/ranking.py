"""The rows of each group in order of their reward."""

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from grpo_kit.shapes import GroupId, PerRow


def ranked_groups(rewards: PerRow, groups: GroupId) -> Iterator[Int[Tensor, " member"]]:
    """Yield each group's rows from the lowest reward to the highest; ties in row order, missing rewards left out."""
    for group in groups.unique():
        rows = torch.nonzero((groups == group) & ~rewards.isnan()).flatten()
        yield rows[torch.sort(rewards[rows], stable=True).indices]
