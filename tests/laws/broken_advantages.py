"""Advantages broken in ways that trainers shipped, each with the law that finds it."""

import torch

from grpo_kit import GroupMean
from grpo_kit.masked import group_sum
from laws import advantages, live_advantages


def plus_eps(rewards, groups):
    """(r - mean) / (std + 1e-8) without asking whether the group is flat (B001, trl#6365)."""
    out = torch.zeros_like(rewards)
    for group in groups.unique():
        own = rewards[groups == group]
        out[groups == group] = (own - own.mean()) / (own.std(unbiased=len(own) > 1) + 1e-8)
    return out


def raw_reward_alone(rewards, groups):
    """A group of one has mean 0 and deviation 1, so that its advantage is its reward (verl)."""
    one = group_sum(torch.ones_like(rewards), groups) == 1
    return torch.where(one, rewards, GroupMean()(rewards, groups))


def nan_alone(rewards, groups):
    """The unbiased deviation of one value is NaN (B002, trl#4662)."""
    out = torch.zeros_like(rewards)
    for group in groups.unique():
        own = rewards[groups == group]
        out[groups == group] = (own - own.mean()) / (((own - own.mean()).square().sum() / (len(own) - 1)).sqrt() + 1e-4)
    return out


def by_reshape(rewards, groups):
    """Rows are taken to come group after group (B031, R1-V#67)."""
    size = next(size for size in (4, 3, 2, 1) if len(rewards) % size == 0)
    rows = rewards.reshape(-1, size)
    return (rows - rows.mean(1, keepdim=True)).reshape(-1)


def missing_is_zero(rewards, groups):
    """A reward that is None becomes 0 and shifts the baseline of its siblings (B003, trl#5902)."""
    return GroupMean()(rewards.nan_to_num(0), groups)


def one_nan_for_all(rewards, groups):
    """A plain mean over the batch, which one NaN silences (B004, ms-swift#8123)."""
    return rewards - rewards.mean()


def no_baseline(rewards, groups):
    """The reward itself."""
    return rewards


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


class Live:
    """A live advantage of a function of both log-probabilities, without a control variate."""

    def __init__(self, function):
        self.function, self.__name__ = function, function.__name__

    def __call__(self, current, teacher):
        return self.function(current, teacher)

    def baseline(self, current, teacher, counted):
        return None


def of_the_teacher_alone(current, teacher):
    """log pi_T as a reward: the student is to copy the mode."""
    return teacher


def with_a_gradient(current, teacher):
    """Not detached (B096): the loss then has a gradient through the advantage, too."""
    return teacher - current


def whitened(current, teacher):
    """Centered over the batch, the other tokens' log-ratios in it."""
    return (teacher - current - (teacher - current).mean()).detach()


def turned(current, teacher):
    """log student / teacher: away from the teacher."""
    return (current - teacher).detach()


BROKEN = [
    (live_advantages.nothing_at_an_equal_teacher, Live(of_the_teacher_alone)),
    (live_advantages.nothing_of_it_is_learned, Live(with_a_gradient)),
    (live_advantages.tokens_are_apart, Live(whitened)),
    (live_advantages.its_gradient_is_the_reverse_kl_s, Live(turned)),
    (live_advantages.its_mean_is_zero, Live(turned)),
    (advantages.equal_rewards_give_zero, plus_eps),
    (advantages.equal_rewards_give_zero, no_baseline),
    (advantages.a_group_of_one_gets_zero, raw_reward_alone),
    (advantages.a_group_of_one_gets_zero, nan_alone),
    (advantages.rows_may_be_permuted, by_reshape),
    (advantages.groups_do_not_see_each_other, one_nan_for_all),
    (advantages.absent_rows_change_nothing, missing_is_zero),
    (advantages.absent_rows_change_nothing, one_nan_for_all),
    (advantages.the_offset_of_rewards_does_not_matter, no_baseline),
    (advantages.the_offset_of_rewards_does_not_matter, raw_reward_alone),
    (advantages.an_equal_group_gets_zero_beside_others, shifted_over_tokens),
    (advantages.absent_rows_change_nothing, absent_lengths_count),
    (advantages.groups_do_not_see_each_other, first_row_of_the_batch),
    (advantages.rows_may_be_permuted, first_row_of_the_batch),
    (advantages.absent_rows_change_nothing, mean_of_its_own_batch_with_absent_rows),
]
