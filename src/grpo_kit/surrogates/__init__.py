"""Surrogates: the loss whose gradient moves the policy along its advantages."""

from typing import Protocol, runtime_checkable

from grpo_kit.logprobs import LogProbs
from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken
from grpo_kit.surrogates.clip import Clip
from grpo_kit.surrogates.reinforce import Reinforce


@runtime_checkable
class Surrogate(Protocol):
    """The log-ratio, detached advantages and the record of log-probabilities in, a loss per token out (minimised)."""

    def __call__(self, log_ratio: PerToken, advantages: PerToken, logprobs: LogProbs | None = None) -> PerToken:
        """Loss of each token; its inputs are already selected by the mask."""
        ...


SURROGATES = Role("surrogates", Surrogate, {"reinforce": Reinforce, "clip": Clip})

__all__ = ["SURROGATES", "Clip", "Reinforce", "Surrogate"]
