"""Selections that are broken as trainers' filters have been."""

from itertools import cycle

import torch

from grpo_kit.masked import group_sum
from laws import selections


def first_two(rewards, groups):
    """Keeps the first rows of the batch, whatever their group."""
    return torch.arange(len(rewards)) < 2


def top_of_nan(rewards, groups):
    """NaN sorts as the largest value, so that a missing reward is the best (torch.topk)."""
    kept = torch.zeros_like(rewards, dtype=torch.bool)
    kept[rewards.topk(min(2, len(rewards))).indices] = True
    return kept


first_two.keep = top_of_nan.keep = 3


def one_too_many(rewards, groups):
    """Keeps `keep` rows and whatever ties with the last of them."""
    kept = torch.zeros_like(rewards, dtype=torch.bool)
    for group in groups.unique():
        own = rewards[groups == group]
        kept[groups == group] = own >= own.topk(min(one_too_many.keep, len(own))).values[-1]
    return kept


one_too_many.keep = 2


def deviation_above_zero(rewards, groups):
    """The mean of equal float32 rewards is off by a rounding, so that their deviation is not 0 (NeMo-RL#4158)."""
    values = 1.3 * torch.ones_like(rewards).float() + rewards.float()  # as a sum of components in float32
    means = group_sum(values, groups) / group_sum(torch.ones_like(values), groups)
    return group_sum((values - means).square(), groups) > 0


def mean_within_bounds(rewards, groups):
    """A group is dropped by its mean, 0 or 1; constant groups between stay (OpenRLHF#1272)."""
    means = group_sum(rewards, groups) / group_sum(torch.ones_like(rewards), groups)
    return (means > 0) & (means < 1)


TURN = cycle((True, False))


def from_a_state_of_its_own(rewards, groups, *, generator):
    """Goes by what it remembers and not by the generator it is given: all rows, then none."""
    return torch.full_like(groups, next(TURN), dtype=torch.bool)


BROKEN = [
    (selections.groups_do_not_see_each_other, top_of_nan),
    (selections.rows_may_be_permuted, first_two),
    (selections.absent_rows_change_nothing, top_of_nan),
    (selections.small_groups_are_kept_whole, top_of_nan),
    (selections.keep_is_the_most_of_a_group, one_too_many),
    (selections.a_group_is_kept_or_dropped_whole, deviation_above_zero),
    (selections.a_group_is_kept_or_dropped_whole, mean_within_bounds),
    (selections.the_same_generator_keeps_the_same_rows, from_a_state_of_its_own),
]
