"""The length-weighted mean of the group as the baseline: OPO."""

import torch
from einops import reduce

from grpo_kit.masked import centered, group_sum
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow, TokenMask


@part("opo")
class OPO:
    r"""Center rewards on their group's length-weighted mean: $A_i = r_i - \sum_{j} |o_j| r_j / \sum_{j} |o_j|$.

    The baseline of least variance (OPO, arXiv:2505.23585) if a row's squared gradient grows with its length $|o_j|$ in
    tokens. Rows of equal length make it the group's mean. A group whose rewards are all equal gets exactly 0, so does a
    group of one. A missing reward (NaN) is left out of its group's baseline and gets 0.

    Example:
        >>> mask = torch.tensor([[True, True, True], [True, False, False]])
        >>> OPO()(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), mask=mask)
        tensor([ 0.2500, -0.7500])
    """

    compares_rows = True

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        return r"r_i - \frac{\sum_{j \in g} |o_j| \cdot r_j}{\sum_{j \in g} |o_j|}"

    def __call__(self, rewards: PerRow, groups: GroupId, mask: TokenMask) -> PerRow:
        """Advantages of the rows; see the class."""
        known = ~rewards.isnan()
        values = centered(rewards, groups, known)
        lengths = torch.where(known, reduce(mask.to(values), "row token -> row", "sum"), 0)
        baseline = group_sum(lengths * values, groups) / group_sum(lengths, groups).clamp(min=1)
        return torch.where(known, values - baseline, 0)
