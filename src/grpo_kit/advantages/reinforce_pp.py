"""Returns token by token, whitened over the batch: REINFORCE++."""

from typing import Annotated

from pydantic import Field

from grpo_kit.advantages.deviation import deviation, formula
from grpo_kit.formula import number
from grpo_kit.masked import select, wide
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow, PerToken, TokenMask


@part("reinforce_pp")
class ReinforcePP:
    r"""Whiten each token's return over all tokens of the batch: $A_{it} = (R_{it} - \bar R) / (\sigma_R + \epsilon)$.

    $R_{it} = \sum_{u \ge t} \gamma^{u - t} r_{iu}$ is the reward from the token on (REINFORCE++, arXiv:2501.03262),
    rewards of whole rows on their last token; groups play no part, and one row a prompt is enough. Mean and deviation
    (with n - 1) are over the tokens, so longer rows count more in them; verl adds its 1e-8 to the variance. Where all
    returns are the same every advantage is exactly 0. A row with a missing reward (NaN) is left out and gets 0, and so
    do tokens outside the mask.

    Attributes:
        gamma: discount of a later reward, a token; in (0, 1].
        eps: added to the standard deviation, in units of the reward; at least 0.

    Example:
        >>> import torch
        >>> mask, rewards = torch.tensor([[True, True], [True, True]]), torch.tensor([1.0, 0.0])
        >>> by_token = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
        >>> ReinforcePP()(rewards, torch.tensor([0, 1]), token_rewards=by_token, mask=mask)
        tensor([[ 0.8660,  0.8660],
                [-0.8660, -0.8660]])
    """

    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    eps: Annotated[float, Field(ge=0)] = 1e-8

    @property
    def formula(self) -> str:
        """The advantage of a token."""
        spread = formula("R", self.eps)
        discount = rf"{number(self.gamma)}^{{u - t}} \cdot " if self.gamma < 1 else ""
        returns = rf"R_{{it}} = \sum_{{u \ge t}} {discount}r_{{iu}}"
        return rf"\frac{{R_{{it}} - \operatorname{{mean}}(R)}}{{{spread}}}, \quad {returns}"

    def __call__(self, rewards: PerRow, groups: GroupId, token_rewards: PerToken, mask: TokenMask) -> PerToken:
        """Advantages of the tokens; see the class."""
        counted = mask & ~rewards.isnan()[:, None]
        returns = select(wide(token_rewards), counted)
        for token in reversed(range(returns.shape[1] - 1)):
            returns[:, token] += self.gamma * returns[:, token + 1]
        if counted.any():
            returns = returns - returns[counted].max()  # so that an offset costs no digits of the mean
        known = returns[counted]
        return select((returns - known.mean()) / (deviation(known) + self.eps), counted)
