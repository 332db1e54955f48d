"""Means over tokens with intervals over prompts: plain loops, and that they cover as often as they say."""

import math

import pytest
import torch

from grpo_kit.evaluation.estimates import wilson
from grpo_kit.overlap.estimate import mean, share

VALUES = [0.5, 1.0, 0.25, 0.0, 0.75, 0.5, 1.0]
PROMPTS = [4, 4, 4, 9, 9, 2, 2]


def error_in_loops(values, prompts):
    """The value, the linearized standard error, and the effective number of prompts, from the formula."""
    value = sum(values) / len(values)
    squares, sizes = 0.0, []
    for prompt in set(prompts):
        own = [each for each, of in zip(values, prompts, strict=True) if of == prompt]
        squares += (sum(own) - value * len(own)) ** 2
        sizes.append(len(own))
    count = len(sizes)
    error = math.sqrt(count / (count - 1) * squares) / len(values)
    return value, error, len(values) ** 2 / sum(size * size for size in sizes)


def test_the_mean_and_its_interval_are_the_formula():
    found = mean(torch.tensor(VALUES), torch.tensor(PROMPTS))
    value, error, _ = error_in_loops(VALUES, PROMPTS)
    assert found.value == pytest.approx(value)
    assert found.high - found.value == pytest.approx(1.959964 * error, rel=1e-5)
    assert found.value - found.low == pytest.approx(1.959964 * error, rel=1e-5)


def test_the_share_is_wilson_s_at_the_effective_number():
    found = share(torch.tensor(VALUES), torch.tensor(PROMPTS))
    value, error, least = error_in_loops(VALUES, PROMPTS)
    effective = value * (1 - value) / error**2
    assert least < effective
    assert [found.low, found.high] == pytest.approx(wilson(value, min(effective, float(len(VALUES)))))


def test_equally_long_prompts_of_one_value_each_are_the_usual_standard_error():
    values = [0.2, 0.4, 0.9]
    found = mean(torch.tensor(values).repeat_interleave(4), torch.arange(3).repeat_interleave(4))
    spread = math.sqrt(sum((each - 0.5) ** 2 for each in values) / 2)
    assert found.high - found.value == pytest.approx(1.959964 * spread / math.sqrt(3), rel=1e-5)


@pytest.mark.parametrize("all_of", [0.0, 1.0])
def test_a_share_of_all_or_none_has_an_interval_that_prompts_decide(all_of):
    few, many = (
        share(torch.full((prompts * 10,), all_of), torch.arange(prompts).repeat_interleave(10)) for prompts in (4, 400)
    )
    assert few.value == many.value == all_of
    assert (few.low, few.high) == pytest.approx(wilson(all_of, 4.0))
    assert (many.low, many.high) == pytest.approx(wilson(all_of, 400.0))


def test_one_prompt_gives_a_wide_share_and_no_interval_of_a_mean():
    values, prompts = torch.tensor(VALUES), torch.zeros(len(VALUES), dtype=torch.long)
    found = mean(values, prompts)
    assert (found.low, found.high) == (None, None)
    found = share(values, prompts)
    assert (found.low, found.high) == pytest.approx(wilson(sum(VALUES) / 7, 1.0))


def test_tokens_of_one_value_in_every_prompt_have_an_interval_as_of_independent_ones():
    found = share(torch.full((30,), 0.5), torch.arange(10).repeat_interleave(3))
    assert (found.low, found.high) == pytest.approx(wilson(0.5, 30.0))


def covered(estimate, clustered):
    """How often the interval holds the truth, for tokens that agree within a prompt."""
    generator, hits = torch.Generator().manual_seed(0), 0
    for _ in range(400):
        level = 0.4 + 0.4 * torch.rand(40, generator=generator, dtype=torch.float64)  # mean 0.6
        lengths = torch.randint(5, 60, (40,), generator=generator)
        prompts = torch.arange(40).repeat_interleave(lengths)
        values = (torch.rand(len(prompts), generator=generator) < level[prompts]).double()
        found = estimate(values, prompts if clustered else torch.arange(len(prompts)))
        hits += found.low <= 0.6 <= found.high
    return hits / 400


@pytest.mark.parametrize("estimate", [mean, share])
def test_the_intervals_cover(estimate):
    assert 0.92 <= covered(estimate, True) <= 0.98


@pytest.mark.parametrize("estimate", [mean, share])
def test_intervals_over_independent_tokens_would_not_cover(estimate):
    assert covered(estimate, False) < 0.85
