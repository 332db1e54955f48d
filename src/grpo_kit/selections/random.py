"""Keep rows of a group by chance."""

from typing import Annotated

import torch
from pydantic import Field

from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow, RowMask


@part("random")
class RandomRows:
    """Of each group keep `keep` rows drawn without replacement, every subset as likely.

    What choosing by rewards is compared with (arXiv:2504.13818). A group with no more than `keep` known rewards keeps
    them all. The same generator gives the same rows; it is asked for one number a known reward, in row order.

    Attributes:
        keep: rows kept a group; at least 1.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> rewards, groups = torch.zeros(5), torch.tensor([0, 0, 0, 1, 1])
        >>> RandomRows(keep=2)(rewards, groups, generator=generator)
        tensor([False,  True,  True,  True,  True])
    """

    keep: Annotated[int, Field(ge=1)]

    def __call__(self, rewards: PerRow, groups: GroupId, *, generator: torch.Generator) -> RowMask:
        """Rows to keep; see the class."""
        known = torch.nonzero(~rewards.isnan()).flatten()
        draws = torch.rand(len(known), generator=generator, dtype=torch.float64).to(rewards.device)
        shuffled = known[draws.argsort()]
        kept = torch.zeros_like(rewards, dtype=torch.bool)
        for group in groups.unique():
            kept[shuffled[groups[shuffled] == group][: self.keep]] = True
        return kept
