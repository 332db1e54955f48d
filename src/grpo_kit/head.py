"""The output head: next-token distributions read in chunks of tokens, never all of `[token, vocabulary]` at once.

A model's last hidden states `[token, width]` and the head's matrix `[vocabulary, width]` are all of its distributions.
Everything that needs them (log-probabilities, entropies, the most likely tokens, divergences) is a function of a chunk
of logits; only its result, a few numbers a token, is kept.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.functional import cross_entropy, linear

from grpo_kit.detail import Detail
from grpo_kit.shapes import AnyShape, Scalar

CHUNK = 22 * 2**20
"""Logits in one chunk: 88 MiB in float32; more where that is fewer than `TOKENS`.

A chunk halved for its gradient is still above 32 MiB: glibc maps such a tensor on its own and gives it back at once;
smaller ones fragment its heap, and what is said to be freed stays taken (measured: twice the peak).
"""

TOKENS = 256
"""Tokens in one chunk at least: the head's matrix is read once a chunk, slowly for few tokens."""

Hidden = Float[Tensor, "place width"]
TokenLogits = Float[Tensor, "place vocabulary"]
EachPlace = Shaped[Tensor, "place ..."]
Reading = Callable[[TokenLogits, slice], tuple[EachPlace, ...]]
"""A chunk of logits and its place among all tokens in, per-token results out."""
Summing = Callable[[TokenLogits, slice], tuple[Scalar, tuple[EachPlace, ...]]]
"""The same with a scalar to be minimized in front."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What turns hidden states into logits.

    Attributes:
        weight: the head's matrix, cut to the vocabulary in use; None for a model whose head is more than a linear map
            (logits capped or scaled): its hidden states are then its logits, as it computes them itself.
        bias: the head's bias.
        autocast: the precision of the product below that of the weights; None computes as stored.
    """

    weight: Float[Tensor, "vocabulary width"] | None
    bias: Float[Tensor, " vocabulary"] | None = None
    autocast: torch.dtype | None = None

    def logits(self, hidden: Hidden) -> TokenLogits:
        """Logits of some tokens, in float32 or wider."""
        if self.weight is None:
            return _wide(hidden)
        weight = self.weight if self.autocast is None else self.weight.to(self.autocast)
        return _wide(linear(hidden.to(weight), weight, None if self.bias is None else self.bias.to(weight)))

    def cast(self) -> "Head":
        """The head in the precision of its product, without gradient: cast once for all chunks."""
        if self.weight is None or self.autocast is None:
            return self
        return Head(self.weight.detach().to(self.autocast), self.bias)

    def vocabulary(self, hidden: Hidden) -> int:
        """Logits a token."""
        return (hidden if self.weight is None else self.weight.T).shape[-1]

    def frozen(self) -> "Head":
        """The head as it is now, unmoved by later updates."""
        return Head(
            weight=None if self.weight is None else self.weight.detach().clone(),
            bias=None if self.bias is None else self.bias.detach().clone(),
            autocast=self.autocast,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Distributions:
    """Whole next-token distributions of a batch of completions.

    Attributes:
        hidden: the hidden state that predicts each completion token.
        head: what turns them into logits.
        temperature: divides the logits.
    """

    hidden: Float[Tensor, "*token width"]
    head: Head
    temperature: float = 1.0

    def map(self, change: Callable[[AnyShape], AnyShape]) -> "Distributions":
        """The same with the hidden states changed: rows taken, columns cut."""
        return replace(self, hidden=change(self.hidden))

    def snapshot(self) -> "Distributions":
        """The distributions as they are now, unmoved by later updates of the head."""
        return replace(self, head=self.head.frozen())

    def logprobs(self) -> Float[Tensor, "*token vocabulary"]:
        """All log-probabilities at once; for the few tokens of a chunk."""
        flat = self.hidden.flatten(0, -2)
        logprobs = (self.head.logits(flat) / self.temperature).log_softmax(-1)
        return logprobs.unflatten(0, self.hidden.shape[:-1])


def chunks(tokens: int, vocabulary: int, size: int | None = None) -> Iterator[slice]:
    """The places of chunks of tokens with at most `size` logits each, one token at least; by default, what is fast."""
    step = max(TOKENS, CHUNK // vocabulary) if size is None else max(1, size // vocabulary)
    return (slice(start, min(start + step, tokens)) for start in range(0, max(tokens, 1), step))


def halves(parts: Iterable[slice]) -> Iterator[slice]:
    """Each chunk in two, for a gradient: it takes what it is formed from beside it."""
    for part in parts:
        middle = (part.start + part.stop + 1) // 2
        yield slice(part.start, middle)
        if middle < part.stop:
            yield slice(middle, part.stop)


def read(function: Reading, hidden: Hidden, head: Head, *, size: int | None = None) -> tuple[EachPlace, ...]:
    """The results of a function of the logits for all tokens, chunk by chunk; differentiable.

    The backward pass forms each chunk of logits anew.
    """
    return _Read.apply(function, head, size, hidden, head.weight, head.bias)  # pyright: ignore[reportReturnType]


def minimize(
    function: Summing, hidden: Hidden, head: Head, *, size: int | None = None
) -> tuple[Scalar, tuple[EachPlace, ...]]:
    """The sum over chunks of a scalar function of the logits, and what else it gives for all tokens, detached.

    The gradient of the sum is formed together with its value, so that no chunk of logits is needed twice: for losses
    of which all that surrounds them (the weights of tokens) is known beforehand. The sum is for one backward pass.
    """
    total, *rest = _Minimize.apply(function, head, size, hidden, head.weight, head.bias)  # pyright: ignore
    return total, tuple(rest)


def chosen(logits: TokenLogits, tokens: Int[Tensor, " place"]) -> Float[Tensor, " place"]:
    r"""Log-probability of one token a place: $z_{o_t} - \log \sum_v e^{z_v}$."""
    return -cross_entropy(logits, tokens, reduction="none")


def reading(tokens: Int[Tensor, " place"], detail: Detail, temperature: float) -> Reading:
    """What `detail` asks for of each token at a temperature: log-probability, entropy, the likeliest tokens and theirs.

    The whole distributions are not among them: they stay hidden states.
    """

    def function(logits: TokenLogits, part: slice) -> tuple[EachPlace, ...]:
        logprobs = (logits if temperature == 1 else logits / temperature).log_softmax(1)
        found = [rearrange(logprobs.gather(1, rearrange(tokens[part], "place -> place 1")), "place 1 -> place")]
        if detail.entropy:
            found.append(entropy(logprobs))
        if detail.top_k:
            ids = logprobs.detach().topk(detail.top_k, dim=1).indices
            found += [ids, logprobs.gather(1, ids)]
        return tuple(found)

    return function


def entropy(logprobs: Float[Tensor, "place vocabulary"]) -> Float[Tensor, " place"]:
    r"""Entropy $-\sum_v p_v \log p_v$ in nats; what has no probability adds nothing."""
    return -(logprobs.exp() * torch.where(logprobs > -torch.inf, logprobs, 0)).sum(1)


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Reading, head: Head, size: int | None, hidden: Hidden, *_: Tensor | None) -> Any:
        ctx.function, ctx.head, ctx.parts = function, head, list(chunks(len(hidden), head.vocabulary(hidden), size))
        ctx.save_for_backward(hidden, head.weight, head.bias)  # torch refuses those changed since
        ctx.set_materialize_grads(False)
        head = head.cast()
        found = [function(head.logits(hidden[part]), part) for part in ctx.parts]
        results = tuple(torch.cat(values) for values in zip(*found, strict=True))
        ctx.mark_non_differentiable(*(values for values in results if not values.is_floating_point()))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        hidden, *_ = ctx.saved_tensors
        formed = _Gradients(ctx.head, hidden, ctx.needs_input_grad[3:])
        for part in halves(ctx.parts):
            logits, edge = formed.logits(part)
            with torch.enable_grad():
                found = ctx.function(logits, part)
            del logits
            used = [
                (values, own[part])
                for values, own in zip(found, gradients, strict=True)
                if own is not None and values.requires_grad
            ]
            if used:
                formed.add(part, *torch.autograd.grad([each for each, _ in used], edge, [own for _, own in used]))
        return None, None, None, *formed.given


class _Minimize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Summing, head: Head, size: int | None, hidden: Hidden, *_: Tensor | None) -> Any:
        formed = _Gradients(head, hidden, ctx.needs_input_grad[3:])
        total, found = hidden.new_zeros((), dtype=_wide(hidden).dtype), []
        for part in halves(chunks(len(hidden), head.vocabulary(hidden), size)):
            logits, edge = formed.logits(part)
            with torch.enable_grad():
                value, rest = function(logits, part)
            del logits
            if value.requires_grad:
                formed.add(part, *torch.autograd.grad(value, edge))
            total += value.detach()
            found.append(tuple(values.detach() for values in rest))
        ctx.save_for_backward(*formed.given)
        results = tuple(torch.cat(values) for values in zip(*found, strict=True))
        ctx.mark_non_differentiable(*results)
        return total, *results

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        given = ctx.saved_tensors
        if float(gradient) != 1:
            given = tuple(None if values is None else values * gradient.to(values.dtype) for values in given)
        return None, None, None, *given


