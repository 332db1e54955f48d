"""A divergence between what two policies say of each token, whatever it reads of them."""

from typing import Any

import torch
from torch import Tensor

from grpo_kit.detail import Detail
from grpo_kit.masked import select
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores


def over_vocabulary(divergence: object) -> bool:
    """Whether a divergence compares distributions, not log-probabilities of the sampled token alone."""
    return getattr(divergence, "over_vocabulary", False) is True


def detail_of(divergence: Any) -> Detail:
    """How much of the other policy's distributions a divergence reads."""
    if not over_vocabulary(divergence):
        return Detail()
    return Detail(full=True) if divergence.top_k is None else Detail(top_k=divergence.top_k.k)


def distance(divergence: Any, current: Scores, other: Scores, counted: TokenMask) -> PerToken:
    """The divergence of each counted token, 0 elsewhere; nothing is read of tokens that do not count.

    For one over the vocabulary `current` holds its whole distributions, and `other` too or its top tokens: to be called
    with the few tokens of a chunk.
    """
    if not over_vocabulary(divergence):
        return divergence(select(current.logprobs, counted), select(other.logprobs, counted))
    everything = bool(counted.all())

    def taken(values: Tensor) -> Tensor:
        return values.flatten(0, 1) if everything else values[counted]

    assert current.distributions is not None, "the whole distributions of the current policy are needed"
    mine = current.distributions.map(taken)
    if divergence.top_k is None:
        assert other.distributions is not None, "the whole distributions of the other policy are needed"
        theirs = other.distributions.map(taken)
        logprobs = mine.logprobs()
        found = divergence(logprobs, theirs.logprobs().to(logprobs.device))  # a teacher may sit on a device of its own
    else:
        assert other.top is not None, "the top tokens of the other policy are needed"
        top = other.top.likeliest(divergence.top_k.k).map(taken)
        found = divergence(*divergence.top_k.events(mine.logprobs(), top))
    return torch.zeros(counted.shape, dtype=found.dtype, device=found.device).masked_scatter(counted, found)
