"""The group's mean and the mean of the others against loops written from the papers."""

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from advantages.loops import deviation, mean, members
from grpo_kit import GroupMean, LeaveOneOut
from laws.data import grouped_rewards
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")


def group_mean(rewards, groups, scale, eps):
    """GRPO (2402.03300) and Dr. GRPO (2503.20783), row by row; no spread is no advantage."""
    out = []
    for row, reward in enumerate(rewards.tolist()):
        own = members(rewards, groups, row)
        if max(own) == min(own):
            out.append(0.0)
            continue
        divisor = {"none": 1.0, "group": deviation(own) + eps, "batch": deviation(rewards.tolist()) + eps}
        out.append((reward - mean(own)) / divisor[scale] if len(own) > 1 else 0.0)
    return torch.tensor(out)


@pytest.mark.parametrize("scale", ["group", "batch"])
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_scaled_group_mean(scale, eps):
    @given(st.data())
    def run(data):
        rewards, groups = grouped_rewards(data.draw)
        found = GroupMean(scale=scale, eps=eps)(rewards, groups)
        if len(rewards) > 1:
            torch.testing.assert_close(found, group_mean(rewards, groups, scale, eps), **EXACT)

    run()


@given(st.data())
def test_group_mean(data):
    rewards, groups = grouped_rewards(data.draw)
    torch.testing.assert_close(GroupMean()(rewards, groups), group_mean(rewards, groups, "none", 0), **EXACT)


@given(st.data())
def test_leave_one_out_is_each_reward_minus_the_mean_of_the_others(data):
    rewards, groups = grouped_rewards(data.draw)
    expected = []
    for row, reward in enumerate(rewards.tolist()):
        others = members(rewards, groups, row)
        others.remove(reward)
        expected.append(reward - mean(others) if others else 0.0)
    torch.testing.assert_close(LeaveOneOut()(rewards, groups), torch.tensor(expected), **EXACT)


def test_leave_one_out_is_the_group_mean_times_n_over_n_minus_one():
    rewards, groups = torch.tensor([1.0, 0.0, 0.0, 5.0, 2.0]), torch.tensor([0, 0, 0, 1, 1])
    factor = torch.tensor([3 / 2] * 3 + [2.0] * 2)
    torch.testing.assert_close(LeaveOneOut()(rewards, groups), factor * GroupMean()(rewards, groups), **EXACT)


def test_a_missing_reward_is_left_out_of_the_deviation_too():
    rewards = torch.tensor([1.0, torch.nan, 0.0, 1.0])
    # mean 2/3, deviation sqrt((2 x 1/9 + 4/9) / 2) = 0.57735
    expected = torch.tensor([1 / 3, 0.0, -2 / 3, 1 / 3]) / (1 / 3) ** 0.5
    found = GroupMean(scale="group", eps=0.0)(rewards, torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(found, expected, **EXACT)


def test_eps_without_a_scale_is_refused():
    with pytest.raises(ValidationError, match="eps"):
        GroupMean(eps=1e-4)
    assert GroupMean(scale="batch", eps=1e-4).eps == 1e-4


def test_an_unknown_scale_is_refused():
    with pytest.raises(ValidationError, match="scale"):
        GroupMean(scale="std")
