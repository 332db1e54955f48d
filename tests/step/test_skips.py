"""Numbers that are not finite: each stops the run where it arises, or is left out, counted and bounded."""

from dataclasses import dataclass, replace

import pytest
import torch

import tiny
from grpo_kit import Component, DivergenceTerm, NonFiniteError, PolicySpec, PromptSet, PromptStream, SampledKL
from grpo_kit.checkpoints.state import restore, state_of
from grpo_kit.loop import Training
from tiny_recipe import TERM, learner, recipe


@dataclass
class Infinite:
    """A reward that is infinite for the first row of some groups, and half of the row's number elsewhere."""

    groups: tuple[int, ...]
    per_token: bool = False

    def __call__(self, rollouts, signals):
        values = torch.arange(float(len(rollouts))) / 2
        first = [rollouts.groups.tolist().index(group) for group in self.groups if group in rollouts.groups]
        values[first] = -torch.inf
        values = values[:, None] * rollouts.mask if self.per_token else values
        values = torch.where(rollouts.mask, values, 0.0) if self.per_token else values
        return Component(values=values, statuses=("ok",) * len(rollouts))


@dataclass
class Once:
    """A surrogate whose loss is not finite the first `times` it is asked for one."""

    times: int
    asked: int = 0

    def __call__(self, log_ratio, advantages):
        self.asked += 1
        return log_ratio / 0 if self.asked <= self.times else -log_ratio * advantages


def training(**changes):
    given = recipe(steps=4, **changes)
    prompts = PromptSet(ids=tuple((2 + i, 3 + i) for i in range(8)), columns={}, skipped=())
    own = {name: tiny.policy(name, dtype=torch.float32) for name in given.policies}
    return Training.begin(given, own, PromptStream(prompts, seed=0))


def with_surrogate(surrogate, **changes):
    return training(learners={"small": learner(terms={"policy": replace(TERM, surrogate=surrogate)})}, **changes)


def weights(of):
    return torch.cat([weight.detach().flatten().clone() for weight in of.policies["small"].model.parameters()])


@pytest.mark.parametrize("per_token", [False, True])
def test_an_infinite_reward_is_named_where_it_arises(per_token):
    with pytest.raises(NonFiniteError, match=r"^step 1: reward 'task' of row 4 is infinite\. Bound it"):
        training(rewards={"task": Infinite((1,), per_token)}).advance()


def test_the_group_of_an_infinite_reward_is_left_out_whole():
    own = training(rewards={"task": Infinite((1,))}, max_non_finite_skips=1)
    report = own.advance()
    assert report.experience.rollouts.groups.tolist() == [0] * 4
    assert report.metrics["skipped"] == 1
    (line,) = report.skipped
    assert "reward 'task' of row 4" in line
    assert "Group 1 is left out (1 of 1 skips)" in line
    assert own.advance().metrics["skipped"] == 0


def test_one_more_than_allowed_stops_the_run():
    own = training(rewards={"task": Infinite((1, 3))}, max_non_finite_skips=1)
    own.advance()
    with pytest.raises(NonFiniteError, match=r"^step 2: .* 1 were skipped before, and max_non_finite_skips is 1"):
        own.advance()


def test_skips_are_counted_through_a_checkpoint():
    settings = {"rewards": {"task": Infinite((1, 3))}, "max_non_finite_skips": 1}
    first, second = training(**settings), training(**settings)
    first.advance()
    restore(second, state_of(first))
    with pytest.raises(NonFiniteError, match="1 were skipped before"):
        second.advance()


def test_a_step_without_any_group_left_stops_the_run():
    with pytest.raises(NonFiniteError, match=r"No group of the step is left"):
        training(rewards={"task": Infinite((0, 1))}, max_non_finite_skips=9).advance()


def test_a_score_that_is_not_finite_leaves_its_group_out(monkeypatch):
    kl = {"policy": TERM, "kl": DivergenceTerm(to="other", divergence=SampledKL())}
    settings = {
        "policies": {name: PolicySpec(model="tiny:small") for name in ("small", "other")},
        "learners": {"small": learner(terms=kl)},
    }
    own = training(**settings, max_non_finite_skips=1)
    policy = type(own.policies["other"])
    scored = policy.score_all

    def damaged(self, rollouts, **asked):
        found = scored(self, rollouts, **asked)
        if self is own.policies["other"]:
            found.logprobs[5, 0] = -torch.inf
        return found

    monkeypatch.setattr(policy, "score_all", damaged)
    report = own.advance()
    assert report.experience.rollouts.groups.tolist() == [0] * 4
    assert "policy 'other' (version 0) gives row 5 the log-probability -inf at token 0" in report.skipped[0]
    assert own.policies["small"].version == 1


def test_a_skipped_optimizer_step_changes_nothing():
    own = with_surrogate(Once(1), max_non_finite_skips=1)
    before, rate = weights(own), own.learners["small"].schedule.get_last_lr()
    report = own.advance()
    assert "term 'policy': the loss of row" in report.skipped[0]
    assert "This optimizer step is left out (1 of 1 skips)" in report.skipped[0]
    assert torch.equal(weights(own), before)
    assert own.policies["small"].version == 0
    assert own.learners["small"].schedule.get_last_lr() == rate
    assert not own.learners["small"].optimizer.state
    own.advance()
    assert not torch.equal(weights(own), before)
    assert own.policies["small"].version == 1


def test_weights_that_are_not_finite_always_stop_the_run(monkeypatch):
    own = training(max_non_finite_skips=9)
    step = type(own.learners["small"]).step

    def breaking(live):
        step(live)
        next(live.policy.model.parameters()).data[0] = torch.nan

    monkeypatch.setattr(type(own.learners["small"]), "step", breaking)
    with pytest.raises(NonFiniteError, match="its update left weights that are not finite"):
        own.advance()
