"""The loop: any number of policies, followers, selections, versions, steps and schedules, states, damaged numbers."""

from dataclasses import dataclass, replace

import pytest
import torch

import tiny
import tiny_recipe
from grpo_kit import (
    AdamW,
    DivergenceTerm,
    EqualTokens,
    ImportanceWeight,
    MaxVariance,
    NonFiniteError,
    OnPolicyKD,
    PolicySpec,
    PromptSet,
    PromptStream,
    Python,
    RandomRows,
    Recipe,
    SampledKL,
    SelectionSpec,
    loop as loop_module,
    train,
)
from grpo_kit.learner import LiveLearner
from tiny_recipe import TERM, learner, letters
from tolerances import EXACT


def recipe(**changes) -> Recipe:
    return tiny_recipe.recipe(**{"steps": 2} | changes)


def prompts() -> PromptStream:
    ids = tuple((2 + i, 3 + i) for i in range(6))
    return PromptStream(PromptSet(ids=ids, columns={"answer": tuple("abcdef")}, skipped=()), seed=0)


def policies(*names) -> dict:
    return {name: tiny.policy(name, seed=number, dtype=torch.float32) for number, name in enumerate(names)}


def run(given: Recipe, own: dict, **settings) -> list:
    return list(train(given, own, prompts(), **settings))


def weights_of(policy) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in policy.model.parameters()]).clone()


def test_three_live_policies_are_trained_at_once():
    names = ("small", "middle", "large")
    corrected = replace(TERM, correction=ImportanceWeight(level="sequence", high=5.0))
    given = recipe(
        policies={name: PolicySpec(model="tiny:small") for name in names},
        rewards={
            "task": Python(function=letters),
            "kd": OnPolicyKD(teacher="large", student="small", length=4),
        },
        learners={
            "small": learner(rewards={"task": 1.0, "kd": 1.0}),
            "middle": learner(terms={"policy": replace(TERM, anchor="behavior")}),
            "large": learner(
                terms={"policy": corrected, "kl": DivergenceTerm(to="middle", divergence=SampledKL(), weight=0.1)}
            ),
        },
    )
    own = policies(*names)
    before = {name: weights_of(own[name]) for name in names}
    reports = run(given, own)
    assert [report.step for report in reports] == [1, 2]
    for name in names:
        assert own[name].version == 2
        assert (weights_of(own[name]) != before[name]).any()
        assert reports[-1].metrics[f"learner/{name}/version"] == 2
        assert reports[-1].metrics[f"learner/{name}/grad_norm"] > 0
    signals = reports[-1].experience.signals.scores
    # 'middle' is scored for 'large's divergence; its own anchor is the writer
    assert {(key.policy, key.version) for key in signals} == {("small", 1), ("middle", 1), ("large", 1)}


def test_the_same_seed_gives_the_same_run():
    first, second = (run(recipe(), policies("small")) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.experience.rollouts.tokens, other.experience.rollouts.tokens)
        without_time = [
            {key: value for key, value in report.metrics.items() if not key.startswith(("time/", "sampler/tokens_per"))}
            for report in (one, other)
        ]
        assert without_time[0] == without_time[1]
    other_seed = run(recipe(seed=1), policies("small"))
    assert not torch.equal(first[0].experience.rollouts.tokens, other_seed[0].experience.rollouts.tokens)


def with_followers(**spec) -> Recipe:
    return recipe(
        steps=3,
        policies={"small": PolicySpec(model="tiny:small"), "slow": PolicySpec(follows="small", **spec)},
        learners={"small": learner(terms={"policy": TERM, "kl": DivergenceTerm(to="slow", divergence=SampledKL())})},
    )


def test_a_hard_copy_is_its_live_policy_after_each_turn():
    own = policies("small", "small2")
    own["slow"] = replace(own.pop("small2"), name="slow")
    for report in train(with_followers(every=2), own, prompts()):
        same = torch.equal(weights_of(own["slow"]), weights_of(own["small"]))
        assert same == (report.step == 2)
    assert own["slow"].version == 1  # steps 1, 2, 3: one turn


def test_an_ema_keeps_decay_of_its_own_weights():
    own = policies("small", "slow")
    expected = weights_of(own["slow"]).double()
    for _ in train(with_followers(decay=0.75), own, prompts()):
        expected = 0.75 * expected + 0.25 * weights_of(own["small"]).double()
        torch.testing.assert_close(weights_of(own["slow"]).double(), expected, rtol=1e-5, atol=1e-6)
    assert own["slow"].version == 3


def test_epochs_and_mini_batches_are_optimizer_steps_of_the_schedule(monkeypatch):
    """B117 (accelerate#963): the rate moves once an optimizer step, however many micro-batches it has."""
    rates = []
    step = LiveLearner.step

    def watched(self):
        rates.append(self.schedule.get_last_lr()[0])
        step(self)

    monkeypatch.setattr(LiveLearner, "step", watched)
    own = policies("small")
    own["small"].micro_batch_tokens = 1  # each row is a micro-batch
    given = recipe(
        steps=2,
        learners={"small": learner(epochs=2, mini_batches=3, optimizer=AdamW(lr=1.2, warmup_steps=2, decay="linear"))},
    )
    run(given, own)
    total = 2 * 2 * 3  # steps x epochs x mini-batches
    assert own["small"].version == total
    # 1/3 and 2/3 of the warm-up, then down from 1 over the 10 steps that are left
    expected = [1.2 / 3, 1.2 * 2 / 3] + [1.2 * (total - number) / 10 for number in range(2, total)]
    assert rates == pytest.approx(expected)


