"""PPO's pessimistic clip, with an edge of its own on each side and an optional cap."""

from math import log, log1p
from typing import Annotated, ClassVar

import torch
from pydantic import Field, model_validator

from grpo_kit.formula import number
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("clip")
class Clip:
    r"""Clipped surrogate $\ell = -\min(\rho A,\ \mathrm{clip}(\rho, 1 - \epsilon_l, 1 + \epsilon_h)\,A)$.

    PPO (arXiv:1707.06347); with `high` > `low` it is DAPO's clip-higher (arXiv:2503.14476); `cap` bounds the ratio of
    tokens with a negative advantage, which PPO leaves unbounded (dual clip, arXiv:1912.09729: the loss never exceeds
    $c\,|A|$). TRL's two-sided clip (`delta`) is this cap, too: it bounds the unclipped ratio for either sign, and where
    the advantage is positive the clip below it has bounded the loss already. The ratio is bounded in log space before
    it is exponentiated, so an overflow on the clipped side gives neither inf nor NaN. A clipped token has gradient 0.

    Attributes:
        low: $\epsilon_l$, in [0, 1).
        high: $\epsilon_h$, at least 0.
        cap: largest ratio counted where the advantage is negative; above 1 + `high`; none by default.

    Example:
        >>> ratio = torch.tensor([[0.5, 1.5, 1.5, 0.5]])
        >>> Clip()(ratio.log(), torch.tensor([[-1.0, -1.0, 1.0, 1.0]]))
        tensor([[ 0.8000,  1.5000, -1.2000, -0.5000]])
    """

    token_local: ClassVar[bool] = True

    low: Annotated[float, Field(ge=0, lt=1)] = 0.2
    high: Annotated[float, Field(ge=0)] = 0.2
    cap: float | None = None

    @model_validator(mode="after")
    def _cap_is_above_the_clip(self) -> "Clip":
        if self.cap is not None and self.cap <= 1 + self.high:
            raise ValueError(f"cap = {self.cap} is not above 1 + high = {1 + self.high}; raise cap or leave it out")
        return self

    @property
    def formula(self) -> str:
        """Loss of a token."""
        bounds = f"{number(1 - self.low)}, {number(1 + self.high)}"
        inner = rf"\min(\rho_{{it}} \cdot A_i, \operatorname{{clip}}(\rho_{{it}}, {bounds}) \cdot A_i)"
        return f"-{inner}" if self.cap is None else rf"-\max({inner}, {number(self.cap)} \cdot \min(A_i, 0))"

    def clipped(self, log_ratio: PerToken, advantages: PerToken) -> TokenMask:
        """The tokens without gradient."""
        capped = log_ratio > (float("inf") if self.cap is None else log(self.cap))
        below = (log_ratio < log1p(-self.low)) | capped
        return torch.where(advantages >= 0, log_ratio > log1p(self.high), below)

    def __call__(self, log_ratio: PerToken, advantages: PerToken) -> PerToken:
        """Loss of each token; see the class."""
        cap = None if self.cap is None else log(self.cap)
        above, below = log_ratio.clamp(max=log1p(self.high)), log_ratio.clamp(min=log1p(-self.low), max=cap)
        return -advantages * torch.where(advantages >= 0, above, below).exp()
