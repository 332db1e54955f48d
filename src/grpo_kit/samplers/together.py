"""Samplers that write the rows of one step together: what they must agree on, and what is true of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from grpo_kit.batch import Prompts, Rollouts
from grpo_kit.data.prompts import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.joining import concatenate
from grpo_kit.offers import call_with
from grpo_kit.policies.policy import Policy


def agree(samplers: Sequence[object]) -> None:
    """ValueError where the rows of some samplers cannot stand in one batch."""
    if any(getattr(own, "greedy", False) for own in samplers):
        raise ValueError(
            "greedy = true writes greedy rows of one sampler alone, and an advantage that compares with them needs "
            "those of all rows. Leave it out, or use that sampler without others"
        )
    if any(getattr(own, "supplies_signals", False) for own in samplers):
        raise ValueError(
            "a sampler that supplies signals with its rows (replay) cannot be mixed: rows of the others would have "
            "none. Use it without others"
        )
    temperatures = {own.temperature for own in samplers if hasattr(own, "temperature")}  # pyright: ignore[reportAttributeAccessIssue]
    if len(temperatures) > 1:
        raise ValueError(
            f"its samplers have temperatures {sorted(temperatures)}, and all rows of a step are scored at one. "
            "Give them one temperature"
        )


def reads(samplers: Sequence[object]) -> tuple[str, ...]:
    """The policies that some samplers need, each once."""
    return tuple(dict.fromkeys(name for own in samplers for name in getattr(own, "reads", ())))


def known(samplers: Sequence[object], name: str, *default: Any) -> list[Any]:
    """What samplers say of themselves under a name; AttributeError, as from any of them, where none does."""
    found = [getattr(own, name, *default) for own in samplers if default or hasattr(own, name)]
    if not found:
        raise AttributeError(name)
    return found


def write(
    sampler: Any, prompts: Prompts, policies: Mapping[str, Policy], generator: torch.Generator, **offers: Any
) -> Rollouts:
    """A sampler's rows with as many of the offers as it asks for; ValueError where it supplies signals with them."""
    rows = call_with(sampler, prompts, policies, generator, **offers)
    if not isinstance(rows, Rollouts):
        raise ValueError("sampler: a sampler that supplies signals with its rows cannot be mixed")
    return rows


def prompt_by_prompt(parts: Sequence[Rollouts], prompts: Prompts) -> Rollouts:
    """All rows, prompt after prompt; those of one prompt in the order of the parts."""
    together = concatenate([moved(part, parts[0].mask.device) for part in parts])
    place = {group: number for number, group in enumerate(prompts.groups)}
    groups = together.groups.tolist()
    return together.take(sorted(range(len(together)), key=lambda row: place[groups[row]]))


def moved(rows: Rollouts, device: torch.device) -> Rollouts:
    """Rows with their tensors on a device; policies may be on devices of their own."""
    if rows.mask.device == device:
        return rows
    behavior, model = rows.behavior, None if rows.behavior is None else rows.behavior.model_logprobs
    return replace(
        rows,
        tokens=rows.tokens.to(device),
        mask=rows.mask.to(device),
        groups=rows.groups.to(device),
        behavior=behavior
        and replace(
            behavior,
            writer=behavior.writer.to(device),
            logprobs=behavior.logprobs.to(device),
            model_logprobs=None if model is None else model.to(device),
        ),
    )


def some_of(prompts: Prompts, numbers: Sequence[int]) -> Prompts:
    """Some of the prompts, in the order given."""
    return Prompts(
        ids=tuple(prompts.ids[number] for number in numbers),
        groups=tuple(prompts.groups[number] for number in numbers),
        columns={name: tuple(values[number] for number in numbers) for name, values in prompts.columns.items()},
        numbers=tuple(prompts.numbers[number] for number in numbers) if prompts.numbers else (),
    )


def renew(
    samplers: Sequence[object],
    step: int,
    policies: Mapping[str, Policy],
    prompts: PromptSet,
    details: Mapping[str, Detail],
) -> dict[str, float]:
    """Let every sampler that prepares for a step do so; their metrics."""
    found: dict[str, float] = {}
    for own in samplers:
        by_sampler = getattr(own, "renew", None)
        found |= by_sampler(step, policies, prompts, details) if by_sampler else {}
    return found
