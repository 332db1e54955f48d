"""Selections against brute force."""

from itertools import combinations
from statistics import variance

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from grpo_kit import MaxVariance, TopBottom

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
