"""Advantages around the group's mean against loops written from the papers: OPO, MaxRL, GPG."""

from itertools import product

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from advantages.loops import drawn_lengths, flat, mean, members
from grpo_kit import GPG, OPO, GroupMean, MaxRL
from laws.data import grouped_rewards
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")
ONE_GROUP = torch.zeros(4, dtype=torch.long)


@given(st.data())
def test_opo_weighs_the_baseline_by_length(data):
    rewards, groups = grouped_rewards(data.draw)
    lengths, mask = drawn_lengths(data.draw, len(rewards))
    expected = []
    for row, reward in enumerate(rewards.tolist()):
        own = [other for other in range(len(rewards)) if groups[other] == groups[row]]
        weighted = sum(lengths[other] * float(rewards[other]) for other in own)
        expected.append(
            0.0 if flat(members(rewards, groups, row)) else reward - weighted / sum(map(lengths.__getitem__, own))
        )
    torch.testing.assert_close(OPO()(rewards, groups, mask=mask), torch.tensor(expected), **EXACT)


@given(st.data())
def test_opo_with_rows_of_one_length_is_the_group_mean(data):
    rewards, groups = grouped_rewards(data.draw)
    mask = torch.ones(len(rewards), 3, dtype=torch.bool)
    torch.testing.assert_close(OPO()(rewards, groups, mask=mask), GroupMean()(rewards, groups), **EXACT)


def test_opo_leaves_the_tokens_of_a_missing_reward_out():
    rewards, mask = torch.tensor([1.0, 0.0, torch.nan, 1.0]), torch.arange(5) < torch.tensor([1, 2, 5, 1])[:, None]
    # (1 x 1 + 2 x 0 + 1 x 1) / (1 + 2 + 1) = 1/2
    expected = torch.tensor([0.5, -0.5, 0.0, 0.5])
    torch.testing.assert_close(OPO()(rewards, ONE_GROUP, mask=mask), expected, **EXACT)


def test_opo_of_a_group_without_tokens_is_finite():
    found = OPO()(torch.tensor([1.0, 0.0]), ONE_GROUP[:2], mask=torch.zeros(2, 3, dtype=torch.bool))
    assert found.isfinite().all()


@given(st.data())
def test_max_rl(data):
    rewards, groups = grouped_rewards(data.draw)
    rewards = rewards.abs()
    expected = []
    for row, reward in enumerate(rewards.tolist()):
        own = members(rewards, groups, row)
        expected.append(0.0 if flat(own) else (reward - mean(own)) / (mean(own) + 0.125))
    torch.testing.assert_close(MaxRL(eps=0.125)(rewards, groups), torch.tensor(expected), **EXACT)


def test_max_rl_leaves_a_missing_reward_out_of_the_mean():
    # mean 2/3: 1/3 over 2/3, and -2/3 over 2/3
    found = MaxRL(eps=1e-300)(torch.tensor([1.0, torch.nan, 0.0, 1.0]), ONE_GROUP)
    torch.testing.assert_close(found, torch.tensor([0.5, 0.0, -1.0, 0.5]), **EXACT)


def test_max_rl_gives_zero_where_no_row_is_right():
    assert (MaxRL()(torch.zeros(4), ONE_GROUP) == 0).all()


def test_max_rl_refuses_a_negative_reward_by_its_value():
    with pytest.raises(ValueError, match=r"lowest is -0\.25.*group_mean"):
        MaxRL()(torch.tensor([1.0, torch.nan, -0.25, 0.0]), ONE_GROUP)
    with pytest.raises(ValidationError, match="eps"):
        MaxRL(eps=0.0)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_max_rl_is_the_gradient_of_the_pass_rates_over_k(size):
    """By enumeration of all groups of a policy over three answers, the last of them right."""
    logits = torch.tensor([0.3, -0.2, -0.7]).requires_grad_()
    logprobs = logits.log_softmax(0)
    total = torch.zeros(())
    for answers in product(range(3), repeat=size):
        rewards = torch.tensor([float(answer == 2) for answer in answers])
        advantages = MaxRL(eps=1e-300)(rewards, torch.zeros(size, dtype=torch.long))
        own = logprobs[list(answers)]
        total = total + own.sum().exp().detach() * (advantages * own).mean()
    wrong = 1 - logprobs[2].exp()
    passed = sum((1 - wrong**k) / k for k in range(1, size))
    found, stated = torch.autograd.grad(total, logits, retain_graph=True), torch.autograd.grad(passed, logits)
    torch.testing.assert_close(found, stated, **EXACT)


@given(st.data())
def test_gpg_counts_the_rows_of_groups_with_spread(data):
    rewards, groups = grouped_rewards(data.draw)
    idle = [flat(members(rewards, groups, row)) for row in range(len(rewards))]
    alpha = len(rewards) / max(1, len(rewards) - sum(idle))
    expected = [
        0.0 if idle[row] else alpha * (reward - mean(members(rewards, groups, row)))
        for row, reward in enumerate(rewards.tolist())
    ]
    torch.testing.assert_close(GPG()(rewards, groups), torch.tensor(expected), **EXACT)


def test_gpg_with_groups_of_one_size_counts_groups():
    rewards, groups = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]), torch.tensor([0, 0, 1, 1, 2, 2])
    # 3 groups, 2 of them without spread: 3 / (3 - 2) = 3; verl would divide by its 3 rewards that are not 0: 6 / 3
    torch.testing.assert_close(GPG()(rewards, groups), torch.tensor([1.5, -1.5, 0, 0, 0, 0]), **EXACT)


def test_gpg_does_not_count_a_missing_reward():
    rewards = torch.tensor([1.0, 0.0, torch.nan, 1.0, torch.nan])
    # 3 rows with a reward, 2 of them in a group with spread
    expected = torch.tensor([0.75, -0.75, 0.0, 0.0, 0.0])
    torch.testing.assert_close(GPG()(rewards, torch.tensor([0, 0, 0, 1, 1])), expected, **EXACT)
