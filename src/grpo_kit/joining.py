"""Joining batches row after row: rollouts padded to the longest, experiences of the same policies and rewards."""

from collections.abc import Sequence

import torch
from torch import Tensor

from grpo_kit.batch import Behavior, Component, Experience, Rewards, Rollouts, Scores, SignalKey, Signals


def concatenate(parts: Sequence[Rollouts]) -> Rollouts:
    """Join rollouts row after row, padding all to the longest; writers that are equal become one."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.mask.shape[1] for part in parts)
    behaviors = [part.behavior for part in parts]
    known = [behavior for behavior in behaviors if behavior is not None]
    assert len(known) in (0, len(parts)), "sampled rows and data rows cannot share one batch of rollouts yet"
    return Rollouts(
        prompts=tuple(prompt for part in parts for prompt in part.prompts),
        tokens=torch.cat([widen(part.tokens, width) for part in parts]),
        mask=torch.cat([widen(part.mask, width) for part in parts]),
        groups=torch.cat([part.groups for part in parts]),
        stop_reasons=tuple(reason for part in parts for reason in part.stop_reasons),
        texts=tuple(text for part in parts for text in part.texts),
        columns={name: tuple(v for part in parts for v in part.columns[name]) for name in parts[0].columns},
        behavior=_join_behaviors(known, width) if known else None,
    )


def widen(values: Tensor, width: int) -> Tensor:
    """Pad a batch of rows on the right with zeros (False for a mask) to a number of tokens."""
    return torch.nn.functional.pad(values, (0, width - values.shape[1]))


def _join_behaviors(behaviors: Sequence[Behavior], width: int) -> Behavior:
    writers = tuple(dict.fromkeys(writer for behavior in behaviors for writer in behavior.writers))
    renumbered = [
        torch.tensor([writers.index(writer) for writer in behavior.writers])[behavior.writer.cpu()].to(behavior.writer)
        for behavior in behaviors
    ]
    return Behavior(
        writers=writers,
        writer=torch.cat([widen(index, width) for index in renumbered]),
        logprobs=torch.cat([widen(behavior.logprobs, width) for behavior in behaviors]),
    )


def join(parts: Sequence[Experience]) -> Experience:
    """Join experiences of the same policies and rewards, row after row."""
    if len(parts) == 1:
        return parts[0]
    rollouts = concatenate([part.rollouts for part in parts])
    width = rollouts.mask.shape[1]

    def stack(values: Sequence[Tensor]) -> Tensor:
        return torch.cat([v if v.ndim == 1 else widen(v, width) for v in values])

    scores: dict[SignalKey, Scores] = {}
    for key, first in parts[0].signals.scores.items():
        own = [part.signals.scores[key] for part in parts]
        entropies = None if first.entropy is None else stack([s.entropy for s in own if s.entropy is not None])
        scores[key] = Scores(logprobs=stack([score.logprobs for score in own]), entropy=entropies)
    components = {
        name: Component(
            values=stack([part.rewards.components[name].values for part in parts]),
            statuses=tuple(status for part in parts for status in part.rewards.components[name].statuses),
        )
        for name in parts[0].rewards.components
    }
    return Experience(rollouts=rollouts, signals=Signals(scores), rewards=Rewards(components))
