"""Advantages in float32 and below: an offset of the rewards costs no digits, and counts do not saturate."""

import pytest
import torch

from grpo_kit import GPG, OPO, GroupMean, LeaveOneOut, MaxRL, PerComponent, ReinforcePP, ReinforcePPBaseline
from grpo_kit.advantages.live import is_live
from laws.advantages import called
from laws.table.advantages import PARTS
from tolerances import FLOAT32

OFFSET = 1e6
REWARDS = OFFSET + torch.tensor([0.0625, 0.125, 0.125, 0.0, 0.25, 0.5])
GROUPS = torch.tensor([0, 0, 0, 1, 1, 1])
MASK = torch.arange(3) < torch.tensor([1, 3, 2, 2, 1, 3])[:, None]
SHIFTED = [
    *(GroupMean(scale=scale) for scale in ("none", "group", "batch")),
    LeaveOneOut(),
    GPG(),
    OPO(),
    ReinforcePP(),
    ReinforcePPBaseline(),
    ReinforcePPBaseline(shift=True),
    PerComponent(),
]


@pytest.mark.parametrize("part", SHIFTED, ids=repr)
def test_an_offset_costs_no_digits(part):
    """Neighbors of 1e6 in float32 are 1/16 apart, and so would be a mean taken there."""
    double = REWARDS.double()
    near = _with_all(part, double - OFFSET)
    torch.testing.assert_close(_with_all(part, REWARDS), near.float(), **FLOAT32)


def _with_all(part, rewards):
    """The advantages of rewards that stand on the last token, and of the only component."""
    last = torch.arange(3) == MASK.sum(1, keepdim=True) - 1
    by_token = torch.where(last, rewards[:, None], 0)
    if isinstance(part, ReinforcePP):
        return part(rewards, GROUPS, token_rewards=by_token, mask=MASK)
    if isinstance(part, PerComponent):
        return part(rewards, GROUPS, components={"a": rewards}, weights={"a": 1.0}, state={})[0]
    return part(rewards, GROUPS, mask=MASK) if isinstance(part, OPO | ReinforcePPBaseline) else part(rewards, GROUPS)


def test_shifted_group_means_by_hand():
    # less 1e6: 1/16, 1/8, 1/8 with mean 5/48
    expected = torch.tensor([-2 / 48, 1 / 48, 1 / 48])
    torch.testing.assert_close(GroupMean()(REWARDS[:3], GROUPS[:3]), expected, rtol=1e-6, atol=0.0)
    # one of 8 is 5/256 above: it is 7/8 of that above the mean, and the deviation is sqrt(1/8) of that
    rewards = torch.full((8,), 1e4)
    rewards[-1] += 5 / 256
    found = GroupMean(scale="group")(rewards, torch.zeros(8, dtype=torch.long))
    expected = torch.tensor([-1 / 8] * 7 + [7 / 8]) * 8**0.5
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("part", [GroupMean(), LeaveOneOut(), GPG(), OPO(), MaxRL()], ids=repr)
def test_counts_of_many_half_precision_rewards_do_not_saturate(part, dtype):
    """In bfloat16 256 + 1 is 256, and so were the mean 256 / 512; in float16 that happens at 2048."""
    half = 257 if dtype == torch.bfloat16 else 2049
    rewards = torch.cat([torch.ones(half), torch.zeros(half)]).to(dtype)
    given = {"mask": torch.ones(2 * half, 1, dtype=torch.bool)} if isinstance(part, OPO) else {}
    found = part(rewards, torch.zeros(2 * half, dtype=torch.long), **given)
    scale = {LeaveOneOut: 2 * half / (2 * half - 1), MaxRL: 2.0}.get(type(part), 1.0)
    torch.testing.assert_close(found, scale * torch.tensor([0.5] * half + [-0.5] * half), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if not is_live(part)])
def test_advantages_are_float32_at_least(name, dtype):
    rewards, groups = torch.tensor([1.0, 0.0, 0.5], dtype=dtype), torch.tensor([0, 0, 0])
    found = called(PARTS[name], rewards, groups)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found.double(), called(PARTS[name], rewards.double(), groups), **FLOAT32)
