"""Which sampled rows are trained on, and which groups a refill keeps."""

from collections.abc import Mapping

import torch

from grpo_kit.batch import Experience
from grpo_kit.memory import Memory
from grpo_kit.recipe import Recipe, RefillSpec
from grpo_kit.shapes import PerRow, RowMask


def select_rows(recipe: Recipe, experience: Experience, memory: Memory, generator: torch.Generator) -> RowMask:
    """The rows to train on: those the selection keeps, all without one, and the rows of a data set in any case."""
    rollouts, settings = experience.rollouts, recipe.selection
    if settings is None:
        return ~rollouts.greedy
    rewards = sampled_rewards(experience, settings.rewards)
    return memory.call("selection", settings.rule, rewards, rollouts.groups, generator=generator) | ~rollouts.sampled


def kept_groups(
    settings: RefillSpec, experience: Experience, memory: Memory, generator: torch.Generator
) -> tuple[int, ...]:
    """The groups that a refill keeps, in the order sampled; ValueError when its rule keeps a part of one."""
    groups = experience.rollouts.groups
    rewards = sampled_rewards(experience, settings.rewards)
    kept = memory.call("refill", settings.rule, rewards, groups, generator=generator)
    found: list[int] = []
    for group in dict.fromkeys(groups.tolist()):
        own = (groups == group) & ~rewards.isnan()
        count = int((own & kept).sum())
        if 0 < count < int(own.sum()):
            raise ValueError(
                f"refill.rule keeps {count} of the {int(own.sum())} rewarded rows of group {group}, and a refill keeps "
                "or drops a group whole. Use kind 'spread' or a rule like it; [selection] keeps some rows of a group"
            )
        if count:
            found.append(group)
    return tuple(found)


def sampled_rewards(experience: Experience, weights: Mapping[str, float]) -> PerRow:
    """The weighted sum of reward components of the sampled rows; NaN for greedy ones and those of a data set."""
    rollouts = experience.rollouts
    rewards = experience.rewards.total(weights).to(rollouts.groups.device)
    return torch.where(rollouts.greedy | ~rollouts.sampled, torch.nan, rewards)
