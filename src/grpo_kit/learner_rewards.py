"""What a learner maximizes on each row, and the finer views of it that an advantage may ask for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange

from grpo_kit.batch import Experience, Rewards, Rollouts
from grpo_kit.masked import group_sum
from grpo_kit.shapes import GroupId, PerRow, PerToken, RowMask, TokenMask


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerRewards:
    """One learner's rewards of a batch.

    Attributes:
        total: the weighted sum of its reward components a row; NaN is a missing reward.
        weights: of the components, by name.
        kept: True for the rows it is trained on.
        counted: True where a token counts in the loss; a part of the tokens written.
    """

    total: PerRow
    weights: Mapping[str, float]
    kept: RowMask
    counted: TokenMask


def of_advantage(
    asked: Collection[str], experience: Experience, rewards: LearnerRewards, *, seen: RowMask
) -> dict[str, Any]:
    """What an advantage asks for by name (`**` for everything); rewards of rows that it may not see are NaN."""
    rollouts = experience.rollouts
    offers = {
        "mask": lambda: rollouts.mask,
        "weights": lambda: rewards.weights,
        "components": lambda: {
            name: torch.where(seen, experience.rewards.components[name].per_row(), torch.nan)
            for name in rewards.weights
        },
        "token_rewards": lambda: torch.where(
            rearrange(seen, "row -> row 1"), token_rewards(experience.rewards, rewards.weights, rollouts), torch.nan
        ),
        "greedy_rewards": lambda: greedy_rewards(rewards.total, rollouts.groups, rollouts.greedy),
    }
    return {name: make() for name, make in offers.items() if name in asked or "**" in asked}


def token_rewards(rewards: Rewards, weights: Mapping[str, float], rollouts: Rollouts) -> PerToken:
    """The weighted sum of the components token by token; the reward of a whole row stands on its last token.

    A component that abstains on a row is left out there. The sum over a row is its total, for rows with a token.
    """
    position = torch.arange(rollouts.mask.shape[1], device=rollouts.mask.device)
    last = position == rearrange(rollouts.lengths - 1, "row -> row 1")
    found = torch.zeros(rollouts.mask.shape, device=rollouts.mask.device, dtype=torch.get_default_dtype())
    for name, weight in weights.items():
        component = rewards.components[name]
        values = component.values.to(found)
        if values.ndim == 1:
            values = torch.where(last, rearrange(values, "row -> row 1"), 0)
        abstained = rearrange(component.abstained.to(found.device), "row -> row 1")
        found = found + torch.where(rollouts.mask & ~abstained, weight * values, 0)
    return found


def greedy_rewards(total: PerRow, groups: GroupId, greedy: RowMask) -> PerRow:
    """For each row the reward of its group's greedy completion (the mean of several); NaN without one."""
    known = greedy & ~total.isnan()
    return group_sum(torch.where(known, total, 0), groups) / group_sum(known.to(total), groups)
