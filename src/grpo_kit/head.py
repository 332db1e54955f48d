"""The output head: next-token distributions read in chunks of tokens, never all of `[token, vocabulary]` at once.

A model's last hidden states `[token, width]` and the head's matrix `[vocabulary, width]` are all of its distributions.
Everything that needs them (log-probabilities, entropies, the most likely tokens, divergences) is a function of a chunk
of logits; only its result, a few numbers a token, is kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from grpo_kit.detail import Detail

CHUNK = 2**24
"""Logits in one chunk at most: 64 MiB in float32."""

Hidden = Float[Tensor, "place width"]
TokenLogits = Float[Tensor, "place vocabulary"]
Reading = Callable[[TokenLogits, slice], tuple[Tensor, ...]]
"""A chunk of logits and its place among all tokens in, per-token results out."""
Summing = Callable[[TokenLogits, slice], tuple[Tensor, tuple[Tensor, ...]]]
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
        product = hidden.to(weight) @ weight.T
        return _wide(product if self.bias is None else product + self.bias.to(product))

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

    def map(self, change: Callable[[Tensor], Tensor]) -> "Distributions":
        """The same with the hidden states changed: rows taken, columns cut."""
        return replace(self, hidden=change(self.hidden))

    def softened(self, temperature: float) -> "Distributions":
        """The distributions at a further temperature."""
        return self if temperature == 1 else replace(self, temperature=self.temperature * temperature)

    def snapshot(self) -> "Distributions":
        """The distributions as they are now, unmoved by later updates of the head."""
        return replace(self, head=self.head.frozen())

    def logprobs(self) -> Float[Tensor, "*token vocabulary"]:
        """All log-probabilities at once; for the few tokens of a chunk."""
        flat = self.hidden.flatten(0, -2)
        logprobs = (self.head.logits(flat) / self.temperature).log_softmax(-1)
        return logprobs.unflatten(0, self.hidden.shape[:-1])


def chunks(tokens: int, vocabulary: int, size: int = CHUNK) -> Iterator[slice]:
    """The places of chunks of tokens with at most `size` logits each, one token at least."""
    step = max(1, size // vocabulary)
    return (slice(start, min(start + step, tokens)) for start in range(0, max(tokens, 1), step))


def read(function: Reading, hidden: Hidden, head: Head, *, size: int = CHUNK) -> tuple[Tensor, ...]:
    """The results of a function of the logits for all tokens, chunk by chunk; differentiable.

    The backward pass forms each chunk of logits anew.
    """
    return _Read.apply(function, head, size, hidden, head.weight, head.bias)  # pyright: ignore[reportReturnType]


def minimize(function: Summing, hidden: Hidden, head: Head, *, size: int = CHUNK) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The sum over chunks of a scalar function of the logits, and what else it gives for all tokens, detached.

    The gradient of the sum is formed together with its value, so that no chunk of logits is needed twice: for losses
    of which all that surrounds them (the weights of tokens) is known beforehand. The sum is for one backward pass.
    """
    total, *rest = _Minimize.apply(function, head, size, hidden, head.weight, head.bias)  # pyright: ignore
    return total, tuple(rest)


def chosen(logits: TokenLogits, tokens: Int[Tensor, " place"]) -> Float[Tensor, " place"]:
    r"""Log-probability of one token a place: $z_{o_t} - \log \sum_v e^{z_v}$."""
    own = rearrange(logits.gather(1, rearrange(tokens, "place -> place 1")), "place 1 -> place")
    return own - logits.logsumexp(1)


def entropy(logits: TokenLogits) -> Float[Tensor, " place"]:
    r"""Entropy $\log Z - \mathbb{E}[z]$ in nats; a logit of -inf carries no probability and is left out."""
    probabilities = logits.softmax(1)
    return logits.logsumexp(1) - (probabilities * torch.where(probabilities > 0, logits, 0)).sum(1)


