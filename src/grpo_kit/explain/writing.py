"""Which samplers call a model in a step, those inside others too, and what they write in words."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from grpo_kit.explain.options import described
from grpo_kit.recipe import Recipe
from grpo_kit.samplers import Grouped, Hinted, Replay
from grpo_kit.samplers.data_rows import DataRows
from grpo_kit.samplers.mixed import portions


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a sampler is called for.

    Attributes:
        sampler: it, with the samples and tokens of this call.
        prompts: how many it continues.
        behind: tokens behind each prompt that another sampler wrote.
    """

    sampler: Any
    prompts: int
    behind: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Writing:
    """A sampler that calls models itself, with what it may be called for.

    Attributes:
        requests: one of them in a step.
        always: whether every step calls it.
    """

    requests: tuple[Request, ...]
    always: bool = True


def writing(recipe: Recipe) -> Iterator[Writing]:
    """Every sampler that writes in a step, in the order of the recipe; that of a buffer is not looked into."""
    for _, sampler, prompts in portions(recipe.sampler, recipe.prompts_per_step):
        yield from _inside(sampler, prompts)


def _inside(sampler: Any, prompts: int) -> Iterator[Writing]:
    if isinstance(sampler, Grouped):
        for own in sampler.of:
            yield from _inside(own, prompts)
    elif isinstance(sampler, Hinted):
        hinted = prompts * sampler.hints_a_prompt
        yield Writing(requests=(Request(sampler=sampler.hints, prompts=prompts),), always=False)
        behind = Request(sampler=sampler.continuing, prompts=hinted, behind=sampler.hint_tokens)
        yield Writing(requests=(behind, Request(sampler=sampler.of, prompts=prompts)), always=False)
    elif not isinstance(sampler, DataRows):
        yield Writing(requests=(Request(sampler=sampler, prompts=prompts),))


def rows_in_words(recipe: Recipe, sampler: Any, prompts: int, data: int) -> Iterator[str]:
    """What a sampler writes of its prompts, `data` being how many prompts there are in all."""
    if isinstance(sampler, DataRows):
        yield f"{prompts} prompts with the completion of the data each (column '{sampler.column}'): {prompts} rows."
        return
    samples = getattr(sampler, "samples", 1)
    whole = f"{prompts} prompts with {samples} completions each: {prompts * samples} rows"
    if isinstance(sampler, Grouped):
        pieces = [f"{getattr(own, 'samples', 1)} by {_by(own)}" for own in sampler.of]
        yield f"{whole}; of each group {' and '.join(pieces)}."
    else:
        yield f"{whole}, written by {_by(sampler)}."
    for own in sampler.of if isinstance(sampler, Grouped) else (sampler,):
        if isinstance(own, Hinted):
            yield from _hints(recipe, own, data)
    if isinstance(sampler, Replay) and isinstance(sampler.of, Hinted):
        by, count = _by(sampler.of.hints), sampler.of.hint_tokens
        yield f"{by} wrote the first {count} tokens of each, at every step: a buffer is filled as in the first epoch."


def _by(sampler: object) -> str:
    if isinstance(sampler, Hinted):
        sampler = sampler.of
    return ", ".join(f"'{name}'" for name in getattr(sampler, "reads", ())) or described(sampler)


def _hints(recipe: Recipe, sampler: Hinted, data: int) -> Iterator[str]:
    """Until when there are hints, and that they never end where they do not."""
    last = ceil(sampler.epochs * data / recipe.prompts_per_step)
    shared = "" if sampler.hints_a_prompt == sampler.samples else f", {sampler.hints_a_prompt} hints a prompt"
    most = "" if recipe.refill is None else " at most"
    yield (
        f"{_by(sampler.hints)} writes the first {sampler.hint_tokens} tokens of the completions by {_by(sampler)}"
        f"{shared} in steps 1 to {min(last, recipe.steps)}{most} (epochs = {sampler.epochs:g}, {data} prompts)."
    )
    if last >= recipe.steps:
        yield "So no step is without hints. The paper saw training collapse that way: lower epochs, or train longer."
