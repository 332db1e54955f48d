"""The bounded importance weight anchor / behavior at a chosen level."""

from typing import Annotated, Literal

import torch
from einops import rearrange
from pydantic import Field

from grpo_kit.formula import number
from grpo_kit.masked import row_mean, row_sum, select
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("importance_weight")
class ImportanceWeight:
    r"""Weight each token by $w = \pi_\mathrm{anchor} / \mu$, at a level, kept inside $[\mathrm{low}, \mathrm{high}]$.

    With $\ell_t = \log \pi_\mathrm{anchor}(o_t) - \log \mu(o_t)$ the level is `token`: $e^{\ell_t}$; `prefix`:
    $e^{\sum_{u \le t} \ell_u}$; `sequence`: $e^{\sum_u \ell_u}$; `geometric`: $e^{\frac{1}{|o|}\sum_u \ell_u}$. Only
    the untruncated sequence product is unbiased for a reward at the end of the row; its variance grows with the
    length of the row, and over long rows it vanishes. `truncate` moves a weight to the nearest bound (V-trace
    clips so, arXiv:1802.01561); `mask` sets it to 0 outside.

    Attributes:
        level: over which tokens the quotient is taken.
        action: what happens to a weight outside the bounds.
        low: lower bound, in [0, 1].
        high: upper bound, at least 1; `inf` for none.

    Example:
        >>> weight = ImportanceWeight(level="sequence", high=2.0)
        >>> weight(torch.tensor([[2.0, 0.25]]).log(), torch.tensor([[True, True]]))
        tensor([[0.5000, 0.5000]])
    """

    level: Literal["token", "prefix", "sequence", "geometric"] = "token"
    action: Literal["truncate", "mask"] = "truncate"
    low: Annotated[float, Field(ge=0, le=1)] = 0.0
    high: Annotated[float, Field(ge=1, allow_inf_nan=True)] = 2.0

    @property
    def formula(self) -> str:
        """Weight of a token."""
        level = {
            "token": "b_{it}",
            "prefix": r"\sum_{u \le t} b_{iu}",
            "sequence": r"\sum_{u} b_{iu}",
            "geometric": r"\operatorname{mean}_u(b_{iu})",
        }[self.level]
        bounds = f"{number(self.low)}, {number(self.high)}"
        if self.action == "truncate":
            return rf"\operatorname{{clip}}(e^{{{level}}}, {bounds})"
        return rf"e^{{{level}}} \text{{ inside }} [{bounds}] \text{{, else }} 0"

    def __call__(self, log_ratio: PerToken, mask: TokenMask) -> PerToken:
        """Detached weights; see the class."""
        weights = self._at_level(select(log_ratio.detach(), mask), mask).exp()
        bounded = weights.clamp(self.low, self.high)
        if self.action == "mask":
            bounded = torch.where(bounded == weights, weights, 0)
        return select(bounded, mask)

    def _at_level(self, log_ratio: PerToken, mask: TokenMask) -> PerToken:
        if self.level == "token":
            return log_ratio
        if self.level == "prefix":
            return log_ratio.cumsum(dim=1)
        level = row_sum(log_ratio, mask) if self.level == "sequence" else row_mean(log_ratio, mask)
        return rearrange(level, "row -> row 1").expand_as(log_ratio)
