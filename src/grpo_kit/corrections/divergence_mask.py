"""Keep or drop tokens by how far their writer is from the anchor, or from the policy at every update."""

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator

from grpo_kit.corrections.levels import Level, at_level, check_window, formula
from grpo_kit.formula import number
from grpo_kit.masked import select
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("divergence_mask")
class DivergenceMask:
    r"""Keep a token (weight 1) while an estimate of $\mathrm{KL}(\mu \| \pi)$ is in $[\mathrm{low}, \mathrm{high}]$.

    With $\ell = \log \pi(o_t) - \log \mu(o_t)$ a token's estimate is `k1`: $-\ell$, `k2`: $\ell^2 / 2$ or `k3`:
    $e^\ell - 1 - \ell$. The level takes it as it is (`token`), or sums it over the `prefix`, the last `window` tokens
    or the whole `sequence`, or takes the row's mean (`geometric`, as the mean of log-ratios is the logarithm of their
    geometric mean). At `scoring` $\pi$ is the anchor and the choice is made once; at `update` $\pi$ is the policy being
    updated, and the choice is made anew at every optimizer step. Dropped tokens keep their place in the weighting's
    denominator.

    OPSM, the off-policy sequence mask of DeepSeek-V3.2 (arXiv:2512.02556), is metric `k1`, level `geometric`,
    `only_negative`, at `update`, with the paper's $\delta$ as `high`.

    Attributes:
        metric: the estimate of a token's divergence, in nats.
        level: over which tokens it is taken.
        window: number of tokens of level `window`, and of no other; at least 1.
        low: smallest value kept, at most 0; none by default. Only with `k1`, the others are never negative.
        high: largest value kept, at least 0; `inf` for none.
        only_negative: drop only tokens with a negative advantage.
        at: whether the anchor is judged once at `scoring`, or the policy at every `update`.

    Example:
        >>> mask = DivergenceMask(metric="k3", level="token", high=0.1)
        >>> mask(torch.tensor([[1.5, 1.1, 0.5]]).log(), torch.tensor([[True, True, True]]))  # k3: 0.095, 0.005, 0.193
        tensor([[1., 1., 0.]])
    """

    metric: Literal["k1", "k2", "k3"] = "k3"
    level: Level = "geometric"
    window: Annotated[int, Field(ge=1)] | None = None
    low: Annotated[float, Field(le=0)] | None = None
    high: Annotated[float, Field(ge=0, allow_inf_nan=True)]
    only_negative: bool = False
    at: Literal["scoring", "update"] = "scoring"

    @model_validator(mode="after")
    def _nothing_is_idle(self) -> "DivergenceMask":
        check_window(self.level, self.window)
        if self.low is not None and self.metric != "k1":
            raise ValueError(f"low = {self.low} has nothing to do, {self.metric} is never negative; remove it")
        if self.low is None and self.high == float("inf"):
            raise ValueError("high = inf without low drops nothing; lower high, or remove the correction")
        return self

    @property
    def token_local(self) -> bool:
        """Whether each token is judged by itself."""
        return self.level == "token"

    @property
    def at_update(self) -> bool:
        """Whether it is decided anew at every optimizer step."""
        return self.at == "update"

    @property
    def formula(self) -> str:
        """Weight of a token; at an update the log-ratio is that of the policy being updated."""
        b = r"b_{iu}" if self.at == "scoring" else r"(b_{iu} + d_{iu})"
        of_token = {"k1": f"-{b}", "k2": rf"\frac{{1}}{{2}} \cdot {b}^2", "k3": f"e^{{{b}}} - 1 - {b}"}[self.metric]
        low = "" if self.low is None else rf"{number(self.low)} \le "
        kept = rf"1 \text{{ where }} {low}{formula(self.level, self.window, of_token)} \le {number(self.high)}"
        return kept + (r" \text{ or } A_i \ge 0" if self.only_negative else "") + r" \text{, else } 0"

    def __call__(self, log_ratio: PerToken, mask: TokenMask, advantages: PerToken | None = None) -> PerToken:
        """Detached weights, 1 or 0; see the class."""
        own = select(log_ratio.detach(), mask)
        of_token = {"k1": lambda: -own, "k2": lambda: own.square() / 2, "k3": lambda: torch.expm1(own) - own}
        found = at_level(of_token[self.metric](), mask, self.level, self.window)
        kept = found <= self.high
        if self.low is not None:
            kept = kept & (found >= self.low)
        if self.only_negative:
            if advantages is None:
                raise ValueError("only_negative needs the keyword advantages, the advantage of each token")
            kept = kept | (advantages >= 0)
        return select(kept.to(own), mask)
