"""Arithmetic on distributions given as log-probabilities, in which any event may have none."""

import math

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from grpo_kit.masked import wide

Events = Float[Tensor, "*token event"]
"""Log-probability of each event of a next-token distribution: of a token, or of all others together."""

EachToken = Float[Tensor, "*token"]
"""One number a token, in chunks or in rows."""


def kullback_leibler(first: Events, second: Events) -> EachToken:
    r"""$\mathrm{KL}(p \| q) = \sum_e p_e (\log p_e - \log q_e)$ in nats, $p$ the first.

    An event without probability in $p$ adds nothing, whatever $q$ says of it; one that $q$ alone calls impossible
    makes it infinite.
    """
    probability = first.exp()
    log_ratio = torch.where(probability > 0, first - second, 0)
    return reduce(probability * log_ratio, "... event -> ...", "sum")


def mixture(first: Events, second: Events, weight: float) -> Events:
    r"""Log-probabilities of $w p + (1 - w) q$, $w$ in (0, 1) the weight of the first."""
    possible = (first > -torch.inf) | (second > -torch.inf)
    some = torch.where(possible, first, 0)  # a sum of nothing has no gradient, not even one that nobody reads
    mixed = torch.logaddexp(some + math.log(weight), second + math.log1p(-weight))
    return torch.where(possible, mixed, -torch.inf)


def softened(logprobs: Events, temperature: float) -> Events:
    """The distributions at a further temperature, in float32 at least."""
    logprobs = wide(logprobs)
    return logprobs if temperature == 1 else (logprobs / temperature).log_softmax(-1)
