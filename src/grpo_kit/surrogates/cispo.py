"""Clipped importance weights, as in CISPO: the weight is bounded, the gradient never removed."""

from math import log
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from grpo_kit.formula import number
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("cispo")
class CISPO:
    r"""REINFORCE with a bounded, detached ratio as weight: $\ell = -\mathrm{sg}[w(\rho)]\, A \log \rho$.

    CISPO (MiniMax-M1, arXiv:2506.13585): every token keeps a gradient, $-w A \nabla \log \pi$, however far its ratio
    is out. The paper bounds the weight from above alone, and so does the default here; 5 is what TRL's documentation
    recommends for it. Two readings of the bound are in use, which `bound` tells apart: `absolute` bounds the ratio
    itself, `low` $\le w \le$ `high` (TRL, whose `epsilon_high` is such a bound: 5 is 5); `relative` bounds its distance
    from 1, 1 - `low` $\le w \le$ 1 + `high` (the paper's formula and verl, whose `clip_ratio_high` is such a distance:
    0.2 is 1.2). The value differs from the peers' $-w A \log \pi$ by a term without gradient and is finite for
    every ratio.

    Attributes:
        bound: what `high` and `low` bound: the ratio, or its distance from 1.
        high: upper bound; at least 1 where it is absolute, above 0 where it is relative.
        low: lower bound, in [0, 1]; none by default.

    Example:
        >>> import torch
        >>> ratio = torch.tensor([[0.5, 9.0]])
        >>> CISPO()(ratio.log(), torch.tensor([[1.0, 1.0]])) / ratio.log()
        tensor([[-0.5000, -5.0000]])
    """

    token_local: ClassVar[bool] = True

    bound: Literal["absolute", "relative"] = "absolute"
    high: Annotated[float, Field(gt=0)] = 5.0
    low: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _on_policy_is_inside(self) -> "CISPO":
        if self.bound == "absolute" and self.high < 1:
            raise ValueError(
                f"high = {self.high} bounds the ratio itself (bound = 'absolute'), so it would scale down on-policy "
                f"tokens, whose ratio is 1; use bound = 'relative' for 1 + {self.high}, or high of at least 1"
            )
        return self

    @property
    def edges(self) -> tuple[float, float]:
        """The smallest and the largest weight."""
        low = self.low or 0.0
        if self.bound == "absolute":
            return low, self.high
        return (0.0 if self.low is None else 1 - low), 1 + self.high

    @property
    def formula(self) -> str:
        """Loss of a token; sg stops the gradient."""
        low, high = self.edges
        bounded = rf"\operatorname{{clip}}(\rho_{{it}}, {number(low)}, {number(high)})"
        weight = bounded if low else rf"\min(\rho_{{it}}, {number(high)})"
        return rf"-\operatorname{{sg}}[{weight}] \cdot A_i \cdot \log \rho_{{it}}"

    def clipped(self, log_ratio: PerToken, advantages: PerToken) -> TokenMask:
        """The tokens whose weight stands at a bound; their gradient is scaled, not removed."""
        low, high = self.edges
        return (log_ratio > log(high)) | (log_ratio < (log(low) if low else -float("inf")))

    def __call__(self, log_ratio: PerToken, advantages: PerToken) -> PerToken:
        """Loss of each token; see the class."""
        low, high = self.edges
        weight = log_ratio.detach().clamp(min=log(low) if low else None, max=log(high)).exp()
        return -weight * advantages * log_ratio
