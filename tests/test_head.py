"""Law 11: what is read of distributions chunk by chunk is what dense PyTorch reads, in value and gradient."""

import pytest
import torch
from hypothesis import given, strategies as st
from jaxtyping import TypeCheckError
from torch.utils._python_dispatch import TorchDispatchMode

from grpo_kit import head as head_module
from grpo_kit.detail import Detail
from grpo_kit.head import Distributions, Head, entropy, minimize, read, reading
from tolerances import BFLOAT16, EXACT, FLOAT32

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


def function_of(ids, factors):
    """Log-probabilities and entropies weighed, as `minimize` takes them."""
    own = reading(ids, Detail(entropy=True), 0.7)

    def summed(logits, part):
        logprobs, spread = own(logits, part)
        return (factors[0][part] * logprobs + factors[1][part] * spread).sum(), ()

    return summed


def gradients(hidden, head, ids, factors, size, leaves):
    """The gradient of the same sum by `read` and by `minimize`."""
    own, spread = read(reading(ids, Detail(entropy=True), 0.7), hidden, head, size=size)
    total, _ = minimize(function_of(ids, factors), hidden, head, size=size)
    recomputed = torch.autograd.grad((factors[0] * own + factors[1] * spread).sum(), leaves, retain_graph=True)
    return recomputed, torch.autograd.grad(total, leaves)


