"""CISPO, SAPO, GMPO and DPPO against loops written from the papers: values, and gradients by the papers' forms."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from grpo_kit import CISPO, DPPO, GMPO, SAPO, Clip, EqualRows, LogProbs
from laws.data import any_mask, normal, shape
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")


def agree(surrogate, paper, inputs, **asked):
    """Each token's loss and gradient are the two numbers that `paper(log_ratio, advantage, row, token)` gives."""
    log_ratio, advantages = inputs
    log_ratio.requires_grad_()
    loss = surrogate(log_ratio, advantages, **asked)
    (gradient,) = torch.autograd.grad(loss.sum(), log_ratio)
    for row in range(len(log_ratio)):
        for token in range(log_ratio.shape[1]):
            value, slope = paper(log_ratio[row, token].item(), advantages[row, token].item(), row, token)
            assert loss[row, token].item() == pytest.approx(value, rel=1e-10, abs=1e-12)
            assert gradient[row, token].item() == pytest.approx(slope, rel=1e-10, abs=1e-12)


def random(draw, scale=1.0):
    rows, tokens = shape(draw)
    return normal(draw, rows, tokens, scale=scale), normal(draw, rows, tokens)


CISPO_CASES = {
    "upper bound only": (CISPO(), 0.0, 5.0),
    "absolute": (CISPO(low=0.5, high=1.5), 0.5, 1.5),
    "relative": (CISPO(bound="relative", low=0.2, high=0.3), 0.8, 1.3),
    "relative, upper only": (CISPO(bound="relative", high=0.3), 0.0, 1.3),
}


@pytest.mark.parametrize("case", CISPO_CASES)
def test_cispo(case):
    """MiniMax-M1 (2506.13585): sg(clip(ratio)) A log pi, here against the anchor."""
    surrogate, low, high = CISPO_CASES[case]

    def paper(log_ratio, advantage, *_):
        weight = min(max(math.exp(log_ratio), low), high)
        return -weight * advantage * log_ratio, -weight * advantage

    @given(st.data())
    def run(data):
        agree(surrogate, paper, random(data.draw))

    run()


def test_cispo_names_what_it_bounds_but_does_not_stop():
    ratios = torch.tensor([[0.1, 0.9, 4.9, 5.1]])
    assert CISPO().clipped(ratios.log(), torch.ones(1, 4)).tolist() == [[False, False, False, True]]
    both = CISPO(bound="relative", low=0.2, high=0.2)
    assert both.clipped(ratios.log(), torch.ones(1, 4)).tolist() == [[True, False, True, True]]


def test_a_relative_bound_given_as_an_absolute_one_is_refused():
    """TRL's trap: epsilon_high = 0.2 there is a bound of the ratio itself (algorithms.md, 5)."""
    with pytest.raises(ValidationError, match=r"use bound = 'relative' for 1 \+ 0.2"):
        CISPO(high=0.2)
    assert CISPO(bound="relative", high=0.2).edges == (0.0, 1.2)


@pytest.mark.parametrize("taus", [(1.0, 1.05), (2.0, 0.5)])
def test_sapo(taus):
    """2511.20347: f(x) = sigmoid(tau (x - 1)) 4 / tau; its slope in log x is 4 p (1 - p) x."""

    def paper(log_ratio, advantage, *_):
        ratio, tau = math.exp(log_ratio), taus[0] if advantage > 0 else taus[1]
        gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
        return -4 / tau * gate * advantage, -4 * gate * (1 - gate) * ratio * advantage

    @given(st.data())
    def run(data):
        agree(SAPO(tau_positive=taus[0], tau_negative=taus[1]), paper, random(data.draw, scale=0.5))

    run()


def gmpo_level(log_ratios, advantages, low, high):
    """The row's mean of log-ratios, each clipped by the sign of its advantage (2507.20673)."""
    clipped = [min(x, high) if a >= 0 else max(x, -low) for x, a in zip(log_ratios, advantages, strict=True)]
    return sum(clipped) / len(clipped)


@pytest.mark.parametrize(("low", "high"), [(0.4, 0.4), (0.2, 0.6)])
def test_gmpo(low, high):
    @given(st.data())
    def run(data):
        log_ratio, advantages = random(data.draw)
        mask = any_mask(data.draw, *log_ratio.shape)

        def paper(value, advantage, row, token):
            if not mask[row, token]:
                return 0.0, 0.0
            own, signs = (tensor.detach()[row][mask[row]].tolist() for tensor in (log_ratio, advantages))
            loss = -advantage * math.exp(gmpo_level(own, signs, low, high))
            stopped = value > high if advantage >= 0 else value < -low
            return loss, 0.0 if stopped else loss

        chosen = torch.where(mask, log_ratio, 0), torch.where(mask, advantages, 0)
        agree(GMPO(low=low, high=high), paper, chosen, mask=mask)

    run()


