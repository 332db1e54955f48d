"""Surrogates against loops written from the papers."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from grpo_kit import Clip, Reinforce
from laws.data import normal, shape
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")


def clip(log_ratio, advantage, low, high, cap):
    """PPO (1707.06347) with the dual clip (1912.09729) of negative advantages."""
    ratio = math.exp(log_ratio)
    objective = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    if cap is not None and advantage < 0:
        objective = max(objective, cap * advantage)
    return -objective


@pytest.mark.parametrize(("low", "high", "cap"), [(0.2, 0.2, None), (0.2, 0.28, None), (0.1, 0.3, 3.0), (0, 0, 1.5)])
def test_clip(low, high, cap):
    @given(st.data())
    def run(data):
        rows, tokens = shape(data.draw)
        log_ratio = normal(data.draw, rows, tokens)
        advantages = normal(data.draw, rows, tokens)
        found = Clip(low=low, high=high, cap=cap)(log_ratio, advantages)
        for row in range(rows):
            for token in range(tokens):
                expected = clip(float(log_ratio[row, token]), float(advantages[row, token]), low, high, cap)
                assert float(found[row, token]) == pytest.approx(expected, rel=1e-12)

    run()


def test_a_token_without_advantage_has_neither_loss_nor_gradient():
    log_ratio = torch.tensor([[-50.0, 0.0, 1e4]], requires_grad=True)
    loss = Clip()(log_ratio, torch.zeros(1, 3))
    (gradient,) = torch.autograd.grad(loss.sum(), log_ratio)
    assert (loss == 0).all()
    assert (gradient == 0).all()


def test_reinforce_has_the_score_functions_gradient_at_any_ratio():
    log_ratio = torch.tensor([[-5.0, 0.0, 5.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, -2.0, 3.0]])
    (gradient,) = torch.autograd.grad(Reinforce()(log_ratio, advantages).sum(), log_ratio)
    torch.testing.assert_close(gradient, -advantages, **EXACT)


@pytest.mark.parametrize("cap", [0.5, 1.2])
def test_a_cap_inside_the_clip_is_refused(cap):
    with pytest.raises(ValidationError, match="not above 1 \\+ high"):
        Clip(cap=cap)


@pytest.mark.parametrize("low", [-0.1, 1.0, 1.5])
def test_low_is_in_zero_to_one(low):
    with pytest.raises(ValidationError, match="low"):
        Clip(low=low)
