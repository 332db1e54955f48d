"""Estimates of accuracy and pass@k against enumeration, plain loops and simulation."""

import math
from itertools import combinations
from statistics import stdev

import pytest
import torch
from hypothesis import given, strategies as st

from grpo_kit.evaluation.estimates import (
    Tally,
    accuracy,
    bounds,
    interval,
    mean_pass_at_k,
    pass_at_k,
    sizes,
    standard_error,
)

TALLIES = st.lists(
    st.integers(0, 6).flatmap(lambda judged: st.tuples(st.integers(0, judged), st.just(judged))), max_size=8
).map(lambda pairs: [Tally(*pair) for pair in pairs])


@pytest.mark.parametrize("judged", range(1, 8))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(judged):
    for right in range(judged + 1):
        completions = [1] * right + [0] * (judged - right)
        for k in range(1, judged + 1):
            subsets = list(combinations(completions, k))
            assert pass_at_k(right, judged, k) == pytest.approx(sum(map(max, subsets)) / len(subsets), abs=1e-12)


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_k_is_unbiased(chance, k):
    # The expectation over all numbers of right ones among n, by their binomial probabilities.
    n = 6
    expected = sum(
        math.comb(n, right) * chance**right * (1 - chance) ** (n - right) * pass_at_k(right, n, k)
        for right in range(n + 1)
    )
    assert expected == pytest.approx(1 - (1 - chance) ** k, abs=1e-12)


@pytest.mark.parametrize("k", [0, 4])
def test_pass_at_k_needs_as_many_verdicts(k):
    with pytest.raises(ValueError, match=f"pass@{k} needs at least {k} judged completions, there are 3"):
        pass_at_k(1, 3, k)


def test_pass_at_k_leaves_out_questions_with_fewer_verdicts():
    tallies = [Tally(1, 4), Tally(1, 2), Tally(0, 0), Tally(2, 4)]
    assert mean_pass_at_k(tallies, 1) == pytest.approx((1 / 4 + 1 / 2 + 1 / 2) / 3)
    assert mean_pass_at_k(tallies, 4) == 1.0
    assert math.isnan(mean_pass_at_k(tallies, 5))


@given(TALLIES)
def test_pass_at_one_is_the_accuracy(tallies):
    assert mean_pass_at_k(tallies, 1) == pytest.approx(accuracy(tallies), nan_ok=True)


@given(TALLIES)
def test_accuracy_and_its_error_are_those_of_the_questions_shares(tallies):
    shares = []
    for right, judged in tallies:
        if judged > 0:
            shares.append(right / judged)
    assert accuracy(tallies) == pytest.approx(sum(shares) / len(shares) if shares else math.nan, nan_ok=True)
    expected = stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else math.nan
    assert standard_error(tallies) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("right", "questions", "low", "high"),
    # Wilson's interval by hand, z = 1.959964: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)
    [(0, 10, 0.0, 0.277533), (5, 10, 0.236593, 0.763407), (81, 263, 0.255289, 0.366193), (30, 30, 0.886484, 1.0)],
)
def test_the_interval_of_one_completion_a_question_is_wilsons(right, questions, low, high):
    tallies = [Tally(1, 1)] * right + [Tally(0, 1)] * (questions - right)
    assert interval(tallies) == pytest.approx((low, high), abs=2e-4)


def test_completions_that_always_agree_count_as_one_and_independent_ones_as_many():
    together = [Tally(4, 4)] * 10 + [Tally(0, 4)] * 10
    assert interval(together) == pytest.approx(interval([Tally(1, 1)] * 10 + [Tally(0, 1)] * 10))
    # Equal shares have no spread between questions: 20 x 4 completions.
    apart = [Tally(2, 4)] * 20
    assert interval(apart) == pytest.approx(interval([Tally(1, 1)] * 40 + [Tally(0, 1)] * 40))


def test_the_effective_number_lies_between():
    tallies = [Tally(4, 4), Tally(2, 4), Tally(1, 4), Tally(3, 4), Tally(0, 4), Tally(2, 4)]
    # Shares 1, .5, .25, .75, 0, .5: p = .5, s^2 = .625 / 5 = .125; m = .25 / (.125 / 6) = 12.
    assert interval(tallies) == pytest.approx(interval([Tally(1, 1)] * 6 + [Tally(0, 1)] * 6))


@given(TALLIES)
def test_the_interval_holds_the_accuracy(tallies):
    low, high = interval(tallies)
    if any(tally.judged for tally in tallies):
        assert 0 <= low <= accuracy(tallies) <= high <= 1
        assert low < high
    else:
        assert math.isnan(low)
        assert math.isnan(high)


@given(TALLIES)
def test_more_confidence_is_a_wider_interval(tallies):
    (low, high), (lower, higher) = interval(tallies, 0.8), interval(tallies, 0.99)
    assert math.isnan(low) or (lower <= low and high <= higher)


@pytest.mark.parametrize("samples", [1, pytest.param(4, marks=pytest.mark.slow), 16])
@pytest.mark.parametrize(("chance", "questions"), [(0.05, 100), (0.2, 30), (0.5, 10), (0.9, 30)])
def test_the_interval_holds_the_truth_as_often_as_it_says(samples, chance, questions):
    # Each question has its own chance, drawn from a beta distribution around the true accuracy.
    generator = torch.Generator().manual_seed(0)
    trials, held = 1000, 0
    alpha, beta = torch.tensor(2 * chance), torch.tensor(2 * (1 - chance))
    for _ in range(trials):
        gammas = torch._standard_gamma(torch.stack([alpha, beta]).expand(questions, 2), generator=generator)
        own = gammas[:, 0] / gammas.sum(1)
        right = (torch.rand((questions, samples), generator=generator) < own[:, None]).sum(1).tolist()
        low, high = interval([Tally(count, samples) for count in right])
        held += low <= chance <= high
    # 1000 trials have a standard error of 0.007; few questions with spread between them cover a little less.
    assert 0.91 <= held / trials <= 0.995


def test_the_sizes_are_powers_of_two_and_the_number_itself():
    assert [sizes(samples) for samples in (1, 2, 3, 8, 10)] == [(1,), (1, 2), (1, 2, 3), (1, 2, 4, 8), (1, 2, 4, 8, 10)]


def test_bounds_count_missing_verdicts_as_wrong_and_as_right():
    assert bounds(3, 1, 8) == (0.375, 0.5)
    assert bounds(3, 0, 8) == (0.375, 0.375)
