"""The group's own mean as the baseline: GRPO and Dr. GRPO."""

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator

from grpo_kit.formula import number
from grpo_kit.masked import group_is_flat, group_sum
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow


@part("group_mean")
class GroupMean:
    r"""Centre rewards on their group: $A_i = r_i - \bar r_{g(i)}$.

    With `scale="group"` the result is divided by the group's standard deviation (with $n - 1$) plus `eps`, as in GRPO
    (arXiv:2402.03300); without scale this is Dr. GRPO's (arXiv:2503.20783); `scale="batch"` divides by the standard
    deviation of all rewards of the batch, which keeps the relative size of groups (Lite PPO, arXiv:2508.08221). A
    group whose rewards are all equal (max == min) gets exactly 0, so does a group of one. A missing reward (NaN) is
    left out of its group's baseline and gets 0.

    Attributes:
        scale: what the centred reward is divided by; dividing by the group's own deviation weighs easy and hard
            questions up.
        eps: added to the standard deviation, in units of the reward; at least 0.

    Example:
        >>> GroupMean()(torch.tensor([1.0, 0.0, 5.0]), torch.tensor([0, 0, 1]))
        tensor([ 0.5000, -0.5000,  0.0000])
    """

    scale: Literal["none", "group", "batch"] = "none"
    eps: Annotated[float, Field(ge=0)] = 1e-6

    @model_validator(mode="after")
    def _eps_is_used(self) -> "GroupMean":
        if self.scale == "none" and self.eps != 1e-6:
            raise ValueError("scale 'none' divides by nothing and does not use eps; leave eps out, or give a scale")
        return self

    @property
    def compares_rows(self) -> bool:
        """Always: with one row a group every advantage would be 0."""
        return True

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        centred = r"r_i - \operatorname{mean}(r_g)"
        if self.scale == "none":
            return centred
        over = "g" if self.scale == "group" else r"\text{batch}"
        spread = rf"\operatorname{{std}}(r_{{{over}}})" + (f" + {number(self.eps)}" if self.eps else "")
        return rf"\frac{{{centred}}}{{{spread}}}"

    def __call__(self, rewards: PerRow, groups: GroupId) -> PerRow:
        """Advantages of the rows; see the class."""
        known = ~rewards.isnan()
        values = torch.where(known, rewards, 0)
        count = group_sum(known.to(values), groups)
        centred = torch.where(known, values - group_sum(values, groups) / count.clamp(min=1), 0)
        if self.scale == "group":
            variance = group_sum(centred.square(), groups) / (count - 1).clamp(min=1)
            centred = centred / (variance.sqrt() + self.eps)
        elif self.scale == "batch" and int(known.sum()) > 1:
            centred = centred / (values[known].std() + self.eps)
        return torch.where(known & ~group_is_flat(rewards, groups, known), centred, 0)
