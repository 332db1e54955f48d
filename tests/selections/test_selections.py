"""Selections against brute force, and a random one against the chances of every subset."""

from collections import Counter
from itertools import combinations
from statistics import variance

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from grpo_kit import MaxVariance, RandomRows, Spread, TopBottom

pytestmark = pytest.mark.usefixtures("float64")
NUMBERS = st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 2.0]), min_size=1, max_size=8)


def one_group(values):
    return torch.tensor(values), torch.zeros(len(values), dtype=torch.long)


@pytest.mark.parametrize("keep", [2, 3, 4])
def test_max_variance_is_the_best_of_all_subsets(keep):
    @given(NUMBERS)
    def run(values):
        kept = MaxVariance(keep=keep)(*one_group(values)).tolist()
        chosen = [value for value, stays in zip(values, kept, strict=True) if stays]
        assert len(chosen) == min(keep, len(values))
        if len(values) > keep:
            assert variance(chosen) == pytest.approx(max(map(variance, combinations(values, keep))), abs=1e-12)

    run()


def test_of_equal_splits_the_balanced_one_is_kept():
    # all variances are 0: one from below and one from above
    assert MaxVariance(keep=2)(*one_group([1.0] * 4)).tolist() == [True, False, False, True]
    # splits 2+2, 1+3, 3+1 of [0, 0, 0, 1, 1, 1]: the first has the largest variance
    assert MaxVariance(keep=4)(*one_group([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])).tolist() == [
        True,
        False,
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(("top", "bottom"), [(1, 1), (2, 1), (0, 2), (3, 0)])
def test_top_bottom(top, bottom):
    @given(NUMBERS)
    def run(values):
        kept = TopBottom(top=top, bottom=bottom)(*one_group(values)).tolist()
        chosen = sorted(value for value, stays in zip(values, kept, strict=True) if stays)
        ranked = sorted(values)
        both = ranked[:bottom] + ranked[len(ranked) - top :] if len(ranked) > top + bottom else ranked
        assert chosen == sorted(both)

    run()


def test_ties_go_to_the_earlier_row_from_below_and_to_the_later_from_above():
    assert TopBottom(top=0, bottom=1)(*one_group([1.0, 0.0, 0.0])).tolist() == [False, True, False]
    assert TopBottom(top=1, bottom=0)(*one_group([1.0, 1.0, 0.0])).tolist() == [False, True, False]
    assert MaxVariance(keep=2)(*one_group([1.0, 0.0, 0.0, 1.0])).tolist() == [False, True, False, True]


def test_keeping_nothing_is_refused():
    with pytest.raises(ValidationError, match="no row would be left"):
        TopBottom(top=0, bottom=0)
    with pytest.raises(ValidationError, match="keep"):
        MaxVariance(keep=1)


def test_every_subset_is_kept_as_often_in_every_group():
    """Chi-square of 5 - 1 choose 2 subsets of either group over 2000 draws of one generator, fixed seed."""
    generator, draws = torch.Generator().manual_seed(0), 2000
    rewards = torch.tensor([0.0, torch.nan, 1.0, 0.5, 1.0, 1.0, 1.0, 0.0, 0.0])
    groups = torch.tensor([0, 0, 1, 0, 1, 0, 1, 1, 0])
    seen = {0: Counter(), 1: Counter()}
    for _ in range(draws):
        kept = RandomRows(keep=2)(rewards, groups, generator=generator)
        for group, counts in seen.items():
            counts[tuple(torch.nonzero(kept & (groups == group)).flatten().tolist())] += 1
    for group, counts in seen.items():
        rows = torch.nonzero((groups == group) & ~rewards.isnan()).flatten().tolist()
        subsets = list(combinations(rows, 2))
        assert set(counts) == set(subsets)
        expected = draws / len(subsets)
        # 6 subsets: 5 degrees of freedom, of which 15.1 is passed by one in a hundred
        assert sum((counts[subset] - expected) ** 2 / expected for subset in subsets) < 15.1


def test_a_generator_goes_on_from_draw_to_draw():
    generator = torch.Generator().manual_seed(0)
    drawn = {tuple(RandomRows(keep=3)(*one_group([1.0] * 12), generator=generator).tolist()) for _ in range(5)}
    assert len(drawn) == 5


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("count", [2, 7, 1000])
def test_rounding_is_no_spread(dtype, count):
    """Rewards of 1.3 and sums of components: their mean is off by a rounding, and they are all the same."""
    alike = torch.full((count,), 0.1, dtype=dtype) + torch.full((count,), 1.2, dtype=dtype)
    groups = torch.zeros(count, dtype=torch.long)
    assert not Spread()(alike, groups).any()
    alike[-1] = torch.nextafter(alike[-1], torch.tensor(2.0, dtype=dtype))
    assert Spread()(alike, groups).all()


def test_groups_alike_between_right_and_wrong_have_no_spread():
    rewards, groups = torch.tensor([0.5, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    assert Spread()(rewards, groups).tolist() == [False] * 6 + [True] * 2


def test_one_known_reward_is_no_spread_and_missing_rows_are_never_kept():
    rewards = torch.tensor([1.0, torch.nan, torch.nan, 0.0, 1.0, torch.nan, torch.nan])
    groups = torch.tensor([0, 0, 1, 2, 2, 2, 1])
    assert Spread()(rewards, groups).tolist() == [False, False, False, True, True, False, False]


def test_settings_of_new_kinds_are_refused():
    with pytest.raises(ValidationError, match="keep"):
        RandomRows(keep=0)
