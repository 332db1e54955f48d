"""Divergences: the values and slopes of the estimators, and the coefficient that follows a target."""

import math

import pytest
import torch
from pydantic import ValidationError

from grpo_kit import AdaptiveCoefficient, SampledKL
from tolerances import EXACT

ESTIMATORS = ["k1", "k2", "k3", "k1+", "k3+"]
VALUES = {
    "k1": lambda d: d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: math.exp(-d) - 1 + d,
    "k1+": lambda d: d,
    "k3+": lambda d: math.exp(-d) - 1 + d,
}
SLOPES = {
    "k1": lambda d: 1.0,
    "k2": lambda d: d,
    "k3": lambda d: 1 - math.exp(-d),
    "k1+": lambda d: d,
    "k3+": lambda d: d,
}
"""The factor of grad log pi in each token's gradient."""


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_value_and_slope_of_each_estimator(estimator):
    current = torch.tensor([[-1.0, -2.0, -0.3]], requires_grad=True)
    other = torch.tensor([[-3.0, -0.5, -0.3]])
    loss = SampledKL(estimator=estimator)(current, other)
    (slope,) = torch.autograd.grad(loss.sum(), current)
    ratios = (current - other).detach()[0].tolist()
    torch.testing.assert_close(loss[0], torch.tensor([VALUES[estimator](d) for d in ratios]), **EXACT)
    torch.testing.assert_close(slope[0], torch.tensor([SLOPES[estimator](d) for d in ratios]), **EXACT)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_on_tokens_of_another_writer_the_gradient_is_the_writers_mean(estimator):
    """E_mu[slope grad log pi], worked out by hand: d log pi(o) / d logit(v) = [o = v] - pi(v)."""
    logits, q, mu = torch.tensor([0.3, -1.0, 0.6]), torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.6, 0.3, 0.1])
    leaf = logits.clone().requires_grad_()
    losses = SampledKL(estimator=estimator)(leaf.log_softmax(-1)[None], q.log()[None])[0]
    (found,) = torch.autograd.grad((mu * losses).sum(), leaf)
    pi = logits.softmax(-1).tolist()
    expected = [
        sum(
            float(mu[o]) * SLOPES[estimator](math.log(pi[o] / float(q[o]))) * ((o == v) - pi[v]) for o in range(len(pi))
        )
        for v in range(len(pi))
    ]
    torch.testing.assert_close(found, torch.tensor(expected), **EXACT)


@pytest.mark.parametrize("d", [1e-4, -1e-4, 1e-3])
def test_k3_of_a_small_log_ratio_is_not_lost_in_rounding(d):
    found = SampledKL(estimator="k3")(torch.tensor([[d]]), torch.zeros(1, 1))
    assert float(found) == pytest.approx(d * d / 2, rel=1e-2)  # to first order; exp(-d) - 1 is off by 6e-8 alone


def test_the_other_policy_may_say_impossible_without_a_silent_nan():
    loss = SampledKL(estimator="k3+")(torch.tensor([[-1.0]]), torch.tensor([[-torch.inf]]))
    assert not loss.isfinite().any()  # accumulate names the row


@pytest.mark.parametrize("kl", [0.01, 0.1, 0.105, 3.0, -1.0])
def test_the_coefficient_moves_as_in_the_paper(kl):
    controller = AdaptiveCoefficient(start=0.3, target=0.1, horizon=10.0)
    coefficient, state = controller(kl, controller.init())
    proportional = max(-0.2, min(0.2, (kl - 0.1) / 0.1))
    assert coefficient == 0.3  # the batch's own KL moves that of the next
    assert state == pytest.approx(0.3 * (1 + 0.1 * proportional))  # K_beta = 0.1


def test_the_coefficient_finds_the_target_of_a_kl_that_falls_with_it():
    controller = AdaptiveCoefficient(start=1.0, target=0.05)
    state = controller.init()
    for _ in range(600):
        coefficient, state = controller(0.01 / state, state)
    assert coefficient == pytest.approx(0.2, rel=1e-3)  # 0.01 / 0.2 = 0.05


def test_a_kl_that_was_not_measured_leaves_the_coefficient():
    assert AdaptiveCoefficient(start=1.0, target=0.05)(math.nan, 0.7) == (0.7, 0.7)


@pytest.mark.parametrize(
    "settings", [{"start": 0.0}, {"target": 0.0}, {"horizon": 0.5}, {"clip": 1.0}, {"clip": 0.0}, {"beta": 1.0}]
)
def test_impossible_settings_of_the_coefficient_are_refused(settings):
    with pytest.raises(ValidationError, match=next(iter(settings))):
        AdaptiveCoefficient(**{"start": 0.1, "target": 0.1} | settings)


def test_unknown_estimators_are_refused():
    with pytest.raises(ValidationError, match="estimator"):
        SampledKL(estimator="k2+")
