"""Laws of advantages: zeros where there is nothing to tell, groups apart, rows in any order, absent rows absent."""

import torch
from hypothesis import strategies as st

from grpo_kit import MaxRL
from grpo_kit.memory import Memory
from laws.data import grouped_rewards, order
from tolerances import EXACT


def called(advantage, rewards, groups):
    """The advantages by a part with all that it may ask for, each row's from the rewards of its own group alone.

    Rows have 1 to 3 tokens, the better the longer, and their reward on the last; two components make it up; the greedy
    completion was worse than the worst of its group. Of advantages a token, those of the first tokens are returned.
    """
    known = ~rewards.isnan()
    own = [rewards[(groups == group) & known] for group in groups]
    lowest = torch.stack([values.min() if len(values) else rewards.new_tensor(torch.nan) for values in own])
    lengths = 1 + (groups + (4 * (rewards - lowest)).nan_to_num(0).round().long()) % 3
    last = torch.arange(3) == lengths[:, None] - 1
    found = Memory().call(
        "",
        advantage,
        rewards,
        groups,
        mask=torch.arange(3) < lengths[:, None],
        token_rewards=torch.where(known[:, None], torch.where(last, rewards[:, None], 0), torch.nan),
        components={"task": 2 * rewards + groups, "style": rewards + 2 * groups},
        weights={"task": 2 / 3, "style": -1 / 3},
        greedy_rewards=lowest - 0.5,
    )
    return found if found.ndim == 1 else found[:, 0]


def allowed(advantage, numbers):
    """The numbers as rewards that an advantage takes: none below 0 for the one that refuses those."""
    return numbers.abs() if isinstance(advantage, MaxRL) else numbers


def drawn(advantage, draw):
    rewards, groups = grouped_rewards(draw)
    return allowed(advantage, rewards), groups


def equal_rewards_give_zero(advantage, draw):
    """Law 4: rewards alike in each group give exactly zero, at any offset and scale, in any precision."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    values = draw(st.lists(st.floats(-1e6, 1e6, width=32), min_size=len(sizes), max_size=len(sizes)))
    groups = torch.tensor([number for number, size in enumerate(sizes) for _ in range(size)])
    rewards = torch.tensor([value for value, size in zip(values, sizes, strict=True) for _ in range(size)], dtype=dtype)
    rows = order(draw, len(groups))
    assert (called(advantage, allowed(advantage, rewards)[rows], groups[rows]) == 0).all()


def an_equal_group_gets_zero_beside_others(advantage, draw):
    """Law 4: rewards alike in one group give exactly zero there, whatever the other groups are."""
    rewards, groups = drawn(advantage, draw)
    flat = torch.full((draw(st.integers(1, 4)),), draw(st.sampled_from([0.1, 1.0, 3.0])))
    rows = order(draw, len(rewards) + len(flat))
    together = called(
        advantage, torch.cat([rewards, flat])[rows], torch.cat([groups, torch.full((len(flat),), 5)])[rows]
    )
    assert (together[rows >= len(rewards)] == 0).all()


def a_group_of_one_gets_zero(advantage, draw):
    """Law 4: there is nothing to compare a single row with."""
    rewards, _ = drawn(advantage, draw)
    assert (called(advantage, rewards, torch.arange(len(rewards))) == 0).all()


def groups_do_not_see_each_other(advantage, draw):
    """Law 4: a group's advantages are those it has alone."""
    rewards, groups = drawn(advantage, draw)
    together = called(advantage, rewards, groups)
    for group in groups.unique():
        own = groups == group
        torch.testing.assert_close(together[own], called(advantage, rewards[own], groups[own]), **EXACT)


def the_offset_of_rewards_does_not_matter(advantage, draw):
    """A baseline moves with the rewards."""
    rewards, groups = drawn(advantage, draw)
    offset = allowed(advantage, torch.tensor(draw(st.sampled_from([-3.0, 0.5, 8.0]))))
    moved = called(advantage, rewards + offset, groups)
    torch.testing.assert_close(moved, called(advantage, rewards, groups), rtol=1e-8, atol=1e-8)


def rows_may_be_permuted(advantage, draw):
    """Law 2: each row keeps its advantage wherever it stands."""
    rewards, groups = drawn(advantage, draw)
    rows = order(draw, len(rewards))
    moved = called(advantage, rewards[rows], groups[rows])
    torch.testing.assert_close(moved, called(advantage, rewards, groups)[rows], **EXACT)


def absent_rows_change_nothing(advantage, draw):
    """Law 2: a row without a reward gets zero and leaves its siblings' advantages as they were."""
    rewards, groups = drawn(advantage, draw)
    missing = torch.tensor(draw(st.lists(st.sampled_from([7, 3, 5]), min_size=1, max_size=3)))
    rows = order(draw, len(rewards) + len(missing))
    more_rewards = torch.cat([rewards, torch.full((len(missing),), torch.nan)])[rows]
    more = called(advantage, more_rewards, torch.cat([groups, missing])[rows])
    assert (more[rows >= len(rewards)] == 0).all()
    back = torch.argsort(rows)[: len(rewards)]
    torch.testing.assert_close(more[back], called(advantage, rewards, groups), **EXACT)
