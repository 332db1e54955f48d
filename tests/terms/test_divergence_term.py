"""The divergence term: importance, the adaptive coefficient, what it refuses and why."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import (
    AdamW,
    AdaptiveCoefficient,
    DivergenceTerm,
    EqualTokens,
    Learner,
    NonFiniteError,
    SampledKL,
    Scores,
    SignalKey,
    Signals,
)
from grpo_kit.formula import plain
from grpo_kit.learner import LiveLearner
from grpo_kit.learner_batch import freeze
from grpo_kit.memory import Memory
from grpo_kit.objective import accumulate
from laws.divergences import forward_kl, off_policy_gradient, reverse_kl
from tolerances import CLEARLY_DIFFERENT, EXACT

pytestmark = pytest.mark.usefixtures("float64")
K3 = SampledKL(estimator="k3")
ADAPTIVE = AdaptiveCoefficient(start=0.5, target=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"divergence": SampledKL(estimator="k1")}, "expected gradient of zero.*'k2'.*'k3'.*importance = true"),
        ({"divergence": SampledKL(), "importance": True}, "half the mean square.*Use 'k1' or 'k3'"),
        ({"divergence": SampledKL(estimator="k1+"), "importance": True}, "twice the gradient of the reverse KL. "),
        ({"divergence": SampledKL(estimator="k3+"), "importance": True}, "twice .* less that of the forward KL"),
        ({"divergence": K3, "adaptive": ADAPTIVE, "weight": 0.1}, "weight 0.1 would be a second one"),
    ],
)
def test_what_would_not_be_the_gradient_of_a_kl_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        DivergenceTerm(to="ref", **settings)


def half_mean_square(p, q):
    """E_p[d^2 / 2] of two logit vectors."""
    return (p.softmax(-1) * (p.log_softmax(-1) - q.log_softmax(-1)).square() / 2).sum()


REASONS = {
    "k2": half_mean_square,
    "k1+": lambda p, q: 2 * reverse_kl(p, q),
    "k3+": lambda p, q: 2 * reverse_kl(p, q) - forward_kl(p, q),
}


@pytest.mark.parametrize("estimator", REASONS)
def test_the_reason_of_each_refusal_with_importance_is_true(estimator):
    generator = torch.Generator().manual_seed(2)
    current, other, writer = torch.randn(3, 4, generator=generator)

    def unchecked(now, then):
        return SampledKL(estimator=estimator)(now, then)

    term = DivergenceTerm(to="other", divergence=unchecked, importance=True)
    leaf = current.clone().requires_grad_()
    (exact,) = torch.autograd.grad(REASONS[estimator](leaf, other), leaf)
    torch.testing.assert_close(off_policy_gradient(term, current, other, writer), exact, **EXACT)
    (wanted,) = torch.autograd.grad(reverse_kl(leaf, other), leaf)
    assert (exact - wanted).abs().max() > CLEARLY_DIFFERENT


def test_k1_without_importance_pushes_away_from_the_writer():
    current, other, writer = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))

    def unchecked(now, then):
        return now - then

    found = off_policy_gradient(DivergenceTerm(to="other", divergence=unchecked), current, other, writer)
    leaf = current.clone().requires_grad_()
    (away,) = torch.autograd.grad(-reverse_kl(writer, leaf), leaf)
    torch.testing.assert_close(found, away, **EXACT)


def test_the_weight_is_current_over_behavior_and_multiplies_the_loss():
    rows = tiny.rollouts([3, 2], [0, 0])
    written = torch.where(rows.mask, rows.behavior.logprobs, torch.nan)
    rows = replace(rows, behavior=replace(rows.behavior, logprobs=written))
    experience = tiny.experience(rows, {}, [tiny.policy("other")])
    term = DivergenceTerm(to="other", divergence=K3, importance=True)
    frozen = term.freeze(experience, tiny.learner_rewards(rows, [0.0, 0.0]), "small", Memory())
    assert frozen["behavior"] is rows.behavior.logprobs
    counted = rows.mask & torch.tensor([[True, False, True]])
    current = torch.where(rows.mask, rows.behavior.logprobs + 0.4, torch.nan)
    loss = term(Scores(logprobs=current), frozen, rows.mask, counted)
    plain_loss = K3(current, experience.signals["other"].logprobs)
    torch.testing.assert_close(loss[counted], plain_loss[counted] * torch.tensor(0.4).exp(), **EXACT)
    assert (loss[~counted] == 0).all()
    assert term.reads("small") == ("other",)


def test_a_weight_that_overflows_stops_the_run_naming_the_row():
    own = tiny.policy(dtype=torch.float32)
    rows = tiny.rollouts([2, 2], [0, 0])
    impossible = rows.behavior.logprobs.clone()
    impossible[1, 0] = -1e4
    rows = replace(rows, behavior=replace(rows.behavior, logprobs=impossible))
    term = DivergenceTerm(to="other", divergence=K3, importance=True)
    settings = Learner(terms={"kl": term}, weighting=EqualTokens(), optimizer=AdamW(lr=1e-3))
    experience = tiny.experience(rows, {}, [own, tiny.policy("other", seed=1)])
    batch = freeze("small", settings, experience, torch.ones(2, dtype=torch.bool), Memory())
    with pytest.raises(NonFiniteError, match=r"term 'kl': the loss of row 1 is inf at token 0.*bound the ratio"):
        accumulate(LiveLearner.start("small", settings, own, loop_steps=1), batch, [0, 1], step=1)


def measured(divergences, counted):
    """A term whose own scores give the divergences, frozen once a batch with one memory; and the memory."""
    rows, memory = tiny.rollouts([2, 2], [0, 0]), Memory()
    term = DivergenceTerm(to="ref", divergence=SampledKL(estimator="k1+"), adaptive=ADAPTIVE)
    found = []
    for each in divergences:
        scores = {
            SignalKey("small", 0): Scores(logprobs=torch.tensor(each) - 1),
            SignalKey("ref", 0): Scores(logprobs=torch.full((2, 2), -1.0)),
        }
        experience = replace(tiny.experience(rows, {}, []), signals=Signals(scores))
        returns = tiny.learner_rewards(rows, [0.0, 0.0], counted=torch.tensor(counted))
        found.append(term.freeze(experience, returns, "small", memory.under("learners.small.terms.kl")))
    return term, found, memory


def test_the_coefficient_follows_the_mean_over_the_counted_tokens():
    counted = [[True, True], [True, False]]
    batches = [[[0.1, 0.2], [0.6, 9.0]], [[0.11, 0.11], [0.11, 9.0]], [[0.0, 0.0], [0.0, 9.0]]]
    term, frozen, memory = measured(batches, counted)
    assert term.reads("small") == ("ref", "small")
    reports = [term.report(each) for each in frozen]
    assert [report["kl"] for report in reports] == pytest.approx([0.3, 0.11, 0.0])  # 0.9 / 3, ...
    # 200 % above the target counts as 20 %, then 10 % above; the last one moves the coefficient of the next batch
    expected = [0.5, 0.5 * 1.02, 0.5 * 1.02 * 1.01]
    assert [report["coefficient"] for report in reports] == pytest.approx(expected)
    assert memory.states == {"learners.small.terms.kl.adaptive": pytest.approx(expected[-1] * 0.98)}
    loss = term(Scores(logprobs=torch.full((2, 2), -0.7)), frozen[1], torch.ones(2, 2) > 0, torch.tensor(counted))
    torch.testing.assert_close(loss, torch.tensor([[0.3, 0.3], [0.3, 0.0]]) * 0.51, **EXACT)


def test_b011_a_row_without_tokens_and_a_batch_without_any_keep_the_coefficient_finite():
    one_row = [[True, True], [False, False]]
    nan = float("nan")
    term, frozen, memory = measured([[[0.1, 0.3], [nan, nan]]], one_row)
    assert term.report(frozen[0])["kl"] == pytest.approx(0.2)
    assert memory.states["learners.small.terms.kl.adaptive"] == pytest.approx(0.5 * 1.02)
    _, frozen, memory = measured([[[0.1, 0.3], [0.0, 0.0]]], [[False] * 2] * 2)
    assert memory.states["learners.small.terms.kl.adaptive"] == 0.5
    loss = term(Scores(logprobs=torch.zeros(2, 2)), frozen[0], torch.ones(2, 2) > 0, torch.zeros(2, 2) > 0)
    assert (loss == 0).all()


def test_a_term_without_adaptive_reports_nothing_and_keeps_no_state():
    rows, memory = tiny.rollouts([2], [0]), Memory()
    term = DivergenceTerm(to="other", divergence=K3)
    frozen = term.freeze(
        tiny.experience(rows, {}, [tiny.policy("other")]), tiny.learner_rewards(rows, [0.0]), "small", memory
    )
    assert term.report(frozen) == {}
    assert memory.states == {}
    assert list(frozen) == ["other"]


def test_the_formula_names_every_factor():
    def of(**settings):
        return plain(DivergenceTerm(to="ref", divergence=K3, **settings).formula)

    assert of() == plain(K3.formula)
    assert of(importance=True) == f"(π_θ(o_it)) / (μ(o_it)) · [{plain(K3.formula)}]"
    assert of(adaptive=ADAPTIVE) == f"β · [{plain(K3.formula)}]"
    assert of(adaptive=ADAPTIVE, importance=True) == f"β · {of(importance=True)}"
    assert DivergenceTerm(to="ref", divergence=lambda a, b: a - b, importance=True).formula is None
