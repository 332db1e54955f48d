"""Law 7 for divergences over whole distributions: exact by enumeration, zero at the teacher, honest about the top k."""

import math
from dataclasses import replace

import torch
from hypothesis import strategies as st

from grpo_kit.signals import TopTokens
from laws.data import normal, order, shape
from laws.enumerated import K, loss_and_gradient
from tolerances import EXACT


def loss_of(divergence, student, teacher):
    """The loss of each token from logits, as a term asks for it."""
    current, other = student.log_softmax(-1), teacher.log_softmax(-1)
    top_k = getattr(divergence, "top_k", None)
    if top_k is None:
        return divergence(current, other)
    likeliest = other.topk(min(top_k.k, other.shape[-1]))
    top = TopTokens(ids=likeliest.indices, logprobs=likeliest.values)
    return divergence(*top_k.events(current, top))


def loss_and_slope(divergence, student, teacher):
    """The loss of each token and its gradient by the student's logits."""
    leaf = student.clone().requires_grad_()
    loss = loss_of(divergence, leaf, teacher)
    return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


def logits(draw, *, least=2, most=7, scale=2.0):
    """Logits of a student and of a teacher for the same tokens."""
    rows, tokens, vocabulary = *shape(draw, max_rows=3, max_tokens=3), draw(st.integers(least, most))
    return tuple(normal(draw, rows, tokens, vocabulary, scale=scale) for _ in range(2))


def nothing_at_an_equal_teacher(divergence, draw):
    """Value and gradient are zero where the two distributions agree."""
    _, teacher = logits(draw)
    loss, slope = loss_and_slope(divergence, teacher + normal(draw, *teacher.shape[:2], 1), teacher)
    torch.testing.assert_close(loss, torch.zeros_like(loss), **EXACT)
    torch.testing.assert_close(slope, torch.zeros_like(slope), **EXACT)


def never_below_zero(divergence, draw):
    """A distance, up to rounding."""
    assert (loss_of(divergence, *logits(draw)) >= -EXACT["atol"]).all()


def equal_to_enumeration(divergence, draw):
    """Value and gradient are those of the definition, worked out in loops."""
    agree_with_loops(divergence, *logits(draw))


def agree_with_loops(divergence, student, teacher):
    """One comparison with the loops, token by token, where the true value is finite."""
    loss, slope = loss_and_slope(divergence, student, teacher)
    named = getattr(divergence, "stands_for", divergence)
    for row in range(len(student)):
        for token in range(student.shape[1]):
            value, gradient = loss_and_gradient(named, student[row, token].tolist(), teacher[row, token].tolist())
            if math.isfinite(value):
                torch.testing.assert_close(loss[row, token], torch.tensor(value), **EXACT)
                torch.testing.assert_close(slope[row, token], torch.tensor(gradient), **EXACT)


def impossible_events_are_harmless(divergence, draw):
    """Tokens without probability on either side: no NaN in value or gradient where the true value is finite."""
    student, teacher = logits(draw, least=K + 1)
    for given in draw(st.sampled_from([(student,), (teacher,), (student, teacher)])):
        # The top k is possible, so that there is one; each side has tokens of its own without probability, or both.
        gone = order(draw, student.shape[-1])[: draw(st.integers(1, student.shape[-1] - K))]
        given[..., gone] = -torch.inf
    if draw(st.booleans()):
        student = torch.where(teacher.isinf(), -torch.inf, student)
    agree_with_loops(divergence, student, teacher)


def another_teacher_is_another_gradient(divergence, draw):
    """A teacher that differs in what the part sees changes the gradient."""
    student, teacher = logits(draw, least=4)
    ranks = teacher.argsort(-1, descending=True).argsort(-1)
    moved = teacher + torch.where(ranks == 0, 1.0, 0.0)  # the likeliest token becomes likelier
    one, two = loss_and_slope(divergence, student, teacher)[1], loss_and_slope(divergence, student, moved)[1]
    assert ((one - two).abs().amax(-1) > 1e-9).all()


def a_top_k_sees_nothing_outside(divergence, draw):
    """Another teacher with the same top k, and so the same mass outside, is the same loss."""
    student, teacher = logits(draw, least=K + 2)
    ranks = teacher.argsort(-1, descending=True)
    outside = ranks[..., K:]
    swapped = teacher.scatter(-1, outside, teacher.gather(-1, outside.flip(-1)))
    for one, two in zip(
        loss_and_slope(divergence, student, teacher), loss_and_slope(divergence, student, swapped), strict=True
    ):
        torch.testing.assert_close(one, two, **EXACT)


def whole(divergence):
    """The same divergence over the whole vocabulary."""
    return replace(getattr(divergence, "stands_for", divergence), top_k=None)


def a_part_is_not_above_the_whole(divergence, draw):
    """Data processing: what is seen of two distributions is no farther apart than they are."""
    student, teacher = logits(draw, least=K + 1)
    seen, full = loss_of(divergence, student, teacher), loss_of(whole(divergence), student, teacher)
    assert (seen <= full + EXACT["atol"]).all()


def the_top_of_everything_is_everything(divergence, draw):
    """A top k of the whole vocabulary, or more, is the whole divergence, value and gradient."""
    student, teacher = logits(draw, most=K)
    for one, two in zip(
        loss_and_slope(divergence, student, teacher), loss_and_slope(whole(divergence), student, teacher), strict=True
    ):
        torch.testing.assert_close(one, two, **EXACT)


def tokens_are_apart(divergence, draw):
    """Law 2 for losses per token: each is that of its own two distributions alone."""
    student, teacher = logits(draw)
    together, slope = loss_and_slope(divergence, student, teacher)
    for row in range(len(student)):
        alone, own = loss_and_slope(divergence, student[row : row + 1, :1], teacher[row : row + 1, :1])
        torch.testing.assert_close(alone[0, 0], together[row, 0], **EXACT)
        torch.testing.assert_close(own[0, 0], slope[row, 0], **EXACT)


def ids_have_no_order(divergence, draw):
    """Renaming the tokens of the vocabulary changes no loss, and the gradient goes with the names."""
    student, teacher = logits(draw)
    renamed = order(draw, student.shape[-1])
    loss, slope = loss_and_slope(divergence, student, teacher)
    same, moved = loss_and_slope(divergence, student[..., renamed], teacher[..., renamed])
    torch.testing.assert_close(same, loss, **EXACT)
    torch.testing.assert_close(moved, slope[..., renamed], **EXACT)


def the_ends_are_a_jump(divergence, draw):
    """Near its ends a JSD vanishes, as its share times the KL that the end itself is."""
    student, teacher = logits(draw)
    near = 1e-7
    inside = replace(divergence, beta=abs(divergence.beta - near))
    at, beside = (loss_of(part, student, teacher) for part in (divergence, inside))
    torch.testing.assert_close(beside / near, at, rtol=1e-4, atol=1e-6)
