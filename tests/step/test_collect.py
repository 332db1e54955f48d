"""The rows of a step: refill, curriculum, greedy rows, against hand-made rewards and the loop."""

import math
from dataclasses import dataclass, field, replace

import pytest
import torch

import tiny
from grpo_kit import (
    Curriculum,
    MaxVariance,
    PromptSet,
    PromptStream,
    Python,
    Recipe,
    RefillSpec,
    SelectionSpec,
    Spread,
    TransformersSampler,
    train,
)
from tiny_recipe import TERM, letters, recipe

PROMPTS = 8


def with_advantage(advantage, **changes) -> Recipe:
    given = recipe(**changes)
    learner = replace(given.learners["small"], terms={"policy": replace(TERM, advantage=advantage)})
    return replace(given, learners={"small": learner})


def stream(given: Recipe) -> PromptStream:
    ids = tuple((2 + i, 3 + i) for i in range(PROMPTS))
    prompts = PromptSet(ids=ids, columns={"row": tuple(range(PROMPTS))}, skipped=())
    return PromptStream(prompts, seed=given.seed, curriculum=given.curriculum)


def reports(given: Recipe) -> list:
    return list(train(given, {"small": tiny.policy("small", dtype=torch.float32)}, stream(given)))


def first(given: Recipe):
    return reports(given)[0]


@dataclass
class KeepGroups:
    """A rule that keeps the groups that a predicate names, and remembers what it was given."""

    wanted: object
    given: list = field(default_factory=list)

    def __call__(self, rewards, groups):
        self.given.append(rewards)
        return torch.tensor([self.wanted(int(group)) for group in groups]) & ~rewards.isnan()


def refill(wanted, **settings) -> RefillSpec:
    return RefillSpec(rule=KeepGroups(wanted), rewards={"task": 1.0}, **settings)


def groups_of(report) -> list[int]:
    return report.experience.rollouts.groups.tolist()


def of_refill(report) -> list[float]:
    return [report.metrics[f"sampler/{key}"] for key in ("rounds", "groups_kept", "groups_short")]


def test_a_refill_samples_until_enough_groups_are_kept_whole():
    report = first(recipe(refill=refill(lambda group: group % 2 == 1)))  # one of each round's two groups
    assert groups_of(report) == [1] * 4 + [3] * 4
    assert of_refill(report) == [2, 0.5, 0]
    assert report.metrics["sampler/rows"] == 8


def test_a_refill_drops_what_is_more_than_a_step():
    report = first(recipe(refill=refill(lambda group: group != 0)))  # rounds (0, 1), (2, 3): three, one too many
    assert groups_of(report) == [1] * 4 + [2] * 4
    assert of_refill(report) == [2, 0.75, 0]


def test_a_refill_is_no_more_than_a_round_where_all_is_kept():
    plain, refilled = first(recipe()), first(recipe(refill=refill(lambda group: True)))
    assert torch.equal(plain.experience.rollouts.tokens, refilled.experience.rollouts.tokens)
    assert of_refill(refilled) == [1, 1, 0]


def test_a_refill_that_kept_too_few_trains_on_those():
    report = first(recipe(refill=refill(lambda group: group == 2, tries=3)))
    assert groups_of(report) == [2] * 4
    assert of_refill(report) == [3, 1 / 6, 1]
    assert report.metrics["learner/small/version"] == 1


def test_a_refill_that_kept_none_uses_the_last_round_and_says_so():
    given = recipe(refill=refill(lambda group: False, tries=3))
    report = first(given)
    assert len(given.refill.rule.given) == 3
    assert groups_of(report) == [4] * 4 + [5] * 4
    assert of_refill(report) == [3, 0, 2]


def test_a_refill_goes_by_the_components_it_names():
    """Flat rewards of one component beside differing ones of another: the first alone keeps nothing."""
    rewards = {"task": Python(function=letters), "flat": Python(function=lambda completions, **_: [1.3] * 8)}
    learner = replace(recipe().learners["small"], rewards={"task": 1.0, "flat": 1.0})
    given = recipe(rewards=rewards, learners={"small": learner})
    for weights, kept in (({"flat": 1.0}, 0), ({"task": 1.0}, 1), ({"task": 0.5, "flat": 2.0}, 1)):
        report = first(replace(given, refill=RefillSpec(rewards=weights, tries=1)))
        assert report.metrics["sampler/groups_kept"] == kept