def test_anchors_stay_those_of_sampling_time_through_all_epochs():
    report = run(recipe(steps=1, learners={"small": learner(epochs=3)}), policies("small"))[0]
    # the mean over three steps: the first has ratio 1, the later ones moved away from the frozen anchor
    assert report.metrics["learner/small/policy/ratio_mean"] != pytest.approx(1.0, abs=1e-4)
    once = run(recipe(steps=1), policies("small"))[0]
    assert once.metrics["learner/small/policy/ratio_mean"] == pytest.approx(1.0, abs=1e-5)


def test_the_selection_keeps_rows_for_all_learners():
    given = recipe(selection=SelectionSpec(rule=MaxVariance(keep=2), rewards={"task": 1.0}))
    report = run(given, policies("small"))[0]
    assert report.kept.sum() == 4  # two of each of two groups
    assert report.metrics["sampler/rows"] == 8


def test_a_random_selection_draws_from_the_generator_of_the_recipe():
    rule = RandomRows(keep=2)
    given = recipe(selection=SelectionSpec(rule=rule, rewards={"task": 1.0}))
    kept = [run(given, policies("small"))[1].kept.tolist() for _ in range(2)]
    assert kept[0] == kept[1]
    assert [sum(kept[0][start : start + 4]) for start in (0, 4)] == [2, 2]
    others = [run(replace(given, seed=seed), policies("small"))[1].kept.tolist() for seed in range(1, 5)]
    assert any(other != kept[0] for other in others)


@dataclass(frozen=True)
class MovingBaseline:
    """Reward minus a moving average of all rewards seen: an advantage with memory."""

    decay: float = 0.5

    def init(self) -> float:
        return 0.0

    def __call__(self, rewards, groups, *, state: float):
        known = rewards[~rewards.isnan()]
        moved = self.decay * state + (1 - self.decay) * float(known.mean())
        return torch.nan_to_num(rewards - state), moved


def test_the_state_of_an_advantage_is_carried_from_step_to_step(monkeypatch):
    seen = []

    class Watched(loop_module.Memory):
        def __init__(self, *args):
            super().__init__(*args)
            seen.append(self)

    monkeypatch.setattr(loop_module, "Memory", Watched)
    terms = {"first": replace(TERM, advantage=MovingBaseline())}
    terms["second"] = replace(TERM, advantage=MovingBaseline(decay=0.9))
    reports = run(recipe(steps=3, learners={"small": learner(terms=terms)}), policies("small"))
    means = [report.metrics["reward/small/total"] for report in reports]
    fast = slow = 0.0
    for mean in means:
        fast, slow = 0.5 * fast + 0.5 * mean, 0.9 * slow + 0.1 * mean
    states = seen[0].states
    assert states["learners.small.terms.first.advantage"] == pytest.approx(fast, rel=1e-5)
    assert states["learners.small.terms.second.advantage"] == pytest.approx(slow, rel=1e-5)


def test_a_step_without_a_kept_row_changes_nothing():
    def nothing(completions, **columns):
        return [None] * len(completions)

    given = recipe(
        rewards={"task": Python(function=nothing)},
        selection=SelectionSpec(rule=MaxVariance(keep=2), rewards={"task": 1.0}),
    )
    own = policies("small")
    before = weights_of(own["small"])
    reports = run(given, own)
    assert len(reports) == 2
    assert not reports[0].kept.any()
    assert reports[0].metrics["reward/small/missing"] == 1.0
    assert torch.equal(weights_of(own["small"]), before)
    assert own["small"].version == 0


def test_damaged_weights_are_named_with_policy_step_and_row():
    own = policies("small", "other")
    next(own["other"].model.parameters()).data.fill_(torch.nan)
    given = recipe(
        policies={name: PolicySpec(model="tiny:small") for name in own},
        learners={"small": learner(terms={"kl": DivergenceTerm(to="other", divergence=SampledKL())}, rewards={})},
        rewards={},
    )
    with pytest.raises(NonFiniteError, match=r"step 1: policy 'other' \(version 0\) gives row 0 .*nan at token 0"):
        run(given, own)


def test_a_loss_that_is_not_finite_stops_the_run_with_its_place():
    def broken(log_ratio, advantages, logprobs=None):
        return torch.where(advantages > 0, log_ratio / 0, log_ratio)

    given = recipe(learners={"small": learner(terms={"odd": replace(TERM, surrogate=broken)})})
    with pytest.raises(NonFiniteError, match=r"step 1, learner 'small', term 'odd': the loss of row \d+ is nan"):
        run(given, policies("small"))


def test_rewards_are_those_of_the_reported_rows():
    report = run(recipe(), policies("small"))[0]
    texts = report.experience.rollouts.texts
    torch.testing.assert_close(
        report.experience.rewards.components["task"].values.double(),
        torch.tensor(letters(texts), dtype=torch.float64),
        rtol=1e-6,
        atol=0,
    )
    assert report.metrics["reward/small/task"] == pytest.approx(sum(letters(texts)) / 8, rel=1e-5)


def test_behavior_and_proximal_log_probabilities_agree_on_policy():
    report = run(recipe(steps=1), policies("small"))[0]
    rows = report.experience.rollouts
    torch.testing.assert_close(
        rows.behavior.logprobs[rows.mask], report.experience.signals["small"].logprobs[rows.mask], rtol=0, atol=1e-5
    )


def test_weighting_and_terms_leave_learners_apart():
    """Training a second policy on the same rows changes nothing about the first."""
    alone = policies("small")
    run(recipe(steps=1), alone)
    both = policies("small", "large")
    specs = {name: PolicySpec(model="tiny:small") for name in both}
    learners = {"small": learner(), "large": learner(weighting=EqualTokens())}
    run(recipe(steps=1, policies=specs, learners=learners), both)
    torch.testing.assert_close(weights_of(both["small"]).double(), weights_of(alone["small"]).double(), **EXACT)