@pytest.mark.parametrize(
    ("states", "weights", "autocast", "tolerance"),
    [
        (torch.float32, torch.float32, None, FLOAT32),
        (torch.bfloat16, torch.float32, torch.bfloat16, BFLOAT16),
        (torch.bfloat16, torch.bfloat16, None, BFLOAT16),
    ],
)
@pytest.mark.parametrize("size", [VOCABULARY, 3 * VOCABULARY, None])
def test_chunks_are_dense_in_lower_precision(states, weights, autocast, tolerance, size):
    hidden, weight, bias, ids, factors = inputs(3, bias=True)
    hidden = hidden.detach().to(states).requires_grad_()
    weight, bias = (values.detach().to(weights).requires_grad_() for values in (weight, bias))
    leaves = [hidden, weight, bias]
    computed = autocast or weights
    logits = (hidden.to(computed) @ weight.to(computed).T + bias.to(computed)).float() / 0.7
    logprobs = logits.log_softmax(1)
    own, spread = logprobs.gather(1, ids[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(1)
    expected = torch.autograd.grad((factors[0] * own + factors[1] * spread).sum(), leaves)
    for found in gradients(hidden, Head(weight, bias, autocast), ids, factors, size, leaves):
        assert [each.dtype for each in found] == [each.dtype for each in leaves]
        torch.testing.assert_close(found, expected, **tolerance)


def test_many_chunks_round_no_more_than_one():
    """A sum of 512 chunks kept in bfloat16 would be off by several times what the product at once is."""
    tokens = 512
    draw = torch.Generator().manual_seed(0)
    hidden = (1 + torch.rand(tokens, 4, generator=draw)).to(torch.bfloat16)
    weight = torch.randn(6, 4, generator=draw).to(torch.bfloat16).requires_grad_()

    def first_column(logits, part):
        return logits[:, 0].sum(), ()

    found, *_ = torch.autograd.grad(minimize(first_column, hidden, Head(weight), size=1)[0], weight)
    exact = hidden.double().sum(0)
    torch.testing.assert_close(found[0].double(), exact, rtol=2**-8, atol=0.0)


def test_logits_that_are_minus_infinity_are_as_if_left_out():
    _, _, _, ids, factors = inputs(5)
    logits = torch.randn(TOKENS, VOCABULARY, requires_grad=True)
    ids, out = ids % 4, torch.tensor([5, 8])
    masked = logits.index_fill(1, out, -torch.inf)
    kept = torch.tensor([v for v in range(VOCABULARY) if v not in out])
    (expected,) = torch.autograd.grad(
        dense(logits[:, kept], torch.eye(len(kept)), None, ids, factors, 0.7, len(kept))[2], logits
    )
    for (found,) in gradients(masked, Head(None), ids, factors, 2 * VOCABULARY, [logits]):
        torch.testing.assert_close(found, expected, **EXACT)


def test_results_can_be_used_twice_and_a_gradient_formed_is_given_once():
    hidden, weight, _, ids, factors = inputs(1)
    function = reading(ids, Detail(), 1.0)
    (own,) = read(function, hidden, Head(weight), size=20)
    whole = (own.square().sum() + (own * factors[0]).sum()) + read(function, hidden, Head(weight), size=50)[0].sum()
    logprobs = (hidden @ weight.T).log_softmax(1).gather(1, ids[:, None])[:, 0]
    expected = torch.autograd.grad((logprobs.square() + logprobs * factors[0] + logprobs).sum(), [hidden, weight])
    for _ in range(2):
        found = torch.autograd.grad(whole, [hidden, weight], retain_graph=True)
        torch.testing.assert_close(found, expected, **EXACT)

    total, _ = minimize(function_of(ids, factors), hidden, Head(weight), size=20)
    total.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        total.backward()


def test_what_does_not_reach_the_loss_has_no_gradient():
    hidden, weight, _, ids, _ = inputs(1)
    _, _, top, theirs = read(reading(ids, Detail(entropy=True, top_k=2), 1.0), hidden, Head(weight), size=20)
    assert not top.requires_grad
    logprobs = (hidden @ weight.T).log_softmax(1)
    expected = torch.autograd.grad(logprobs.topk(2, dim=1).values.square().sum(), [hidden, weight])
    torch.testing.assert_close(torch.autograd.grad(theirs.square().sum(), [hidden, weight]), expected, **EXACT)
    (fixed,) = read(lambda logits, part: (logits.detach().sum(1),), hidden, Head(weight), size=20)
    found = torch.autograd.grad(fixed.sum(), [hidden, weight])
    assert all(float(each.abs().sum()) == 0 for each in found)


def test_a_head_updated_before_the_backward_pass_is_refused():
    hidden, weight, _, ids, _ = inputs(1)
    (own,) = read(reading(ids, Detail(), 1.0), hidden, Head(weight), size=20)
    with torch.no_grad():
        weight += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        own.sum().backward()


@pytest.mark.parametrize("learns", ["hidden", "weight", "bias"])
def test_only_the_gradient_that_is_wanted_is_formed(learns):
    tokens, vocabulary, width = 6, 300, 200
    leaves = {
        "hidden": torch.randn(tokens, width),
        "weight": torch.randn(vocabulary, width),
        "bias": torch.randn(vocabulary),
    }
    leaves[learns].requires_grad_()
    hidden, head = leaves["hidden"], Head(leaves["weight"], leaves["bias"])
    ids = torch.zeros(tokens, dtype=torch.long)
    for total in (
        lambda: read(reading(ids, Detail(), 1.0), hidden, head, size=vocabulary)[0].sum(),
        lambda: minimize(lambda logits, part: (logits[:, 0].sum() - logits.logsumexp(1).sum(), ()), hidden, head)[0],
    ):
        with Made() as made:
            total().backward()
        assert [name for name, leaf in leaves.items() if leaf.grad is not None] == [learns]
        assert ((vocabulary, width) in made.shapes) == (learns == "weight")
        assert ((tokens, width) in made.shapes) == (learns == "hidden")
        leaves[learns].grad = None


class Made(TorchDispatchMode):
    """Remembers the shapes of what was made to add gradients up in."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten.zeros_like, torch.ops.aten.zeros):
            self.shapes.add(tuple(found.shape))
        return found


def shorter(tokens, vocabulary, size):
    return [slice(0, tokens - 1)]


def overlapping(tokens, vocabulary, size):
    return [slice(0, tokens - 1), slice(tokens - 2, tokens)]


@pytest.mark.parametrize("broken", [shorter, overlapping])
def test_chunks_that_are_not_all_tokens_once_are_found_out(broken, monkeypatch):
    monkeypatch.setattr(head_module, "chunks", broken)
    with pytest.raises((AssertionError, RuntimeError, TypeCheckError)):  # the axes of the results say so, too
        test_chunks_change_neither_value_nor_gradient()


def test_chunks_are_as_large_as_memory_and_speed_ask():
    def tokens_at_once(vocabulary):
        return {part.stop - part.start for part in list(head_module.chunks(10**5, vocabulary))[:-1]}

    assert tokens_at_once(49152) == {head_module.CHUNK // 49152}
    assert tokens_at_once(10**6) == {head_module.TOKENS}
    assert list(head_module.chunks(5, 10, 21)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(head_module.chunks(2, 10, 3)) == [slice(0, 1), slice(1, 2)]
