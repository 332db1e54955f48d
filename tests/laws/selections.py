"""Laws of selections: each group by itself, rows in any order, absent rows never kept, as many kept as said."""

import torch
from hypothesis import strategies as st

from grpo_kit.offers import call_with
from laws.data import grouped_rewards, order


def kept_by(selection, rewards, groups, seed=0):
    """What a selection keeps, given all it may ask for."""
    return call_with(selection, rewards, groups, generator=torch.Generator().manual_seed(seed))


def groups_do_not_see_each_other(selection, draw):
    """A group's kept rows are those kept when it stands alone."""
    rewards, groups = grouped_rewards(draw)
    together = kept_by(selection, rewards, groups)
    for group in groups.unique():
        own = groups == group
        assert torch.equal(together[own], kept_by(selection, rewards[own], groups[own]))


def rows_may_be_permuted(selection, draw):
    """Law 2: distinct rewards are chosen wherever they stand; of ties the rewards kept stay the same."""
    distinct = draw(st.booleans())
    rewards, groups = grouped_rewards(draw, distinct=distinct)
    rows = order(draw, len(rewards))
    kept, moved = kept_by(selection, rewards, groups), kept_by(selection, rewards[rows], groups[rows])
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
    more = kept_by(
        selection,
        torch.cat([rewards, torch.full((len(missing),), torch.nan)])[rows],
        torch.cat([groups, missing])[rows],
    )
    assert not more[rows >= len(rewards)].any()
    assert torch.equal(more[order_kept], kept_by(selection, rewards[real], groups[real]))


def small_groups_are_kept_whole(selection, draw):
    """What is no larger than `keep` is not cut."""
    rewards, _ = grouped_rewards(draw, max_rows=selection.keep)
    assert kept_by(selection, rewards, torch.zeros(len(rewards), dtype=torch.long)).all()


def keep_is_the_most_of_a_group(selection, draw):
    """Of each group as many rows are kept as `keep` says, or all there are."""
    rewards, groups = grouped_rewards(draw)
    kept = kept_by(selection, rewards, groups)
    for group in groups.unique():
        own = groups == group
        assert int((kept & own).sum()) == min(selection.keep, int(own.sum()))


def a_group_is_kept_or_dropped_whole(selection, draw):
    """All of a group's known rows are kept where its rewards differ, none where they are all the same."""
    rewards, groups = grouped_rewards(draw)
    kept = kept_by(selection, rewards, groups)
    for group in groups.unique():
        own = groups == group
        differ = len(set(rewards[own].tolist())) > 1
        assert bool(kept[own].all() if differ else ~kept[own].any())


def the_same_generator_keeps_the_same_rows(selection, draw):
    """Nothing but the generator is drawn from."""
    rewards, groups = grouped_rewards(draw, distinct=True)
    seed = draw(st.integers(0, 9))
    assert torch.equal(*(kept_by(selection, rewards, groups, seed) for _ in range(2)))
