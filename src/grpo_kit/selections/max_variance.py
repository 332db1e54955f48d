"""Keep the rows of a group whose rewards differ most."""

from typing import Annotated

import torch
from pydantic import Field

from grpo_kit.parts import part
from grpo_kit.selections.ranking import ranked_groups
from grpo_kit.shapes import GroupId, PerRow, RowMask


@part("max_variance")
class MaxVariance:
    """Of each group keep the `keep` rows with the largest variance of rewards.

    PODS (arXiv:2504.13818): the best subset is always the i lowest together with the `keep` - i highest for some i, so
    all such splits are compared; of equal ones the most balanced is taken. A group with no more than `keep` known
    rewards keeps them all; ties go to the earlier row from below and to the later one from above.

    Attributes:
        keep: rows kept a group; at least 2, since one row has no variance.

    Example:
        >>> MaxVariance(keep=4)(torch.tensor([0.0, 0.6, 0.9, 0.95, 0.98, 1.0]), torch.zeros(6, dtype=torch.long))
        tensor([ True, False, False,  True,  True,  True])
    """

    keep: Annotated[int, Field(ge=2)]

    def __call__(self, rewards: PerRow, groups: GroupId) -> RowMask:
        """Rows to keep; see the class."""
        kept = torch.zeros_like(rewards, dtype=torch.bool)
        for rows in ranked_groups(rewards, groups):
            if len(rows) > self.keep:
                # From balanced to lopsided, so that the first of equal variances is the most balanced split.
                splits = sorted(range(self.keep + 1), key=lambda low: abs(2 * low - self.keep))
                subsets = [torch.cat([rows[:low], rows[len(rows) - self.keep + low :]]) for low in splits]
                rows = subsets[int(torch.stack([rewards[subset].var() for subset in subsets]).argmax())]
            kept[rows] = True
        return kept
