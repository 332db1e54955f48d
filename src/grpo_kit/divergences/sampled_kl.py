"""KL divergence from the sampled tokens alone, each estimator with its true gradient."""

from typing import Literal

from pydantic import model_validator

from grpo_kit.parts import part
from grpo_kit.shapes import PerToken


@part("sampled_kl")
class SampledKL:
    r"""KL to another policy $q$ from the sampled tokens, with $d = \log \pi(o_t) - \log q(o_t)$.

    `k2`: $\tfrac12 d^2$; while the tokens come from $\pi$, its expected gradient is exactly that of the reverse KL,
    $\mathrm{KL}(\pi \| q)$. `k3`: $e^{-d} - 1 + d$; its value is an unbiased, never negative estimate of the reverse
    KL, but its expected gradient is that of the *forward* KL, $\mathrm{KL}(q \| \pi)$ (arXiv:2510.01555,
    arXiv:2512.21852). `k1`, $d$ itself, has an expected gradient of zero, whatever $q$ is, and is refused as a loss.
    Each statement is per token, for the states visited.

    Attributes:
        estimator: `k2` or `k3`.

    Example:
        >>> import torch
        >>> SampledKL(estimator="k3")(torch.tensor([[-1.0]]), torch.tensor([[-2.0]]))
        tensor([[0.3679]])
    """

    estimator: Literal["k1", "k2", "k3"] = "k2"

    @model_validator(mode="after")
    def _k1_teaches_nothing(self) -> "SampledKL":
        if self.estimator == "k1":
            raise ValueError(
                "estimator 'k1' as a loss has an expected gradient of zero: the other policy has no influence. "
                "Use 'k2' (gradient of the reverse KL) or 'k3' (gradient of the forward KL)"
            )
        return self

    @property
    def formula(self) -> str:
        """Loss of a token, from its log-ratio."""
        return r"\frac{1}{2} \cdot d_{it}^{2}" if self.estimator == "k2" else r"e^{-d_{it}} - 1 + d_{it}"

    def __call__(self, current: PerToken, other: PerToken) -> PerToken:
        """Loss of each token; see the class."""
        log_ratio = current - other
        return log_ratio.square() / 2 if self.estimator == "k2" else (-log_ratio).exp() - 1 + log_ratio