def test_the_usual_rule_of_a_refill_is_spread():
    assert RefillSpec(rewards={"task": 1.0}) == RefillSpec(rule=Spread(), rewards={"task": 1.0}, tries=10)


def test_a_row_without_a_reward_stays_with_its_group():
    def some(completions, **columns):
        return [None, 1.0, 0.0, 0.0] * 2

    report = first(recipe(rewards={"task": Python(function=some)}, refill=RefillSpec(rewards={"task": 1.0})))
    assert groups_of(report) == [0] * 4 + [1] * 4
    assert report.metrics["reward/small/missing"] == 0.25


def test_a_rule_that_keeps_some_rows_of_a_group_is_refused():
    def best(rewards, groups):
        return rewards == rewards.max()

    given = recipe(refill=RefillSpec(rule=best, rewards={"task": 1.0}))
    with pytest.raises(ValueError, match=r"refill.rule keeps \d of the 4 rewarded rows of group [01], and a refill"):
        first(given)


def test_a_refill_without_a_try_is_refused():
    with pytest.raises(ValueError, match="tries"):
        RefillSpec(rewards={"task": 1.0}, tries=0)


def compared_with_greedy(rewards, groups, *, greedy_rewards):
    """ReMax: the reward minus that of the group's greedy completion."""
    return torch.nan_to_num(rewards - greedy_rewards)


GREEDY = TransformersSampler(policy="small", samples=4, max_new_tokens=4, greedy=True)


def test_greedy_rows_are_seen_by_the_advantage_alone():
    seen = {}

    def advantage(rewards, groups, *, greedy_rewards):
        seen["rewards"], seen["greedy"] = rewards, greedy_rewards
        return compared_with_greedy(rewards, groups, greedy_rewards=greedy_rewards)

    report = first(with_advantage(advantage, sampler=GREEDY))
    assert groups_of(report) == [0] * 4 + [1] * 4 + [0, 1]
    assert report.experience.rollouts.greedy.tolist() == report.kept.logical_not().tolist() == [False] * 8 + [True] * 2
    rewards = letters(report.experience.rollouts.texts)
    assert seen["rewards"][:8].tolist() == rewards[:8]
    assert seen["rewards"][8:].isnan().all()
    assert seen["greedy"].tolist() == [rewards[8]] * 4 + [rewards[9]] * 4 + [rewards[8], rewards[9]]
    metrics = report.metrics
    assert metrics["reward/small/greedy"] == pytest.approx(sum(rewards[8:]) / 2)
    assert metrics["reward/small/total"] == metrics["reward/small/task"] == pytest.approx(sum(rewards[:8]) / 8)
    assert metrics["sampler/rows"] == 8
    assert metrics["sampler/length_mean"] == float(report.experience.rollouts.lengths[:8].double().mean())


def test_greedy_rows_take_no_chance_away_from_the_sampled_ones():
    """The same seed gives the same sampled rows with them and without, step after step."""
    plain = reports(with_advantage(lambda rewards, groups: torch.zeros_like(rewards), steps=2))
    given = with_advantage(compared_with_greedy, steps=2, sampler=GREEDY)
    beside = reports(given)[0].experience.rollouts
    sampled = beside.take(range(8))
    alone = plain[0].experience.rollouts
    assert torch.equal(sampled.tokens, alone.tokens)
    torch.testing.assert_close(sampled.behavior.logprobs, alone.behavior.logprobs)


@pytest.mark.parametrize("rule", [MaxVariance(keep=2), lambda rewards, groups: ~rewards.isnan()])
def test_a_selection_keeps_no_greedy_row(rule):
    selection = SelectionSpec(rule=rule, rewards={"task": 1.0})
    report = first(with_advantage(compared_with_greedy, sampler=GREEDY, selection=selection))
    assert report.kept.any()
    assert not report.kept[8:].any()


