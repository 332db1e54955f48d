"""What a sampler is, and the table of its kinds; apart from the kinds, since some of them hold others."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch

from grpo_kit.batch import Prompts, Rollouts, Sampled
from grpo_kit.parts import Role
from grpo_kit.policies.policy import Policy


@runtime_checkable
class Sampler(Protocol):
    """Prompts, policies and a generator in, rollouts with their behavior policy out.

    A sampler that knows what policies say of its rows gives `Sampled`, the rollouts with those signals. It names the
    policies that it calls in `reads`, and may ask for `details`: how much is read of each policy that nothing moves,
    and for `epoch`: the passes over the data finished before this step, as a number that grows from 0 (the prompts
    drawn over the number of prompts). One that holds other samplers names them in `inner`, by their keys.
    """

    def __call__(
        self, prompts: Prompts, policies: Mapping[str, Policy], generator: torch.Generator
    ) -> Rollouts | Sampled:
        """Write completions of every prompt."""
        ...


SAMPLERS = Role("samplers", Sampler, {})
