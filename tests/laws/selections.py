"""Laws of selections: each group by itself, rows in any order, absent rows never kept."""

import torch
from hypothesis import strategies as st

from laws.data import grouped_rewards, order


def groups_do_not_see_each_other(selection, draw):
    """A group's kept rows are those kept when it stands alone."""
    rewards, groups = grouped_rewards(draw)
    together = selection(rewards, groups)
    for group in groups.unique():
        own = groups == group
        assert torch.equal(together[own], selection(rewards[own], groups[own]))


def rows_may_be_permuted(selection, draw):
    """Law 2: distinct rewards are chosen wherever they stand; of ties the rewards kept stay the same."""
    distinct = draw(st.booleans())
    rewards, groups = grouped_rewards(draw, distinct=distinct)
    rows = order(draw, len(rewards))
    kept, moved = selection(rewards, groups), selection(rewards[rows], groups[rows])
    if distinct:
        assert torch.equal(moved, kept[rows])
    for group in groups.unique():
        before = rewards[kept & (groups == group)].sort().values
        after = rewards[rows][moved & (groups[rows] == group)].sort().values
        assert torch.equal(before, after)


def absent_rows_change_nothing(selection, draw):
    """Law 2: a row without a reward is never kept and leaves the choice among the others as it was."""
    rewards, groups = grouped_rewards(draw)
    missing = torch.tensor(draw(st.lists(st.sampled_from([7, 3, 5]), min_size=1, max_size=3)))
    rows = order(draw, len(rewards) + len(missing))
    order_kept = rows.argsort()[: len(rewards)].sort().values  # where the real rows stand now, in their new order
    real = rows[order_kept]
    more = selection(
        torch.cat([rewards, torch.full((len(missing),), torch.nan)])[rows], torch.cat([groups, missing])[rows]
    )
    assert not more[rows >= len(rewards)].any()
    assert torch.equal(more[order_kept], selection(rewards[real], groups[real]))


def small_groups_are_kept_whole(selection, draw):
    """What is no larger than `keep` is not cut."""
    rewards, _ = grouped_rewards(draw, max_rows=selection.keep)
    assert selection(rewards, torch.zeros(len(rewards), dtype=torch.long)).all()
