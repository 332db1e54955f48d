"""The group's mean as the baseline and the tokens' deviation as the scale: REINFORCE++ with a baseline."""

from typing import Annotated

import torch
from einops import repeat
from pydantic import Field

from grpo_kit.advantages.deviation import deviation, formula
from grpo_kit.masked import centered
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow, TokenMask


@part("reinforce_pp_baseline")
class ReinforcePPBaseline:
    r"""Divide the centered reward by its deviation over the batch's tokens: $A_i = a_i / (\sigma_a + \epsilon)$.

    $a_i = r_i - \bar r_{g(i)}$, and $\sigma_a$ is the standard deviation (with n - 1) of what all tokens of the batch
    get of it, so that longer rows count more (REINFORCE++ with baseline, arXiv:2501.03262). A group whose rewards are
    all equal gets exactly 0, so does a group of one. Peers also subtract the mean over the tokens, which is not 0 when
    good and bad rows differ in length: `shift` does that, and then rows without anything to tell are pushed as well. A
    missing reward (NaN) is left out of its group's baseline and gets 0.

    Attributes:
        shift: subtract the mean over the tokens first.
        eps: added to the standard deviation, in units of the reward; at least 0.

    Example:
        >>> mask, rewards = torch.tensor([[True, True]] * 3), torch.tensor([1.0, 0.0, 5.0])
        >>> ReinforcePPBaseline()(rewards, torch.tensor([0, 0, 1]), mask=mask)
        tensor([ 1.1180, -1.1180,  0.0000])
    """

    compares_rows = True
    shift: bool = False
    eps: Annotated[float, Field(ge=0)] = 1e-8

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        spread = formula("a", self.eps, over="_{i,t}")
        shifted = r"a_i - \operatorname{mean}_{i,t}(a)" if self.shift else "a_i"
        return rf"\frac{{{shifted}}}{{{spread}}}, \quad a_i = r_i - \operatorname{{mean}}(r_g)"

    def __call__(self, rewards: PerRow, groups: GroupId, mask: TokenMask) -> PerRow:
        """Advantages of the rows; see the class."""
        known = ~rewards.isnan()
        advantages = centered(rewards, groups, known)
        of_tokens = repeat(advantages, "row -> row token", token=mask.shape[1])[mask & known[:, None]]
        if self.shift and len(of_tokens):
            advantages = torch.where(known, advantages - of_tokens.mean(), 0)
        return advantages / (deviation(of_tokens) + self.eps)
