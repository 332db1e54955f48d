"""Divergences: how far the current policy is from another one."""

from typing import Protocol, runtime_checkable

from grpo_kit.divergences.adaptive_coefficient import AdaptiveCoefficient
from grpo_kit.divergences.forward_kl import ForwardKL
from grpo_kit.divergences.jsd import JSD
from grpo_kit.divergences.reverse_kl import ReverseKL
from grpo_kit.divergences.sampled_kl import SampledKL
from grpo_kit.divergences.top_k import TopK
from grpo_kit.divergences.top_k_cross_entropy import TopKCrossEntropy
from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken


@runtime_checkable
class Divergence(Protocol):
    """Log-probabilities of the current policy (with gradient) and of another (fixed) in, a loss per token out.

    They are those of the sampled tokens. A part whose class has `over_vocabulary = True` is given one more axis, the
    events of the two next-token distributions: the vocabulary where its `top_k` is None, else what
    `top_k.events(current, top)` makes of all log-probabilities of the current policy and the `top_k.k` likeliest tokens
    of the other.
    """

    def __call__(self, current: PerToken, other: PerToken) -> PerToken:
        """Loss of each token; its inputs are already selected by the mask."""
        ...


DIVERGENCES = Role(
    "divergences",
    Divergence,
    {
        "sampled_kl": SampledKL,
        "forward_kl": ForwardKL,
        "reverse_kl": ReverseKL,
        "jsd": JSD,
        "top_k_cross_entropy": TopKCrossEntropy,
    },
)

__all__ = [
    "DIVERGENCES",
    "JSD",
    "AdaptiveCoefficient",
    "Divergence",
    "ForwardKL",
    "ReverseKL",
    "SampledKL",
    "TopK",
    "TopKCrossEntropy",
]
