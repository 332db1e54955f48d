"""Intervals, corrections and tests of equivalence: against scipy and statsmodels, by simulation, and at the edges."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats
from statsmodels.stats.weightstats import ttost_paired

from grpo_kit.compare.statistics import area, difference, estimate, holm

VALUES = st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=2, max_size=8)


@given(VALUES)
def test_the_interval_is_that_of_scipy(values):
    found = estimate(values)
    assert found.mean == pytest.approx(sum(values) / len(values), abs=1e-12)
    if error := stats.sem(values):
        low, high = stats.t.interval(0.95, len(values) - 1, loc=found.mean, scale=error)
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_one_value_has_no_interval():
    found = estimate([0.5])
    assert found.mean == 0.5
    assert math.isnan(found.low)
    assert math.isnan(estimate([]).mean)


def test_an_interval_over_five_seeds_covers_as_often_as_it_says():
    """95 % +- 1 % of 4000 draws; a percentile bootstrap of the same covers less than 88 %."""
    draw = random.Random(0)
    covered = bootstrap = 0
    for _ in range(4000):
        values = [draw.gauss(0.3, 0.02) for _ in range(5)]
        found = estimate(values)
        covered += found.low <= 0.3 <= found.high
    assert abs(covered / 4000 - 0.95) < 0.01
    for _ in range(400):
        values = [draw.gauss(0.3, 0.02) for _ in range(5)]
        means = sorted(sum(draw.choices(values, k=5)) / 5 for _ in range(400))
        bootstrap += means[9] <= 0.3 <= means[389]
    assert bootstrap / 400 < 0.88


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=3, max_size=8), st.floats(0.01, 0.5))
def test_differences_are_those_of_scipy_and_statsmodels(pairs, margin):
    pairs = [(round(one, 3), round(other, 3)) for one, other in pairs]
    first, other = ({seed: pair[side] for seed, pair in enumerate(pairs)} for side in (0, 1))
    if len({round(b - a, 6) for a, b in pairs}) < 2:
        return
    found = difference(first, other, margin)
    assert found.p == pytest.approx(stats.ttest_rel(list(other.values()), list(first.values())).pvalue, abs=1e-6)
    theirs = ttost_paired(np.array(list(other.values())), np.array(list(first.values())), -margin, margin)[0]
    assert found.p_equivalent == pytest.approx(float(theirs), abs=1e-6)


def test_seeds_are_paired_by_their_number_and_not_by_their_place():
    found = difference({1: 0.1, 2: 0.2, 3: 0.9}, {2: 0.3, 1: 0.2, 4: 0.0})
    assert found.of.count == 2
    assert found.of.mean == pytest.approx(0.1)


def test_differences_that_do_not_vary():
    same = difference({0: 0.5, 1: 0.75}, {0: 0.5, 1: 0.75}, margin=0.1)
    assert (same.p, same.p_equivalent) == (1.0, 0.0)
    shifted = difference({0: 0.5, 1: 0.75}, {0: 0.75, 1: 1.0}, margin=0.1)
    assert (shifted.p, shifted.p_equivalent) == (0.0, 1.0)


def test_one_pair_says_nothing():
    found = difference({0: 0.5}, {0: 0.6}, margin=0.2)
    assert math.isnan(found.p)
    assert math.isnan(found.p_equivalent)


def test_holm_by_hand():
    """Sorted 0.01, 0.03, 0.04 times 3, 2, 1, never falling: 0.03, 0.06, 0.06."""
    assert holm([0.04, 0.01, math.nan, 0.03])[:2] == pytest.approx([0.06, 0.03])
    assert math.isnan(holm([0.04, 0.01, math.nan, 0.03])[2])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_area_of_uneven_steps():
    """(0 + 1) / 2 over 10 steps and 1 over 30: 35 of 40."""
    assert area([(0.0, 0.0), (10.0, 1.0), (40.0, 1.0)]) == 35 / 40
    assert math.isnan(area([(3.0, 1.0)]))
