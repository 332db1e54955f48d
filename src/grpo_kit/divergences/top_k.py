"""The most likely tokens of the other policy as the events of a divergence."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from grpo_kit.divergences.distributions import Events
from grpo_kit.formula import number
from grpo_kit.masked import wide
from grpo_kit.parts import table
from grpo_kit.signals import TopTokens

TokenLogprobs = Float[Tensor, "*token vocabulary"]
OneEvent = Float[Tensor, "*token 1"]


@table
class TopK:
    r"""See the `k` likeliest tokens of the other policy $q$ alone; only they are kept of its distributions.

    With a `tail` all other tokens are one more event, of probability $1 - \sum_{v \in K} q_v$. The divergence is then
    never above that of the whole distributions (data processing), zero only where all events agree, and its gradient
    vanishes there. `renormalized` compares the two distributions inside the top k, each divided by its mass: what the
    current policy gives to other tokens has no influence, on value or gradient.

    A reverse KL over the top k without either is not offered. Where the two policies agree its gradient is not zero but
    pushes mass out of the top k, to where nothing is seen: it is least, and below 0, where the top k has $1/e$ of the
    mass that $q$ gives it (the bias of arXiv:2605.11182). The forward one without either is a cross-entropy:
    `top_k_cross_entropy`.

    The tail of $q$ is known up to the rounding of its top k's sum, and one below that rounding (1.2e-7 in float32)
    counts as that much. Where `k` is the whole vocabulary there is no tail.

    Attributes:
        k: how many tokens; at least 1.
        outside: what becomes of the others.

    Example:
        >>> import torch
        >>> top = TopTokens(ids=torch.tensor([[2]]), logprobs=torch.tensor([[0.6]]).log())
        >>> [events.exp() for events in TopK(k=1).events(torch.tensor([[0.3, 0.2, 0.5]]).log(), top)]
        [tensor([[0.5000, 0.5000]]), tensor([[0.6000, 0.4000]])]
    """

    k: Annotated[int, Field(ge=1)]
    outside: Literal["tail", "renormalized"] = "tail"

    def events(self, current: TokenLogprobs, top: TopTokens) -> tuple[Events, Events]:
        """Log-probabilities of the events under the current and the other policy; gradient flows to the current."""
        top = top.likeliest(self.k)
        inside, other = inside_top(current, top)
        if self.outside == "renormalized":
            return inside.log_softmax(-1), other.log_softmax(-1)
        if inside.shape == current.shape:
            return inside, other
        return torch.cat([inside, rest(current, top)], -1), torch.cat([other, complement(other)], -1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Alone:
    """The `k` likeliest tokens of the other policy, as they are; no distribution, for their mass is below 1."""

    k: int

    def events(self, current: TokenLogprobs, top: TopTokens) -> tuple[Events, Events]:
        """Log-probabilities of the top tokens under the current and the other policy."""
        return inside_top(current, top.likeliest(self.k))


def inside_top(current: TokenLogprobs, top: TopTokens) -> tuple[Events, Events]:
    """Log-probabilities of the top tokens under the current and the other policy."""
    return wide(current).gather(-1, top.ids.long()), wide(top.logprobs)


def rest(current: TokenLogprobs, top: TopTokens) -> OneEvent:
    """Log-probability of all tokens but the top ones, which loses no digits however small it is."""
    current = wide(current)
    # The top tokens are left with next to nothing, not with nothing: a sum of nothing has no gradient.
    nothing = math.log(torch.finfo(current.dtype).tiny)
    return current.scatter(-1, top.ids.long(), nothing).logsumexp(-1, keepdim=True)


def complement(inside: Events) -> OneEvent:
    """The log of 1 - sum(exp), at least the rounding of that sum."""
    mass = inside.logsumexp(-1, keepdim=True).clamp(max=-torch.finfo(inside.dtype).eps)
    return (-mass.expm1()).log()


def refuse_temperature(temperature: float, top_k: TopK | None) -> None:
    """ValueError when a part of a distribution is to be softened as if it were whole."""
    if top_k is not None and temperature != 1:
        raise ValueError(
            f"temperature {temperature:g} softens whole distributions, and top_k sees a part of them. Leave one out"
        )


def what_is_seen(temperature: float, top_k: TopK | None) -> str:
    """The end of a formula: which events $v$ are summed over, and at which temperature; empty for the usual."""
    if top_k is not None:
        how = {"tail": "with the rest as one event", "renormalized": "renormalized"}[top_k.outside]
        return rf"\text{{, over the top {top_k.k} of }} q \text{{, {how}}}"
    return "" if temperature == 1 else rf"\text{{, at temperature }} {number(temperature)}"
