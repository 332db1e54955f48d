"""Joining batches row after row: rollouts padded to the longest, experiences of the same policies and rewards."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from grpo_kit.batch import NOBODY, Behavior, Component, Experience, Rewards, Rollouts
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores, Signals, TopTokens


def concatenate(parts: Sequence[Rollouts]) -> Rollouts:
    """Join rollouts row after row, padding all to the longest; writers that are equal become one."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.mask.shape[1] for part in parts)
    behaviors = [part.behavior or written_by_nobody(part.mask) for part in parts]
    sampled = any(part.behavior for part in parts)
    return Rollouts(
        prompts=tuple(prompt for part in parts for prompt in part.prompts),
        tokens=torch.cat([widen(part.tokens, width) for part in parts]),
        mask=torch.cat([widen(part.mask, width) for part in parts]),
        groups=torch.cat([part.groups for part in parts]),
        stop_reasons=tuple(reason for part in parts for reason in part.stop_reasons),
        texts=tuple(text for part in parts for text in part.texts),
        columns={name: tuple(v for part in parts for v in part.columns[name]) for name in parts[0].columns},
        behavior=_join_behaviors(behaviors, width) if sampled else None,
    )


def widen(values: Tensor, width: int) -> Tensor:
    """Pad a batch of rows on the right with zeros (False for a mask) to a number of tokens."""
    return torch.nn.functional.pad(values, (0, 0) * (values.ndim - 2) + (0, width - values.shape[1]))


def join_scores(parts: Sequence[Scores], width: int) -> Scores:
    """Join one policy's scores row after row, padded to a number of tokens; they hold as much of it as the first."""

    def stack(values: Sequence[Tensor | None]) -> Tensor:
        return torch.cat([widen(value, width) for value in values if value is not None])

    first = parts[0]
    top, whole = first.top, first.distributions
    if top is not None:
        own = [part.top for part in parts if part.top is not None]
        top = TopTokens(ids=stack([t.ids for t in own]), logprobs=stack([t.logprobs for t in own]))
    if whole is not None:
        whole = replace(whole, hidden=stack([part.distributions and part.distributions.hidden for part in parts]))
    return Scores(
        logprobs=stack([part.logprobs for part in parts]),
        entropy=None if first.entropy is None else stack([part.entropy for part in parts]),
        top=top,
        distributions=whole,
    )


def written_by_nobody(mask: TokenMask) -> Behavior:
    """The behavior of rows that no policy wrote, to stand beside sampled ones."""
    return Behavior(writers=(), writer=torch.full_like(mask, NOBODY, dtype=torch.long), logprobs=mask.float() * 0)


def _join_behaviors(behaviors: Sequence[Behavior], width: int) -> Behavior:
    writers = tuple(dict.fromkeys(writer for behavior in behaviors for writer in behavior.writers))
    renumbered = [
        torch.tensor([*map(writers.index, behavior.writers), NOBODY])[behavior.writer.cpu()].to(behavior.writer)
        for behavior in behaviors  # NOBODY is -1: the last place
    ]
    known = any(behavior.model_logprobs is not None for behavior in behaviors)
    return Behavior(
        writers=writers,
        writer=torch.cat([widen(index, width) for index in renumbered]),
        logprobs=torch.cat([widen(behavior.logprobs, width) for behavior in behaviors]),
        model_logprobs=torch.cat([widen(_of_model(behavior), width) for behavior in behaviors]) if known else None,
    )


def _of_model(behavior: Behavior) -> PerToken:
    """The model's own log-probabilities, NaN where they are not known."""
    unknown = torch.full_like(behavior.logprobs, torch.nan)
    return unknown if behavior.model_logprobs is None else behavior.model_logprobs


def join(parts: Sequence[Experience]) -> Experience:
    """Join experiences of the same policies and rewards, row after row."""
    if len(parts) == 1:
        return parts[0]
    rollouts = concatenate([part.rollouts for part in parts])
    width = rollouts.mask.shape[1]

    def stack(values: Sequence[Tensor]) -> Tensor:
        return torch.cat([v if v.ndim == 1 else widen(v, width) for v in values])

    scores = {key: join_scores([part.signals.scores[key] for part in parts], width) for key in parts[0].signals.scores}
    components = {
        name: Component(
            values=stack([part.rewards.components[name].values for part in parts]),
            statuses=tuple(status for part in parts for status in part.rewards.components[name].statuses),
        )
        for name in parts[0].rewards.components
    }
    return Experience(rollouts=rollouts, signals=Signals(scores), rewards=Rewards(components))
