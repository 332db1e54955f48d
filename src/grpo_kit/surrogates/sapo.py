"""A soft gate around ratio 1 in place of a hard clip, as in SAPO."""

from math import log1p
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from grpo_kit.formula import number
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken

SATURATED = 100.0
"""Beyond this argument the slope of the sigmoid is 0 to every digit (below 1e-43)."""


@part("sapo")
class SAPO:
    r"""Soft gate $\ell = -\frac{4}{\tau}\, \sigma(\tau (\rho - 1))\, A$, whose slope at $\rho = 1$ is PPO's.

    SAPO (arXiv:2511.20347): the gradient falls off smoothly on both sides of ratio 1, in proportion to
    $4\, \sigma' (\tau (\rho - 1))\, \rho$; no token is cut, also not one that has moved the wrong way. $\tau$ is
    `tau_positive` where the advantage is above 0, else `tau_negative`, which the paper takes a little larger since the
    gradients of negative advantages spread over the whole vocabulary. The ratio is bounded where the gate is flat to
    every digit, so that an overflow gives neither inf nor NaN. The paper takes each row's mean: weighting `equal_rows`.

    Attributes:
        tau_positive: steepness of the gate for advantages above 0.
        tau_negative: steepness of the gate for the others.

    Example:
        >>> SAPO()(torch.tensor([[0.0, 5.0]]), torch.tensor([[1.0, 1.0]]))
        tensor([[-2., -4.]])
    """

    token_local: ClassVar[bool] = True

    tau_positive: Annotated[float, Field(gt=0)] = 1.0
    tau_negative: Annotated[float, Field(gt=0)] = 1.05

    @property
    def formula(self) -> str:
        """Loss of a token, with the logistic function."""
        positive, negative = number(self.tau_positive), number(self.tau_negative)
        gate = r"-\frac{4}{\tau_i} \cdot \sigma(\tau_i \cdot (\rho_{it} - 1)) \cdot A_i"
        return rf"{gate} \text{{, with }} \tau_i = {positive} \text{{ where }} A_i > 0 \text{{, else }} {negative}"

    def __call__(self, log_ratio: PerToken, advantages: PerToken) -> PerToken:
        """Loss of each token; see the class."""
        positive, negative = self._gate(log_ratio, self.tau_positive), self._gate(log_ratio, self.tau_negative)
        return -advantages * torch.where(advantages > 0, positive, negative)

    def _gate(self, log_ratio: PerToken, tau: float) -> PerToken:
        ratio = log_ratio.clamp(max=log1p(SATURATED / tau)).exp()
        return 4 / tau * torch.sigmoid(tau * (ratio - 1))
