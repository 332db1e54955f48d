"""Samplers: policies write completions."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch

from grpo_kit.batch import Prompts, Rollouts
from grpo_kit.parts import Role
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.transformers import TransformersSampler


@runtime_checkable
class Sampler(Protocol):
    """Prompts, policies and a generator in, rollouts with their behavior policy out."""

    def __call__(self, prompts: Prompts, policies: Mapping[str, Policy], generator: torch.Generator) -> Rollouts:
        """Write completions of every prompt."""
        ...


SAMPLERS = Role("samplers", Sampler, {"transformers": TransformersSampler})

__all__ = ["SAMPLERS", "Sampler", "TransformersSampler"]
