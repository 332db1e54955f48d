"""Surrogates: the loss whose gradient moves the policy along its advantages."""

from typing import Any, Protocol, runtime_checkable

from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken
from grpo_kit.surrogates.cispo import CISPO
from grpo_kit.surrogates.clip import Clip
from grpo_kit.surrogates.dppo import DPPO
from grpo_kit.surrogates.gmpo import GMPO
from grpo_kit.surrogates.reinforce import Reinforce
from grpo_kit.surrogates.sapo import SAPO


@runtime_checkable
class Surrogate(Protocol):
    """The log-ratio and detached advantages in, a loss per token out (minimized).

    A surrogate that needs more names it as a parameter: `mask` (TokenMask, the tokens that count, for one that looks at
    whole rows: it says how its loss spreads over the row's tokens), `logprobs` (LogProbs, the record of the three).
    One with a bound may say by a method `clipped`, called with the same inputs, which tokens the bound acts on; the
    metric `clip_fraction` is their share. One whose loss of a token depends on that token alone says so by an attribute
    `token_local` that is True; it is then called with some tokens of the batch at a time.
    """

    def __call__(self, log_ratio: PerToken, advantages: PerToken, *args: Any, **asked: Any) -> PerToken:
        """Loss of each token; its inputs are already selected by the mask."""
        ...


SURROGATES = Role(
    "surrogates",
    Surrogate,
    {"reinforce": Reinforce, "clip": Clip, "cispo": CISPO, "sapo": SAPO, "gmpo": GMPO, "dppo": DPPO},
)

__all__ = ["SURROGATES", "CISPO", "Clip", "DPPO", "GMPO", "Reinforce", "SAPO", "Surrogate"]
