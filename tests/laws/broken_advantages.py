"""Advantages that are broken in what they ask for beyond rewards and groups, each with the law that it breaks."""

import torch

from grpo_kit import GroupMean
from grpo_kit.masked import group_sum
from laws import advantages


def shifted_over_tokens(rewards, groups, mask):
    """Whitened over the tokens with its mean, which is not 0 when lengths differ (verl's REINFORCE++ baseline)."""
    centered = GroupMean()(rewards, groups)
    lengths = mask.sum(1) * ~rewards.isnan()
    return torch.where(rewards.isnan(), 0, centered - (lengths * centered).sum() / lengths.sum().clamp(min=1))


def absent_lengths_count(rewards, groups, mask):
    """A length-weighted baseline whose divisor counts the tokens of rows without a reward."""
    lengths = mask.sum(1).to(rewards)
    baseline = group_sum(lengths * rewards.nan_to_num(0), groups) / group_sum(lengths, groups)
    return torch.where(rewards.isnan(), 0, rewards - baseline)


def first_row_of_the_batch(rewards, groups, greedy_rewards):
    """The greedy reward of the batch's first prompt for all of them."""
    return rewards.nan_to_num(0) - greedy_rewards[0]


def mean_of_its_own_batch_with_absent_rows(rewards, groups, components):
    """A component's missing values count as 0 in its mean."""
    values = components["task"].nan_to_num(0)
    return torch.where(
        rewards.isnan(), 0, values - group_sum(values, groups) / group_sum(torch.ones_like(values), groups)
    )


BROKEN = [
    (advantages.an_equal_group_gets_zero_beside_others, shifted_over_tokens),
    (advantages.absent_rows_change_nothing, absent_lengths_count),
    (advantages.groups_do_not_see_each_other, first_row_of_the_batch),
    (advantages.rows_may_be_permuted, first_row_of_the_batch),
    (advantages.absent_rows_change_nothing, mean_of_its_own_batch_with_absent_rows),
]
