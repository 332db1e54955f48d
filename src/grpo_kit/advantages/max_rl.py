"""The centered reward in units of the group's own mean: MaxRL."""

from typing import Annotated

import torch
from pydantic import Field

from grpo_kit.formula import number
from grpo_kit.masked import centered, group_sum
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow


@part("max_rl")
class MaxRL:
    r"""Divide the centered reward by the group's mean: $A_i = (r_i - \bar r_{g(i)}) / (\bar r_{g(i)} + \epsilon)$.

    MaxRL (arXiv:2602.02710): for rewards 0 and 1, equal rows and $\epsilon \to 0$ it is the unbiased gradient of
    $\sum_{k=1}^{n-1} \mathrm{pass@}k / k$, which grows into the log-likelihood of a right answer as the group's size
    $n$ does; hard questions weigh more. Rewards must be at least 0, else ValueError. A group whose rewards are all
    equal, all 0 too, gets exactly 0, so does a group of one. A missing reward (NaN) is left out of its group and
    gets 0.

    Attributes:
        eps: added to the mean, in units of the reward; above 0.

    Example:
        >>> MaxRL()(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 0]))
        tensor([ 3.0000, -1.0000, -1.0000, -1.0000])
    """

    compares_rows = True
    eps: Annotated[float, Field(gt=0)] = 1e-6

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        mean = r"\operatorname{mean}(r_g)"
        return rf"\frac{{r_i - {mean}}}{{{mean} + {number(self.eps)}}}"

    def __call__(self, rewards: PerRow, groups: GroupId) -> PerRow:
        """Advantages of the rows; see the class."""
        known = ~rewards.isnan()
        values = torch.where(known, rewards, 0)
        if (values < 0).any():
            raise ValueError(
                f"max_rl divides by the mean reward of a group and needs rewards of at least 0; the lowest is "
                f"{float(values.min()):g}. Give it rewards that cannot be negative, or use 'group_mean'."
            )
        mean = group_sum(values, groups) / group_sum(known.to(values), groups).clamp(min=1)
        return centered(rewards, groups, known) / (mean + self.eps)
