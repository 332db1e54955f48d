"""One update's work on tensors without data: what it allocates is what the real one would."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from grpo_kit.advantages.live import live
from grpo_kit.batch import Rollouts
from grpo_kit.detail import Detail
from grpo_kit.divergences.distance import over_vocabulary
from grpo_kit.head import Head, TokenLogits, minimize, reading
from grpo_kit.learner import Learner
from grpo_kit.policies import Policy
from grpo_kit.signals import TopTokens
from grpo_kit.terms import DivergenceTerm, PolicyGradient


def update(policy: Policy, learner: Learner, trained: Rollouts, kept: int, widths: Mapping[str, int]) -> None:
    """A micro-batch forward and backward, as `objective` has it, with values that mean nothing.

    Real losses ask for numbers (whether a gradient is finite, which tokens count), which tensors without data have not.
    `kept` are the rows whose scores of other policies are held, `widths` the hidden widths of those policies.
    """
    detail = Detail(entropy=learner.needs_entropy)
    others = [_other(divergence, widths[name], trained, kept, policy) for divergence, name in compared(learner)]
    hidden = policy.hidden(trained)
    read = reading(trained.tokens.flatten(), detail, trained.temperature)
    if not all(getattr(term, "token_local", False) for term in learner.terms.values()):
        with torch.no_grad():
            policy.read(hidden, trained, temperature=trained.temperature, detail=detail)

    def of_chunk(logits: TokenLogits, part: slice) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        found = read(logits, part)
        total = torch.stack([values.sum() for values in found]).sum()
        for divergence, states, head, top in others:
            mine = (logits / trained.temperature).log_softmax(-1)
            if divergence.top_k is None:
                theirs = (head.logits(states[part]) / trained.temperature).log_softmax(-1)
                total = total + divergence(mine, theirs).sum()
            else:
                events = divergence.top_k.events(mine, top.map(lambda values, part=part: values[part]))
                total = total + divergence(*events).sum()
        return total, found

    total, _ = minimize(of_chunk, hidden, policy.head)
    hidden.backward(torch.zeros_like(hidden))  # total holds the gradients that were formed
    del total


def compared(learner: Learner) -> Iterator[tuple[Any, str]]:
    """The divergences over the vocabulary that an update takes, each with the other policy."""
    for term in learner.terms.values():
        if isinstance(term, DivergenceTerm) and over_vocabulary(term.divergence):
            yield term.divergence, term.to
        if isinstance(term, PolicyGradient):
            variates = ((getattr(own, "control_variate", None), own.teacher) for _, own in live(term.advantage))
            yield from ((divergence, teacher) for divergence, teacher in variates if divergence is not None)


def _other(divergence: Any, width: int, trained: Rollouts, kept: int, policy: Policy) -> tuple[Any, Any, Any, Any]:
    """What is held of another policy: the scores of all rows of a step, and those of the micro-batch as a part."""
    rows, tokens = trained.mask.shape
    if divergence.top_k is None:
        states = torch.zeros(max(rows, kept), tokens, width)
        head = Head(torch.zeros(policy.vocabulary, width))
        return divergence, states.flatten(0, 1), head, None
    count = divergence.top_k.k
    ids = torch.zeros(max(rows, kept) * tokens, count, dtype=torch.long)
    return divergence, None, None, TopTokens(ids=ids, logprobs=torch.zeros(ids.shape) - 1)
