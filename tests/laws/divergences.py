"""Law 7: nothing at teacher = student, the named target's gradient in expectation, and a teacher that matters."""

from dataclasses import replace
from functools import cache

import torch
from hypothesis import strategies as st

import tiny
from grpo_kit import DivergenceTerm, Experience, Rewards, SampledKL, Scores, SignalKey, Signals
from grpo_kit.memory import Memory
from laws.data import any_mask, normal, shape
from tolerances import EXACT


def term_of(divergence) -> DivergenceTerm:
    """A divergence in the term that takes it: `k1` is of use with importance alone."""
    return DivergenceTerm(to="other", divergence=divergence, importance=divergence == SampledKL(estimator="k1"))


def nothing_at_the_teacher(divergence, draw):
    """Law 7: value and gradient are zero where the two agree."""
    other = normal(draw, *shape(draw))
    current = other.clone().requires_grad_()
    loss = divergence(current, other)
    (gradient,) = torch.autograd.grad(loss.sum(), current)
    assert (loss == 0).all()
    assert (gradient == 0).all()


def never_negative(divergence, draw):
    """A distance."""
    rows, tokens = shape(draw)
    assert (divergence(normal(draw, rows, tokens), normal(draw, rows, tokens)) >= 0).all()


def the_teacher_matters(divergence, draw):
    """Law 7: a teacher that differs changes the gradient."""
    rows, tokens = shape(draw)
    current = normal(draw, rows, tokens).requires_grad_()
    first = normal(draw, rows, tokens)
    second = first + 0.1 + normal(draw, rows, tokens).abs()
    (one,) = torch.autograd.grad(divergence(current, first).sum(), current)
    (two,) = torch.autograd.grad(divergence(current, second).sum(), current)
    assert ((one - two).abs() > 1e-9).any()


def tokens_do_not_see_each_other(divergence, draw):
    """Law 2 for losses per token."""
    rows, tokens = shape(draw)
    current, other, mask = normal(draw, rows, tokens), normal(draw, rows, tokens), any_mask(draw, rows, tokens)
    alone = divergence(torch.where(mask, current, 0), torch.where(mask, other, 0))
    torch.testing.assert_close(alone[mask], divergence(current, other)[mask], **EXACT)
    assert (alone[~mask] == 0).all()


def reverse_kl(p, q):
    """KL(p || q) of two logit vectors."""
    return (p.softmax(-1) * (p.log_softmax(-1) - q.log_softmax(-1))).sum()


def forward_kl(p, q):
    """KL(q || p) of two logit vectors."""
    return reverse_kl(q, p)


def nothing(p, q):
    """No target at all: its gradient is zero."""
    return 0 * p.sum()


@cache
def expected_gradient_is_that_of(target):
    """Law 7: the gradient in expectation over the current policy's own tokens is exactly the target's."""

    def law(divergence, draw):
        count = draw(st.integers(2, 5))
        p, q = normal(draw, count).requires_grad_(), normal(draw, count)
        (exact,) = torch.autograd.grad(target(p, q), p)
        # Every token once, one a row, each loss weighted by the (fixed) probability of drawing it.
        losses = divergence(p.log_softmax(-1)[:, None], q.log_softmax(-1)[:, None])[:, 0]
        (expected,) = torch.autograd.grad((p.detach().softmax(-1) * losses).sum(), p)
        torch.testing.assert_close(expected, exact, **EXACT)

    return law


def expected_value_is_the_reverse_kl(divergence, draw):
    """Law 7: the value in expectation over the current policy's own tokens."""
    count = draw(st.integers(2, 5))
    p, q = normal(draw, count), normal(draw, count)
    values = divergence(p.log_softmax(-1)[:, None], q.log_softmax(-1)[:, None])[:, 0]
    torch.testing.assert_close((p.softmax(-1) * values).sum(), reverse_kl(p, q), **EXACT)


def off_policy_gradient(term, current, other, writer):
    """The expected gradient of a term over tokens that any writer draws, one a row: three logit vectors."""
    leaf = current.detach().requires_grad_()
    rows = tiny.rollouts([1] * len(leaf), [0] * len(leaf))
    rows = replace(rows, behavior=replace(rows.behavior, logprobs=writer.log_softmax(-1)[:, None]))
    # At scoring time the learner was itself another one; a loss of the current policy does not look there.
    scored = {"other": other, "small": writer.flip(0)}
    signals = Signals({SignalKey(k, 0): Scores(logprobs=v.log_softmax(-1)[:, None]) for k, v in scored.items()})
    experience = Experience(rollouts=rows, signals=signals, rewards=Rewards({}))
    frozen = term.freeze(experience, tiny.learner_rewards(rows, [0.0] * len(leaf)), "small", Memory())
    loss = term(Scores(logprobs=leaf.log_softmax(-1)[:, None], entropy=None), frozen, rows.mask, rows.mask)[:, 0]
    return torch.autograd.grad(term.weight * (writer.softmax(-1) * loss).sum(), leaf)[0]


@cache
def off_policy_gradient_is_that_of(target):
    """Law 7 for a term: so is it over the tokens of any other writer."""

    def law(term, draw):
        count = draw(st.integers(2, 5))
        current, other, writer = (normal(draw, count) for _ in range(3))
        leaf = current.clone().requires_grad_()
        (exact,) = torch.autograd.grad(target(leaf, other), leaf)
        found = off_policy_gradient(term, current, other, writer)
        factor = term.adaptive.start if getattr(term, "adaptive", None) else term.weight
        torch.testing.assert_close(found, factor * exact, **EXACT)

    return law
