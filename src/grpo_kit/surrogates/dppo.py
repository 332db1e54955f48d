"""A mask by how far a token's probability has moved, in place of a clip of its ratio, as in DPPO."""

from math import log
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from grpo_kit.formula import number
from grpo_kit.logprobs import LogProbs
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask

CERTAIN = -1e-7
"""A log-probability nearer to 0 counts as this one, so that the logarithm of what is left is finite."""


@part("dppo")
class DPPO:
    r"""Drop what left a trust region; for the rest $\ell = -\mathrm{sg}[\min(\rho, \mathrm{cap})]\, A \log \rho$.

    DPPO (arXiv:2602.04879), its binary forms: with $p$ the token's probability now and $\mu$ its probability under the
    anchor, a token is dropped when its advantage is positive and $p > \mu$ by a divergence of more than `high`, or its
    advantage is negative and $p < \mu$ by more than `low`. The divergence is the total variation $|p - \mu|$ or the
    KL of the two-way choice "this token or another", $\mathrm{KL}(\mu \| p)$. Unlike a ratio, it leaves unlikely tokens
    free and holds likely ones. A dropped token has neither loss nor gradient; all others have $-\rho A \nabla \log
    \pi$. The paper measures from the tokens' writer: anchor `behavior`. Defaults are the paper's for `tv` (0.15;
    for `kl` it takes 0.05) and its cap of 20; verl's own defaults are 0.2 and a cap of 3.

    Attributes:
        divergence: in what the distance is measured: total variation, or binary KL in nats.
        low: largest distance below the anchor where the advantage is negative.
        high: largest distance above the anchor where the advantage is positive.
        cap: largest ratio that weighs a gradient; above 1.

    Example:
        >>> now, anchor = torch.tensor([[0.6, 0.02]]).log(), torch.tensor([[0.4, 0.01]]).log()
        >>> logprobs = LogProbs(current=now, anchor=anchor, behavior=anchor)
        >>> DPPO()(logprobs.log_ratio, torch.tensor([[1.0, 1.0]]), logprobs)  # 0.6 - 0.4 > 0.15; else -2 log 2
        tensor([[-0.0000, -1.3863]])
    """

    token_local: ClassVar[bool] = True

    divergence: Literal["tv", "kl"] = "tv"
    low: Annotated[float, Field(ge=0)] = 0.15
    high: Annotated[float, Field(ge=0)] = 0.15
    cap: Annotated[float, Field(gt=1)] = 20.0

    @property
    def formula(self) -> str:
        """Loss of a token; sg stops the gradient, kl is that of two binary choices."""
        now = r"\pi_\theta(o_{it})"
        then = rf"{now} \cdot e^{{-d_{{it}}}}"
        kl = rf"\operatorname{{kl}}({then}, {now}) \cdot \mathrm{{sign}}(d_{{it}})"
        moved = rf"{now} - {then}" if self.divergence == "tv" else kl
        return (
            rf"-\operatorname{{sg}}[\min(\rho_{{it}}, {number(self.cap)})] \cdot A_i \cdot \log \rho_{{it}}"
            rf"\text{{, but 0 where }} A_i > 0 \text{{ and }} D_{{it}} > {number(self.high)}"
            rf" \text{{ or }} A_i < 0 \text{{ and }} D_{{it}} < {number(-self.low)} \text{{, with }} D_{{it}} = {moved}"
        )

    def clipped(self, log_ratio: PerToken, advantages: PerToken, logprobs: LogProbs) -> TokenMask:
        """The tokens dropped."""
        moved = self._moved(logprobs.current.detach(), logprobs.anchor)
        return torch.where(advantages > 0, moved > self.high, (advantages < 0) & (moved < -self.low))

    def __call__(self, log_ratio: PerToken, advantages: PerToken, logprobs: LogProbs) -> PerToken:
        """Loss of each token; see the class."""
        kept = torch.where(self.clipped(log_ratio, advantages, logprobs), 0, advantages)
        return -log_ratio.detach().clamp(max=log(self.cap)).exp() * kept * log_ratio

    def _moved(self, now: PerToken, then: PerToken) -> PerToken:
        """The distance from the anchor, with the sign of the move."""
        if self.divergence == "tv":
            return now.exp() - then.exp()
        now, then = now.clamp(max=CERTAIN), then.clamp(max=CERTAIN)
        others = torch.log(-torch.expm1(then)) - torch.log(-torch.expm1(now))
        return torch.sign(now - then) * (then.exp() * (then - now) - torch.expm1(then) * others)
