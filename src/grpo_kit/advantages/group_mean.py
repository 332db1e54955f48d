"""The group's own mean as the baseline: GRPO and Dr. GRPO."""

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator

from grpo_kit.advantages.deviation import deviation, formula, refuse_idle_eps
from grpo_kit.masked import centered, group_sum, wide
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow


@part("group_mean")
class GroupMean:
    r"""Center rewards on their group: $A_i = r_i - \bar r_{g(i)}$.

    With `scale="group"` the result is divided by the group's standard deviation (with $n - 1$) plus `eps`, as in GRPO
    (arXiv:2402.03300); without scale this is Dr. GRPO's (arXiv:2503.20783); `scale="batch"` divides by the standard
    deviation of all rewards of the batch, which keeps the relative size of groups (Lite PPO, arXiv:2508.08221). A
    group whose rewards are all equal (max == min) gets exactly 0, so does a group of one. A missing reward (NaN) is
    left out of its group's baseline and gets 0.

    Attributes:
        scale: what the centered reward is divided by; dividing by the group's own deviation weighs easy and hard
            questions up.
        eps: added to the standard deviation, in units of the reward; at least 0.

    Example:
        >>> GroupMean()(torch.tensor([1.0, 0.0, 5.0]), torch.tensor([0, 0, 1]))
        tensor([ 0.5000, -0.5000,  0.0000])
    """

    compares_rows = True
    scale: Literal["none", "group", "batch"] = "none"
    eps: Annotated[float, Field(ge=0)] = 1e-6

    @model_validator(mode="after")
    def _eps_is_used(self) -> "GroupMean":
        refuse_idle_eps(self.scale, self.eps)
        return self

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        lead = r"r_i - \operatorname{mean}(r_g)"
        if self.scale == "none":
            return lead
        values = "r_g" if self.scale == "group" else r"r_{\text{batch}}"
        return rf"\frac{{{lead}}}{{{formula(values, self.eps)}}}"

    def __call__(self, rewards: PerRow, groups: GroupId) -> PerRow:
        """Advantages of the rows; see the class."""
        known = ~rewards.isnan()
        advantages = centered(rewards, groups, known)
        if self.scale == "group":
            others = (group_sum(known.to(advantages), groups) - 1).clamp(min=1)
            spread = (group_sum(advantages.square(), groups) / others).sqrt()
            return torch.where(advantages == 0, 0, advantages / (spread + self.eps))
        return advantages / (deviation(wide(rewards)[known]) + self.eps) if self.scale == "batch" else advantages
