"""Law 7: nothing at teacher = student, the named target's gradient in expectation, and a teacher that matters."""

from functools import cache

import torch
from hypothesis import strategies as st

from laws.data import any_mask, normal, shape
from tolerances import EXACT


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
