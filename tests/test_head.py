"""Law 11: what is read of distributions chunk by chunk is what dense PyTorch reads, in value and gradient."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from grpo_kit.detail import Detail
from grpo_kit.head import Distributions, Head, entropy, minimize, read, reading
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")
TOKENS, WIDTH, VOCABULARY = 7, 5, 11


def inputs(seed: int, *, bias: bool = False):
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(TOKENS, WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    added = torch.randn(VOCABULARY, generator=draw, dtype=torch.float64).requires_grad_() if bias else None
    ids = torch.randint(VOCABULARY - 2, (TOKENS,), generator=draw)
    factors = torch.randn(2, TOKENS, generator=draw, dtype=torch.float64)
    return hidden, weight, added, ids, factors


def dense(hidden, weight, bias, ids, factors, temperature, cut):
    """The same from all logits at once."""
    logits = hidden @ weight[:cut].T + (0 if bias is None else bias[:cut])
    logprobs = (logits / temperature).log_softmax(1)
    own = logprobs.gather(1, ids[:, None])[:, 0]
    spread = -(logprobs.exp() * logprobs).sum(1)
    return own, spread, (factors[0] * own + factors[1] * spread).sum()


@given(st.integers(0, 99), st.integers(1, 100), st.sampled_from([0.5, 1.0, 2.0]), st.booleans(), st.booleans())
def test_chunks_change_neither_value_nor_gradient(seed, size, temperature, bias, partly):
    hidden, weight, added, ids, factors = inputs(seed, bias=bias)
    cut = VOCABULARY - 2 if partly else VOCABULARY
    head = Head(weight[:cut], None if added is None else added[:cut])
    leaves = [hidden, weight, *([] if added is None else [added])]
    own, spread, total = dense(hidden, weight, added, ids, factors, temperature, cut)
    expected = torch.autograd.grad(total, leaves)

    function = reading(ids, Detail(entropy=True), temperature)
    found = read(function, hidden, head, size=size)
    torch.testing.assert_close(found[0], own, **EXACT)
    torch.testing.assert_close(found[1], spread, **EXACT)
    again = torch.autograd.grad((factors[0] * found[0] + factors[1] * found[1]).sum(), leaves)
    torch.testing.assert_close(again, expected, rtol=1e-9, atol=1e-10)

    def summed(logits, part):
        values = function(logits, part)
        return (factors[0][part] * values[0] + factors[1][part] * values[1]).sum(), values[:1]

    sum_, (values,) = minimize(summed, hidden, head, size=size)
    torch.testing.assert_close(sum_, total, **EXACT)
    torch.testing.assert_close(values, own.detach(), **EXACT)
    tripled = tuple(3 * gradient for gradient in expected)
    torch.testing.assert_close(torch.autograd.grad(3 * sum_, leaves), tripled, rtol=1e-9, atol=1e-10)


def test_the_likeliest_tokens_and_a_head_that_is_no_map():
    hidden, weight, _, ids, _ = inputs(0)
    logits = (hidden @ weight.T).detach()
    for states, head in ((hidden, Head(weight)), (logits, Head(None))):
        own, top, theirs = read(reading(ids, Detail(top_k=3), 1.0), states, head, size=20)
        torch.testing.assert_close(own, logits.log_softmax(1).gather(1, ids[:, None])[:, 0], **EXACT)
        expected = logits.log_softmax(1).topk(3, dim=1)
        assert torch.equal(top, expected.indices)
        torch.testing.assert_close(theirs, expected.values, **EXACT)


def test_no_tokens_are_no_loss():
    hidden, weight, *_ = inputs(0)
    none = hidden[:0]
    assert read(reading(torch.zeros(0, dtype=torch.long), Detail(), 1.0), none, Head(weight))[0].shape == (0,)
    total, _ = minimize(lambda logits, part: (logits.sum(), ()), none, Head(weight))
    assert float(total.detach()) == 0
    assert float(torch.autograd.grad(total, weight)[0].abs().sum()) == 0


def test_an_impossible_token_leaves_the_entropy_finite():
    logits = torch.tensor([[0.0, -torch.inf, 0.0]])
    assert float(entropy(logits.log_softmax(1))) == pytest.approx(float(torch.tensor(2.0).log()))


def test_a_snapshot_stays_where_it_was():
    hidden, weight, *_ = inputs(0)
    live = Distributions(hidden=hidden.detach(), head=Head(weight))
    kept, before = live.snapshot(), live.logprobs().detach().clone()
    with torch.no_grad():
        weight += 1.0 + torch.arange(VOCABULARY)[:, None]
    torch.testing.assert_close(kept.logprobs(), before, **EXACT)
    assert (live.logprobs() - before).abs().max() > 0.1


class Largest(TorchDispatchMode):
    """Remembers the most numbers that any result had."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for value in found if isinstance(found, tuple | list) else [found]:
            self.numbers = max(self.numbers, value.numel() if isinstance(value, torch.Tensor) else 0)
        return found


def test_no_more_logits_are_held_than_those_of_a_chunk():
    tokens, vocabulary, size = 64, 40, 200
    hidden, weight = torch.randn(tokens, 3, requires_grad=True), torch.randn(vocabulary, 3, requires_grad=True)
    ids = torch.zeros(tokens, dtype=torch.long)
    with Largest() as chunked:
        read(reading(ids, Detail(entropy=True), 1.0), hidden, Head(weight), size=size)[0].sum().backward()
        minimize(lambda logits, part: (logits.logsumexp(1).sum(), ()), hidden, Head(weight), size=size)[0].backward()
    with Largest() as at_once:
        (hidden @ weight.T).log_softmax(1).sum().backward()
    assert at_once.numbers == tokens * vocabulary
    assert chunked.numbers <= size
