"""The geometric mean of one-sidedly clipped token ratios, as in GMPO."""

from typing import Annotated

import torch
from einops import rearrange
from pydantic import Field

from grpo_kit.formula import number
from grpo_kit.masked import row_mean, select
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("gmpo")
class GMPO:
    r"""Geometric mean of the row's clipped ratios, $\ell_{it} = -A_{it}\, e^{\mathrm{sg}[\bar c_i - c_{it}] + c_{it}}$.

    GMPO (arXiv:2507.20673): $c_{it} = \min(\log \rho_{it}, \mathrm{high})$ where the advantage is not negative, else
    $\max(\log \rho_{it}, -\mathrm{low})$, and $\bar c_i$ is the row's mean over its counted tokens. The clip is in log
    space and pessimistic: a ratio that moved the wrong way is never clipped, so with a negative advantage it has no
    upper bound, as in the paper. A clipped token has gradient 0 and still counts in the row's mean. The stop-gradient
    form has a loss for each token; with one advantage a row and a weighting that is constant in it (`equal_rows` for
    the paper's) the gradient is the paper's, that of $-A_i e^{\bar c_i}$.

    Attributes:
        low: how far log-ratios may fall where the advantage is negative, in nats.
        high: how far log-ratios may rise elsewhere, in nats.

    Example:
        >>> log_ratio, mask = torch.tensor([[0.9, 0.2]]), torch.tensor([[True, True]])
        >>> GMPO()(log_ratio, torch.tensor([[1.0, 1.0]]), mask)  # -exp((0.4 + 0.2) / 2)
        tensor([[-1.3499, -1.3499]])
    """

    low: Annotated[float, Field(ge=0)] = 0.4
    high: Annotated[float, Field(ge=0)] = 0.4

    @property
    def formula(self) -> str:
        """Loss of a token; sg stops the gradient."""
        loss = r"-A_i \cdot e^{\operatorname{sg}[\operatorname{mean}_u(c_{iu}) - c_{it}] + c_{it}}"
        above, below = (
            rf"\{name}(\log \rho_{{it}}, {number(edge)})" for name, edge in (("min", self.high), ("max", -self.low))
        )
        return rf"{loss} \text{{, with }} c_{{it}} = {above} \text{{ where }} A_i \ge 0 \text{{, else }} {below}"

    def clipped(self, log_ratio: PerToken, advantages: PerToken) -> TokenMask:
        """The tokens without gradient."""
        return torch.where(advantages >= 0, log_ratio > self.high, log_ratio < -self.low)

    def __call__(self, log_ratio: PerToken, advantages: PerToken, mask: TokenMask) -> PerToken:
        """Loss of each token; see the class."""
        own = torch.where(advantages >= 0, log_ratio.clamp(max=self.high), log_ratio.clamp(min=-self.low))
        level = rearrange(row_mean(own.detach(), mask), "row -> row 1")
        return -advantages * select(level + (own - own.detach()), mask).exp()