@given(st.data())
def test_gmpos_gradient_is_that_of_the_papers_row(data):
    """With one advantage a row and equal rows it is -(1/R) sum_i A_i exp(mean_t clipped), value and gradient."""
    rows, tokens = shape(data.draw)
    mask = any_mask(data.draw, rows, tokens) | (torch.arange(tokens) == 0)
    log_ratio = torch.where(mask, normal(data.draw, rows, tokens), 0).requires_grad_()
    of_row = normal(data.draw, rows)
    advantages = torch.where(mask, of_row[:, None], 0)
    loss = (EqualRows()(mask) * GMPO()(log_ratio, advantages, mask)).sum()
    sign = torch.where(of_row >= 0, 1.0, -1.0)[:, None]
    clipped = sign * torch.minimum(sign * log_ratio, sign * log_ratio.clamp(-0.4, 0.4))
    level = torch.where(mask, clipped, 0).sum(1) / mask.sum(1)
    paper = (-of_row * level.exp()).mean()
    torch.testing.assert_close(loss, paper, **EXACT)
    found, expected = (torch.autograd.grad(each, log_ratio)[0] for each in (loss, paper))
    torch.testing.assert_close(found, expected, **EXACT)


def test_gmpo_b036():
    """Report B036: a negative row is clipped where its ratio fell, and keeps its gradient where it rose."""
    far, one = torch.tensor([[-5.0], [5.0]], requires_grad=True), torch.ones(2, 1, dtype=torch.bool)
    (gradient,) = torch.autograd.grad(GMPO()(far, -torch.ones(2, 1), one).sum(), far)
    assert gradient.tolist() == [[0.0], [pytest.approx(math.exp(5))]]


def divergence(kind, now, then):
    """Total variation, or KL(then || now), of the choice between a token and all others (2602.04879)."""
    if kind == "tv":
        return abs(now - then)
    return then * math.log(then / now) + (1 - then) * math.log((1 - then) / (1 - now))


@pytest.mark.parametrize(("kind", "low", "high"), [("tv", 0.15, 0.15), ("tv", 0.05, 0.3), ("kl", 0.05, 0.02)])
def test_dppo(kind, low, high):
    @given(st.data())
    def run(data):
        rows, tokens = shape(data.draw)
        current, anchor = (-normal(data.draw, rows, tokens).abs() - 0.01 for _ in range(2))
        record = LogProbs(current=current, anchor=anchor, behavior=anchor)

        def paper(log_ratio, advantage, row, token):
            now, then = (math.exp(float(values[row, token])) for values in (current, anchor))
            moved = divergence(kind, now, then)
            if (advantage > 0 and now > then and moved > high) or (advantage < 0 and now < then and moved > low):
                return 0.0, 0.0
            weight = min(now / then, 1.5)
            return -weight * advantage * log_ratio, -weight * advantage

        inputs = record.log_ratio, normal(data.draw, rows, tokens)
        agree(DPPO(divergence=kind, low=low, high=high, cap=1.5), paper, inputs, logprobs=record)

    run()


@pytest.mark.parametrize("kind", ["tv", "kl"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dppo_takes_certain_tokens(kind, dtype):
    """A probability of 1, in either policy or both, is a finite distance; a likely token is held by it."""
    now, then = torch.tensor([[0.0, 0.0, -3.0]], dtype=dtype), torch.tensor([[0.0, -3.0, 0.0]], dtype=dtype)
    record = LogProbs(current=now, anchor=then, behavior=then)
    surrogate, up = DPPO(divergence=kind), torch.ones(1, 3, dtype=dtype)
    assert surrogate(record.log_ratio, up, record).isfinite().all()
    assert surrogate.clipped(record.log_ratio, up, record).tolist() == [[False, True, False]]
    assert surrogate.clipped(record.log_ratio, -up, record).tolist() == [[False, False, True]]


def test_dppo_leaves_unlikely_tokens_free_where_a_clip_stops_them():
    """The paper's point: from 1 in 1000 to 1 in 100 is a ratio of 10 and hardly any divergence."""
    now, then = torch.tensor([[0.01]]).log(), torch.tensor([[0.001]]).log()
    record, up = LogProbs(current=now, anchor=then, behavior=then), torch.ones(1, 1)
    assert Clip().clipped(record.log_ratio, up).all()
    assert not DPPO().clipped(record.log_ratio, up, record).any()


@pytest.mark.parametrize(
    ("surrogate", "wrong"),
    [
        (CISPO, {"bound": "both"}),
        (CISPO, {"low": 1.5}),
        (SAPO, {"tau_positive": 0.0}),
        (GMPO, {"low": -0.1}),
        (DPPO, {"divergence": "js"}),
        (DPPO, {"cap": 1.0}),
    ],
)
def test_wrong_settings_are_refused(surrogate, wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        surrogate(**wrong)
