"""Law 4 for advantages taken at every update: zero at an equal teacher, apart token by token, a baseline on average."""

import torch
from hypothesis import strategies as st

from grpo_kit.head import Distributions, Head
from grpo_kit.signals import Scores, TopTokens
from laws.data import normal, shape
from laws.enumerated import K
from tolerances import EXACT


def scores(logits, tokens) -> Scores:
    """What a policy of given logits says of tokens, with its distributions and their top k."""
    logprobs = logits.log_softmax(-1)
    top = logprobs.topk(min(K, logits.shape[-1]))
    return Scores(
        logprobs=logprobs.gather(-1, tokens[..., None])[..., 0],
        top=TopTokens(ids=top.indices, logprobs=top.values),
        distributions=Distributions(hidden=logits, head=Head(None)),
    )


def advantages_of(advantage, student, teacher, tokens):
    """The advantage of each token from the logits of both policies, its control variate included."""
    current, other = scores(student, tokens), scores(teacher, tokens)
    found = advantage(current.logprobs, other.logprobs)
    variate = advantage.baseline(current, other, torch.ones_like(tokens, dtype=torch.bool))
    return found if variate is None else found + variate


def drawn(draw):
    """Logits of a student and of a teacher, and tokens."""
    rows, tokens, vocabulary = *shape(draw, max_rows=3, max_tokens=3), draw(st.integers(K, 6))
    student, teacher = (normal(draw, rows, tokens, vocabulary, scale=2.0) for _ in range(2))
    chosen = normal(draw, rows, tokens, vocabulary).argmax(-1)
    return student, teacher, chosen


def nothing_at_an_equal_teacher(advantage, draw):
    """Law 4: where the two agree there is nothing to learn, whatever the other rows are."""
    student, teacher, tokens = drawn(draw)
    student[0] = teacher[0]
    found = advantages_of(advantage, student, teacher, tokens)
    torch.testing.assert_close(found[0], torch.zeros_like(found[0]), **EXACT)


def tokens_are_apart(advantage, draw):
    """Law 2: each token has the advantage that it has alone."""
    student, teacher, tokens = drawn(draw)
    together = advantages_of(advantage, student, teacher, tokens)
    alone = advantages_of(advantage, student[:1, :1], teacher[:1, :1], tokens[:1, :1])
    torch.testing.assert_close(together[:1, :1], alone, **EXACT)


def nothing_of_it_is_learned(advantage, draw):
    """It is fixed at an update: no gradient flows through it."""
    student, teacher, tokens = drawn(draw)
    assert not advantages_of(advantage, student.requires_grad_(), teacher, tokens).requires_grad


def its_gradient_is_the_reverse_kl_s(advantage, draw):
    """Law 10: with the score function and the student's own tokens it is the exact gradient, state by state."""
    student, teacher, _ = drawn(draw)
    student, teacher = student[:1, :1].requires_grad_(), teacher[:1, :1]
    expected = 0
    for token in range(student.shape[-1]):
        tokens = torch.tensor([[token]])
        logprob = scores(student, tokens).logprobs
        expected = expected - logprob.detach().exp() * advantages_of(advantage, student, teacher, tokens) * logprob
    (found,) = torch.autograd.grad(expected.sum(), student)
    kl = (student.softmax(-1) * (student.log_softmax(-1) - teacher.log_softmax(-1))).sum()
    (exact,) = torch.autograd.grad(kl, student)
    torch.testing.assert_close(found, exact, **EXACT)


def its_mean_is_zero(advantage, draw):
    """The whole control variate takes the mean over the student's own tokens away."""
    student, teacher, _ = drawn(draw)
    student, teacher = student[:1, :1], teacher[:1, :1]
    total = 0
    for token in range(student.shape[-1]):
        tokens = torch.tensor([[token]])
        logprob = scores(student, tokens).logprobs
        total = total + logprob.exp() * advantages_of(advantage, student, teacher, tokens)
    torch.testing.assert_close(total, torch.zeros_like(total), **EXACT)
