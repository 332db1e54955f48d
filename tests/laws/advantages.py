"""Laws of advantages: zeros where there is nothing to tell, groups apart, rows in any order, absent rows absent."""

import torch
from hypothesis import strategies as st

from laws.data import grouped_rewards, order
from tolerances import EXACT


def equal_rewards_give_zero(advantage, draw):
    """Law 4: rewards alike in each group give exactly zero, at any offset and scale, in any precision."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    values = draw(st.lists(st.floats(-1e6, 1e6, width=32), min_size=len(sizes), max_size=len(sizes)))
    groups = torch.tensor([number for number, size in enumerate(sizes) for _ in range(size)])
    rewards = torch.tensor([value for value, size in zip(values, sizes, strict=True) for _ in range(size)], dtype=dtype)
    rows = order(draw, len(groups))
    assert (advantage(rewards[rows], groups[rows]) == 0).all()


def a_group_of_one_gets_zero(advantage, draw):
    """Law 4: there is nothing to compare a single row with."""
    rewards, _ = grouped_rewards(draw)
    assert (advantage(rewards, torch.arange(len(rewards))) == 0).all()


def groups_do_not_see_each_other(advantage, draw):
    """Law 4: a group's advantages are those it has alone."""
    rewards, groups = grouped_rewards(draw)
    together = advantage(rewards, groups)
    for group in groups.unique():
        own = groups == group
        torch.testing.assert_close(together[own], advantage(rewards[own], groups[own]), **EXACT)


def the_offset_of_rewards_does_not_matter(advantage, draw):
    """A baseline moves with the rewards."""
    rewards, groups = grouped_rewards(draw)
    offset = draw(st.sampled_from([-3.0, 0.5, 8.0]))
    torch.testing.assert_close(advantage(rewards + offset, groups), advantage(rewards, groups), rtol=1e-8, atol=1e-8)


def rows_may_be_permuted(advantage, draw):
    """Law 2: each row keeps its advantage wherever it stands."""
    rewards, groups = grouped_rewards(draw)
    rows = order(draw, len(rewards))
    torch.testing.assert_close(advantage(rewards[rows], groups[rows]), advantage(rewards, groups)[rows], **EXACT)


def absent_rows_change_nothing(advantage, draw):
    """Law 2: a row without a reward gets zero and leaves its siblings' advantages as they were."""
    rewards, groups = grouped_rewards(draw)
    missing = torch.tensor(draw(st.lists(st.sampled_from([7, 3, 5]), min_size=1, max_size=3)))
    rows = order(draw, len(rewards) + len(missing))
    more_rewards = torch.cat([rewards, torch.full((len(missing),), torch.nan)])[rows]
    more = advantage(more_rewards, torch.cat([groups, missing])[rows])
    assert (more[rows >= len(rewards)] == 0).all()
    back = torch.argsort(rows)[: len(rewards)]
    torch.testing.assert_close(more[back], advantage(rewards, groups), **EXACT)
