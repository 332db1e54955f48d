"""What writing the rows of a buffer took: tokens, and the model FLOPs of writing and scoring them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from grpo_kit.batch import Rollouts
from grpo_kit.buffers.store import Buffer
from grpo_kit.data import PromptSet
from grpo_kit.flops import ModelFlops
from grpo_kit.policies import Policy


@dataclass(kw_only=True, slots=True)
class Cost:
    """What rows took that were written and scored outside the stages of a step.

    Attributes:
        tokens: that were written.
        flops: model FLOPs by policy and stage, `sample` or `score`.
    """

    tokens: int = 0
    flops: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, rollouts: Rollouts, policies: Mapping[str, Policy], scored: Iterable[str]) -> None:
        """Add some rows and their scores under policies, each by its name as often as it scored them."""
        self.tokens += int(rollouts.mask.sum())
        for name in dict.fromkeys(own.policy for own in rollouts.behavior.writers) if rollouts.behavior else ():
            self._count(name, "sample", ModelFlops.of(policies[name].model).sample(rollouts, name))
        for name in scored:
            self._count(name, "score", ModelFlops.of(policies[name].model).score(rollouts))

    def add_buffer(
        self, buffer: Buffer, prompts: PromptSet, policies: Mapping[str, Policy], scored: Iterable[str]
    ) -> None:
        """Add all rows of a whole buffer, shard after shard; see `add`."""
        scored, each = tuple(scored), buffer.prompts_per_shard
        for first in range(0, len(prompts), each):
            some = prompts.take(range(first, min(first + each, len(prompts))))
            rollouts, _ = buffer.take(some, torch.device("cpu"), ())
            self.add(rollouts, policies, scored)

    def by_policy(self) -> dict[str, float]:
        """FLOPs of both stages together."""
        found: dict[str, float] = {}
        for (policy, _), flops in self.flops.items():
            found[policy] = found.get(policy, 0.0) + flops
        return found

    def _count(self, policy: str, stage: str, flops: float) -> None:
        self.flops[policy, stage] = self.flops.get((policy, stage), 0.0) + flops