def test_greedy_rows_stay_with_their_group_in_a_refill():
    given = with_advantage(compared_with_greedy, sampler=GREEDY, refill=refill(lambda group: group % 2 == 1))
    report = first(given)
    rows = report.experience.rollouts
    assert rows.groups.tolist() == [1] * 5 + [3] * 5
    assert rows.greedy.tolist() == ([False] * 4 + [True]) * 2
    assert all(rewards[8:].isnan().all() for rewards in given.refill.rule.given)
    assert [writer.sampling.temperature for writer in rows.behavior.writers] == [1, 0]
    assert of_refill(report) == [2, 0.5, 0]


def right_by_row(rates):
    """A reward of 0 and 1 whose mean over the four samples of a prompt is the prompt's rate; None has no verdict."""

    def reward(completions, row, **columns):
        seen = {}
        verdicts = []
        for own in row:
            place = seen[own] = seen.get(own, -1) + 1
            verdicts.append(None if rates[own] is None else float(place < 4 * rates[own]))
        return verdicts

    return {"task": Python(function=reward)}


def test_a_curriculum_learns_the_pass_rates_of_the_prompts_drawn():
    rates = [0, 0.25, 0.5, 0.75, 1, None, 0, 1]
    given = recipe(steps=5, rewards=right_by_row(rates), curriculum=Curriculum(reward="task", decay=0.9))
    prompts = stream(given)
    own = {"small": tiny.policy("small", dtype=torch.float32)}
    metrics = [report.metrics for report in train(given, own, prompts)]
    assert prompts.pass_rates.rates == pytest.approx(rates)
    assert [line["data/seen"] for line in metrics] == [0.25, 0.5, 0.75, 1, 1]
    known = [rate for rate in rates if rate is not None]
    assert metrics[-1]["data/pass_rate"] == pytest.approx(sum(known) / len(known))
    weights = [0.05 + (0 if rate is None else rate * (1 - rate)) for rate in rates]
    effective = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    assert metrics[-1]["data/effective_prompts"] == pytest.approx(effective)
    assert sum(prompts.pass_rates.visits) == 10


def test_greedy_rows_are_not_in_a_pass_rate():
    given = with_advantage(
        compared_with_greedy,
        sampler=GREEDY,
        rewards=right_by_row([0.5] * PROMPTS),  # the greedy row is the fifth of its prompt, and wrong
        curriculum=Curriculum(reward="task"),
    )
    assert first(given).metrics["data/pass_rate"] == 0.5


def test_all_rounds_of_a_refill_are_observed_and_draw_no_prompt_twice():
    """Four rounds of two are all eight prompts, in every step and not only while some are unseen."""
    given = recipe(
        steps=3,
        rewards=right_by_row([0] * PROMPTS),
        curriculum=Curriculum(reward="task"),
        refill=RefillSpec(rewards={"task": 1.0}, tries=4),
    )
    prompts = stream(given)
    for report in train(given, {"small": tiny.policy("small", dtype=torch.float32)}, prompts):
        assert prompts.pass_rates.visits == [report.step] * PROMPTS
        assert of_refill(report) == [4, 0, 2]
    assert prompts.pass_rates.rates == [0] * PROMPTS


def test_a_pass_rate_that_is_no_share_stops_the_run():
    rewards = {"task": Python(function=lambda completions, **columns: [3.0, -1.0] * 4)}
    given = recipe(rewards=rewards, curriculum=Curriculum(reward="task"))
    with pytest.raises(ValueError, match=r"curriculum\.reward: 'task' gave 3, and a pass rate is from 0 to 1"):
        first(given)


def test_a_stream_without_the_curriculum_of_the_recipe_is_refused():
    given = recipe(curriculum=Curriculum(reward="task"))
    with pytest.raises(ValueError, match=r"curriculum=recipe\.curriculum"):
        next(train(given, {"small": tiny.policy("small", dtype=torch.float32)}, stream(recipe())))


def test_the_same_seed_gives_the_same_run_of_all_together():
    given = with_advantage(
        compared_with_greedy,
        steps=4,
        sampler=GREEDY,
        curriculum=Curriculum(reward="task"),
        refill=RefillSpec(rewards={"task": 1.0}, tries=2),
        selection=SelectionSpec(rule=MaxVariance(keep=2), rewards={"task": 1.0}),
    )
    one, other = (
        [
            {key: value for key, value in report.metrics.items() if not key.startswith("time/")}
            for report in reports(given)
        ]
        for _ in range(2)
    )
    assert one == other
    assert all(math.isfinite(value) for line in one for value in line.values())