def reading(tokens: Int[Tensor, " place"], detail: Detail, temperature: float) -> Reading:
    """What `detail` asks for of each token at a temperature: log-probability, entropy, the likeliest tokens and theirs.

    The whole distributions are not among them: they stay hidden states.
    """

    def function(logits: TokenLogits, part: slice) -> tuple[Tensor, ...]:
        logits = logits / temperature
        found = [chosen(logits, tokens[part])]
        if detail.entropy:
            found.append(entropy(logits))
        if detail.top_k:
            ids = logits.topk(detail.top_k, dim=1).indices
            found += [ids, logits.gather(1, ids) - logits.logsumexp(1, keepdim=True)]
        return tuple(found)

    return function


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Reading, head: Head, size: int, hidden: Hidden, weight: Any, bias: Any) -> Any:
        parts = list(chunks(len(hidden), head.vocabulary(hidden), size))
        found = [function(head.logits(hidden[part]), part) for part in parts]
        ctx.function, ctx.head, ctx.parts = function, head, parts
        ctx.save_for_backward(hidden)
        results = tuple(torch.cat(values) for values in zip(*found, strict=True))
        ctx.mark_non_differentiable(*(values for values in results if not values.is_floating_point()))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (hidden,) = ctx.saved_tensors
        formed = _Gradients(ctx.head, hidden, ctx.needs_input_grad[3:])
        for part in ctx.parts:
            with torch.enable_grad():
                logits = ctx.head.logits(hidden[part].detach()).detach().requires_grad_()
                found = ctx.function(logits, part)
            used = [(value, own[part]) for value, own in zip(found, gradients, strict=True) if value.requires_grad]
            (of_logits,) = torch.autograd.grad([value for value, _ in used], logits, [own for _, own in used])
            formed.add(part, of_logits)
        return None, None, None, *formed.given


class _Minimize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Summing, head: Head, size: int, hidden: Hidden, weight: Any, bias: Any) -> Any:
        formed = _Gradients(head, hidden, ctx.needs_input_grad[3:])
        total, found = hidden.new_zeros((), dtype=_wide(hidden).dtype), []
        for part in chunks(len(hidden), head.vocabulary(hidden), size):
            with torch.enable_grad():
                logits = head.logits(hidden[part].detach()).detach().requires_grad_()
                value, rest = function(logits, part)
            if value.requires_grad:
                formed.add(part, torch.autograd.grad(value, logits)[0])
            total += value.detach()
            found.append(tuple(values.detach() for values in rest))
        ctx.formed = formed
        results = tuple(torch.cat(values) for values in zip(*found, strict=True))
        ctx.mark_non_differentiable(*results)
        return total, *results

    @staticmethod
    def backward(ctx: Any, gradient: Any, *nothing: Any) -> Any:
        given = ctx.formed.given
        if float(gradient) != 1:
            given = tuple(None if values is None else values * gradient for values in given)
        ctx.formed = None
        return None, None, None, *given


class _Gradients:
    """The gradients of hidden states, matrix and bias, added up chunk by chunk from those of the logits."""

    def __init__(self, head: Head, hidden: Hidden, needed: tuple[bool, bool, bool]) -> None:
        def zeros(like: Tensor | None, wanted: bool) -> Tensor | None:
            return torch.zeros_like(like) if like is not None and wanted else None

        self.head, self.inputs = head, hidden.detach()
        self.hidden, self.weight, self.bias = map(zeros, (hidden, head.weight, head.bias), needed)

    @property
    def given(self) -> tuple[Tensor | None, ...]:
        return self.hidden, self.weight, self.bias

    def add(self, part: slice, of_logits: TokenLogits) -> None:
        weight = self.head.weight
        if weight is None:
            if self.hidden is not None:
                self.hidden[part] = of_logits.to(self.hidden)
            return
        computed = self.head.autocast or weight.dtype
        of_logits, matrix = of_logits.to(computed), weight.detach().to(computed)
        if self.hidden is not None:
            self.hidden[part] = (of_logits @ matrix).to(self.hidden)
        if self.weight is not None and self.weight.dtype == computed:
            self.weight.addmm_(of_logits.T, self.inputs[part].to(computed))
        elif self.weight is not None:
            self.weight += of_logits.T @ self.inputs[part].to(computed)
        if self.bias is not None:
            self.bias += of_logits.sum(0).to(self.bias)


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