class _Gradients:
    """The gradients of hidden states, matrix and bias, added up chunk by chunk from those of the logits.

    In float32 at least, so that many chunks round no more than one.
    """

    def __init__(self, head: Head, hidden: Hidden, needed: tuple[bool, bool, bool]) -> None:
        def zeros(like: Tensor | None, wanted: bool) -> Tensor | None:
            return None if like is None or not wanted else torch.zeros_like(like, dtype=_wide(like[:0]).dtype)

        self.head, self.inputs = head.cast(), hidden.detach()
        self.hidden, self.weight, self.bias = map(zeros, (hidden, head.weight, head.bias), needed)

    @property
    def given(self) -> tuple[Tensor | None, ...]:
        """The gradients; autograd rounds each to the precision of what it belongs to."""
        return self.hidden, self.weight, self.bias

    def logits(self, part: slice) -> tuple[TokenLogits, GradientEdge]:
        """A chunk of logits, and what to derive by: the chunk itself need not be kept."""
        with torch.enable_grad():
            logits = self.head.logits(self.inputs[part].requires_grad_())
        return logits, get_gradient_edge(logits)

    def add(self, part: slice, of_logits: TokenLogits) -> None:
        """Add what follows from the gradient of a chunk of logits."""
        matrix = self.head.weight
        if self.bias is not None:
            self.bias += of_logits.sum(0)
        product = of_logits if matrix is None else of_logits.to(matrix)
        if self.hidden is not None:
            self.hidden[part] = product if matrix is None else product @ matrix
        if self.weight is not None and self.weight.dtype == product.dtype:
            self.weight.addmm_(product.T, self.inputs[part].to(product))
        elif self.weight is not None:
            self.weight += product.T @ self.inputs[part].to(product)


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
