"""Learners: the schedule of the learning rate, what a step moves."""

import math

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import AdamW, Clip, EntropyBonus, EqualTokens, GroupMean, Learner, PolicyGradient
from grpo_kit.learner import LiveLearner


def test_the_rate_warms_up_and_decays():
    linear = AdamW(lr=1.0, warmup_steps=3, decay="linear")
    # 1/4, 2/4, 3/4, then from 1 down to 0 over the 10 - 3 steps that are left
    assert [linear.rate(step, 10) for step in (0, 1, 2, 3)] == [0.25, 0.5, 0.75, 1.0]
    assert linear.rate(5, 10) == pytest.approx(5 / 7)
    assert linear.rate(10, 10) == 0.0
    assert linear.rate(11, 10) == 0.0
    assert AdamW(lr=1.0, decay="cosine").rate(5, 10) == pytest.approx(0.5)
    assert AdamW(lr=1.0, decay="cosine").rate(2, 8) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert AdamW(lr=1.0).rate(99, 10) == 1.0


@pytest.mark.parametrize(
    "wrong", [{"lr": 0.0}, {"lr": "1"}, {"lr": 1.0, "betas": (0.9, 1.0)}, {"lr": 1.0, "max_grad_norm": 0.0}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValidationError):
        AdamW(**wrong)


def learner(**changes):
    settings = {
        "terms": {"policy": PolicyGradient(advantage=GroupMean(), surrogate=Clip())},
        "weighting": EqualTokens(),
        "optimizer": AdamW(lr=0.5, warmup_steps=1, weight_decay=0.0),
    }
    return Learner(**settings | changes)


def test_a_learner_needs_a_term():
    with pytest.raises(ValidationError, match="terms"):
        learner(terms={})


def test_entropy_is_asked_for_by_terms():
    assert not learner().needs_entropy
    assert learner(terms={"entropy": EntropyBonus()}).needs_entropy


def test_a_step_moves_weights_schedule_and_version():
    own = tiny.policy()
    live = LiveLearner.start("small", learner(), own, loop_steps=2)
    before = [weight.detach().clone() for weight in own.model.parameters()]
    for weight in own.model.parameters():
        weight.grad = torch.ones_like(weight)
    assert live.schedule.get_last_lr() == [0.25]  # 0.5 x 1/2, the first of one warm-up step
    live.step()
    assert live.schedule.get_last_lr() == [0.5]
    assert own.version == 1
    for old, new in zip(before, own.model.parameters(), strict=True):
        torch.testing.assert_close(new, old - 0.25)  # Adam's first step is lr x sign of the gradient
