"""Replay: rows that were written and scored beforehand, from a buffer on disk."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from einops import reduce
from pydantic import Field, model_validator

from grpo_kit.batch import Prompts, Rollouts, Sampled
from grpo_kit.buffers.refresh import Refresh, in_use, is_frozen, renew
from grpo_kit.buffers.store import Buffer
from grpo_kit.data import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.parts import part
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.role import SAMPLERS, Sampler
from grpo_kit.signals import SignalKey


@part("replay")
class Replay:
    r"""Rows that another sampler wrote before the first step, read from a buffer; the policies' scores come with them.

    Semi-OPD (arXiv:2610.11291): the student's rows are written once, by its initial weights, and scored by the teacher
    once. What depends on the current student (its log-probabilities, and so the advantage) is recomputed at every
    update. A teacher all of whose scores are in the buffer is not loaded to train.

    Every epoch over the prompts gives each prompt the same rows. `grpo-kit rollout` fills the buffer; `grpo-kit run`
    fills what is missing. It belongs to one set of weights, tokenizer, prompts and sampling settings, and another
    recipe's is refused. Everything else that is asked of it, such as `samples`, is the inner sampler's.

    Attributes:
        buffer: its folder.
        of: the sampler that writes the rows.
        prompts: how many prompts of the data are in it, the first; all without it. Only these are trained on.
        prompts_per_shard: prompts whose rows are written to disk together.
        seed: decides the rows; the recipe's own decides the order of the prompts and may vary over one buffer.
        max_age: oldest rows used, in optimizer steps that their writer took since; a group with an older row is left
            out, and a step without any group ends the run. Rows written at one time by one policy are of one age. Only
            with `refresh` can rows be younger than the run.
        max_gib: size on disk in GiB that the buffer may have; above 0. Its filling ends early where it would become
            larger, as far as the shards so far tell. Each writing anew has as much, and old ones stay for as long as a
            checkpoint refers to them.
        refresh: when the buffer is written anew by the policies as they are then; never without it, as in the paper.
    """

    supplies_signals: ClassVar[bool] = True
    """Says that its rows bring scores."""

    buffer: Annotated[str, Field(min_length=1)]
    of: Annotated[Sampler, SAMPLERS]
    prompts: Annotated[int, Field(ge=1)] | None = None
    prompts_per_shard: Annotated[int, Field(ge=1)] = 256
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    max_age: Annotated[int, Field(ge=0)] | None = None
    max_gib: Annotated[float, Field(gt=0)] = 100.0
    refresh: Refresh | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> "Replay":
        if getattr(self.of, "supplies_signals", False):
            raise ValueError("of: a sampler that supplies signals with its rows (replay) cannot fill a buffer")
        if self.max_age is not None and self.refresh is None:
            raise ValueError("max_age: without refresh no row is ever written again, and all would soon be too old")
        return self

    @property
    def inner(self) -> dict[str, Sampler]:
        """The sampler that writes the rows, by its key."""
        return {"of": self.of}

    def __getattr__(self, name: str) -> Any:
        """What the inner sampler says of itself: its policies, samples, temperature, ..."""
        if name.startswith("_") or name in self.__dataclass_fields__:
            raise AttributeError(name)
        return getattr(self.of, name)

    def __call__(
        self,
        prompts: Prompts,
        policies: Mapping[str, Policy],
        generator: torch.Generator,
        details: Mapping[str, Detail] | None = None,
    ) -> Sampled:
        """The rows of these prompts with frozen policies' scores: those in `details`, by default all there are."""
        device = next((policy.device for policy in policies.values()), torch.device("cpu"))
        buffer = Buffer(Path(self.buffer)) if self.refresh is None else in_use(self.buffer)
        wanted = None if details is None else [name for name, detail in details.items() if detail.storable]
        rollouts, scores = buffer.take(prompts, device, wanted)
        metrics: dict[str, float] = {}
        if self.max_age is not None:
            kept = young_groups(rollouts, policies, self.max_age)
            metrics["sampler/too_old"] = 1 - len(kept) / len(rollouts)
            if not kept:
                raise ValueError(
                    f"sampler.max_age: every group has a row older than {self.max_age} optimizer steps of its writer. "
                    "Raise it, or refresh more often"
                )
            rollouts = rollouts.take(kept)
            width = rollouts.mask.shape[1]
            scores = {name: own.map(lambda values: values[kept, :width]) for name, own in scores.items()}
        signals = {SignalKey(name, 0): own for name, own in scores.items() if is_frozen(policies.get(name))}
        return Sampled(rollouts=rollouts, signals=signals, metrics=metrics)

    def renew(
        self, step: int, policies: Mapping[str, Policy], prompts: PromptSet, details: Mapping[str, Detail]
    ) -> dict[str, float]:
        """Before each step, by the loop: write the buffer anew where that is due; metrics of it."""
        if self.refresh is None:
            return {}
        return renew(self, self.refresh, step, policies, prompts, details)


def young_groups(rollouts: Rollouts, policies: Mapping[str, Policy], max_age: int) -> list[int]:
    """The rows of groups in which no token is older than so many updates of the policy that wrote it."""
    behavior = rollouts.behavior
    if behavior is None:
        return list(range(len(rollouts)))
    ages = [policies[own.policy].version - own.version if own.policy in policies else 0 for own in behavior.writers]
    old = torch.tensor([*(age > max_age for age in ages), False], device=rollouts.mask.device)  # NOBODY is the last
    too_old = reduce(old[behavior.writer] & rollouts.mask, "row token -> row", "any")
    dropped = set(rollouts.groups[too_old].tolist())
    return [row for row, group in enumerate(rollouts.groups.tolist()) if group not in dropped]
