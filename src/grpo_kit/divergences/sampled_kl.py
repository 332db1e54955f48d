"""KL divergence from the sampled tokens alone, each estimator with its true gradient."""

from typing import Literal

import torch

from grpo_kit.parts import part
from grpo_kit.shapes import PerToken

LATEX = {"k1": "d_{it}", "k2": r"\frac{1}{2} \cdot d_{it}^{2}", "k3": "e^{-d_{it}} - 1 + d_{it}"}


@part("sampled_kl")
class SampledKL:
    r"""KL to another policy $q$ from the sampled tokens, with $d = \log \pi(o_t) - \log q(o_t)$.

    An estimator has a value and, as a loss, a gradient, and the two need not belong to the same divergence
    (arXiv:2510.01555, arXiv:2512.21852). While the tokens come from $\pi$ itself, in expectation over each token:

    | estimator | loss | its value | its gradient |
    |---|---|---|---|
    | `k1` | $d$ | reverse KL | zero, whatever $q$ is |
    | `k2` | $\tfrac12 d^2$ | half the mean square of $d$ | reverse KL |
    | `k3` | $e^{-d} - 1 + d$ | reverse KL | *forward* KL |
    | `k1+`, `k3+` | value of `k1`, `k3` with the gradient of `k2` | reverse KL | reverse KL |

    The reverse KL is $\mathrm{KL}(\pi \| q)$, the forward one $\mathrm{KL}(q \| \pi)$, each for the states visited.
    `k2` and `k3` are never negative. `k1` is of use only with the term's `importance`, which alone makes a gradient
    right for tokens of another writer.

    In float32 the value of `k3` and `k3+` overflows to inf where $d < -88$, and so does the gradient of `k3`; the
    gradient of `k3+` is $d$ there, as everywhere.

    Attributes:
        estimator: one of the table.

    Example:
        >>> import torch
        >>> SampledKL(estimator="k3")(torch.tensor([[-1.0]]), torch.tensor([[-2.0]]))
        tensor([[0.3679]])
    """

    estimator: Literal["k1", "k2", "k3", "k1+", "k3+"] = "k2"

    @property
    def formula(self) -> str:
        """Loss of a token, from its log-ratio; sg stops the gradient."""
        value = LATEX[self.estimator.removesuffix("+")]
        if not self.estimator.endswith("+"):
            return value
        return rf"\operatorname{{sg}}[{value} - {LATEX['k2']}] + {LATEX['k2']}"

    def __call__(self, current: PerToken, other: PerToken) -> PerToken:
        """Loss of each token; see the class."""
        log_ratio = current - other
        half_square = log_ratio.square() / 2
        if self.estimator == "k2":
            return half_square
        value = log_ratio if self.estimator.startswith("k1") else torch.expm1(-log_ratio) + log_ratio
        if self.estimator.endswith("+"):
            value = value.detach() + (half_square - half_square.detach())
        return value
