"""A curriculum: who is drawn how often, and that nobody is given up."""

import json
from collections import Counter
from dataclasses import asdict

import pytest
import torch
from pydantic import ValidationError

from grpo_kit import Curriculum, PassRates, PromptSet, PromptStream

RATES = [0.0, 0.1, 0.5, 0.9, 1.0, 0.25]
FLOOR = 0.1
CURRICULUM = Curriculum(reward="task", decay=0.5, floor=FLOOR)
# p (1 - p) + 0.1, by hand
WEIGHTS = [0.1, 0.19, 0.35, 0.19, 0.1, 0.2875]


def stream(size=6, seed=0, curriculum=CURRICULUM) -> PromptStream:
    prompts = PromptSet(ids=tuple((row,) for row in range(size)), columns={"row": tuple(range(size))}, skipped=())
    return PromptStream(prompts, seed=seed, curriculum=curriculum)


def steps(prompts, count, steps, rates=RATES):
    """The prompts of each of so many steps, whose constant pass rates are observed."""
    for _ in range(steps):
        batch = prompts.take(count)
        rows = batch.columns["row"]
        yield rows
        prompts.observe({group: rates[row] for group, row in zip(batch.groups, rows, strict=True)})


def test_the_weight_is_the_variance_and_a_floor():
    rates = torch.tensor([*RATES, torch.nan], dtype=torch.float64)
    assert CURRICULUM.weights(rates).tolist() == pytest.approx([*WEIGHTS, FLOOR])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_unseen_prompts_come_first_in_an_order_of_the_seed(count):
    orders = set()
    for seed in range(20):
        rows = [row for batch in steps(stream(8, seed), count, 8 // count, [0.5] * 8) for row in batch]
        assert sorted(rows) == list(range(8))
        orders.add(tuple(rows))
    assert len(orders) == 20


def test_the_first_pass_is_uniform():
    """Where the first prompt stands, over 600 seeds; 5 degrees of freedom, 15.1 passed by one in a hundred."""
    counts = Counter(stream(seed=seed).take(1).columns["row"][0] for seed in range(600))
    assert sum((counts[row] - 100) ** 2 / 100 for row in range(6)) < 15.1


def successive(weights, count) -> list[float]:
    """The chance of each to be among `count` drawn one after another in proportion to the weights left."""
    if count == 0:
        return [0.0] * len(weights)
    chances = [0.0] * len(weights)
    for first, weight in enumerate(weights):
        share = weight / sum(weights)
        if share:
            rest = successive([0.0 if i == first else own for i, own in enumerate(weights)], count - 1)
            chances = [chance + share * (own + (i == first)) for i, (chance, own) in enumerate(zip(chances, rest))]  # noqa: B905
    return chances


@pytest.mark.parametrize("count", [1, 2, 3])
def test_visits_approach_the_weights(count):
    """Constant pass rates over 3000 steps: each prompt within four standard errors of its chance, and chi-square."""
    prompts, times = stream(), 3000
    list(steps(prompts, count, 6 // count))  # the first pass
    counts = Counter(row for rows in steps(prompts, count, times) for row in rows)
    chances = successive(WEIGHTS, count)
    assert sum(chances) == pytest.approx(count)
    for row, chance in enumerate(chances):
        assert abs(counts[row] - times * chance) < 4 * (times * chance * (1 - chance)) ** 0.5
    if count == 1:  # independent draws: 5 degrees of freedom, 15.1 is passed by one in a hundred
        assert chances == pytest.approx([weight / sum(WEIGHTS) for weight in WEIGHTS])
        assert sum((counts[row] - times * own) ** 2 / (times * own) for row, own in enumerate(chances)) < 15.1


def test_no_prompt_starves():
    """B149 (tinker-cookbook#822): a prompt that is always wrong, and one never judged, come again and again.

    Each has at least floor / (6 (floor + 1/4)) = 0.048 of the draws: 100 steps of 2 without it are one in 10^4.
    """
    prompts = stream()
    rates = [float("nan"), 0.0, 0.5, 0.5, 0.5, 0.5]
    last = dict.fromkeys(range(6), 0)
    longest = 0
    for step, rows in enumerate(steps(prompts, 2, 2000, rates)):
        longest = max(longest, *(step - last[row] for row in rows))
        last |= dict.fromkeys(rows, step)
    assert min(prompts.pass_rates.visits) > 200
    assert longest < 150
    assert prompts.pass_rates.rates[0] is None


def test_no_prompt_comes_twice_in_a_step():
    prompts = stream()
    for rows in steps(prompts, 5, 50):
        assert len(set(rows)) == 5


def test_more_for_the_same_step_are_others_until_all_are_used_up():
    prompts = stream()
    list(steps(prompts, 3, 2))
    for _ in range(20):
        first, more = prompts.take(3), prompts.take(3, same_step=True)
        assert sorted(first.columns["row"] + more.columns["row"]) == list(range(6))
        assert len(set(prompts.take(3, same_step=True).columns["row"])) == 3  # all again


def test_unseen_prompts_that_are_left_come_before_those_of_the_step():
    prompts = stream(4)
    rows = prompts.take(3).columns["row"] + prompts.take(3, same_step=True).columns["row"]
    assert sorted(rows[:4]) == [0, 1, 2, 3]


def test_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"prompts_per_step = 7: a curriculum draws no prompt twice .* there are 6"):
        stream().take(7)


def test_the_running_rate_forgets_by_its_decay():
    rates = PassRates.of(3)
    rates.update({0: 1.0, 1: float("nan")}, decay=0.75)
    assert rates.rates == [1.0, None, None]  # the first verdict sets it
    rates.update({0: 0.0, 1: 0.5}, decay=0.75)
    assert rates.rates == [0.75, 0.5, None]
    rates.update({0: 0.0, 1: float("nan")}, decay=0.75)
    assert rates.rates == [0.5625, 0.5, None]
    rates.update({2: 0.0}, decay=0.75)
    rates.update({2: 1.0}, decay=0.75)
    assert rates.rates[2] == 0.25  # a rate of 0 is a rate


def test_groups_are_observed_by_their_number_and_go_on_through_the_run():
    prompts = stream()
    one = prompts.take(2)
    two = prompts.take(2, same_step=True)
    assert (one.groups, two.groups) == ((0, 1), (2, 3))
    prompts.observe({3: 0.25, 0: 1.0})
    found = {row: rate for row, rate in enumerate(prompts.pass_rates.rates) if rate is not None}
    assert found == {two.columns["row"][1]: 0.25, one.columns["row"][0]: 1.0}
    assert prompts.take(2).groups == (4, 5)


def test_the_same_seed_gives_the_same_stream():
    def rows(seed):
        return [row for batch in steps(stream(seed=seed), 2, 40) for row in batch]

    assert rows(0) == rows(0) != rows(1)


def test_a_stream_goes_on_from_its_plain_data():
    """What a checkpoint holds is numbers and lists; the stream made of them draws as the first would have."""
    one = stream()
    list(steps(one, 2, 10))
    saved = json.loads(json.dumps({"position": one.position, **asdict(one.pass_rates)}))
    other = stream()
    other.position = saved.pop("position")
    other.pass_rates = PassRates(**saved)
    assert list(steps(one, 2, 10)) == list(steps(other, 2, 10))


def test_without_a_curriculum_nothing_is_observed():
    prompts = stream(curriculum=None)
    batch = prompts.take(3)
    prompts.observe(dict.fromkeys(batch.groups, 1.0))
    assert prompts.pass_rates == PassRates.of(6)


def test_metrics():
    rates = PassRates(visits=[3, 1, 1, 0], rates=[0.5, 1.0, None, None])
    found = rates.metrics(CURRICULUM)
    assert found["data/pass_rate"] == 0.75
    assert found["data/seen"] == 0.75
    # weights 0.35, 0.1, 0.1 of those seen
    assert found["data/effective_prompts"] == pytest.approx(0.55**2 / (0.35**2 + 0.1**2 + 0.1**2))


@pytest.mark.parametrize("wrong", [{"decay": 1.0}, {"decay": -0.1}, {"floor": 0.0}])
def test_settings_that_would_starve_or_never_learn_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Curriculum(reward="task", **wrong)
