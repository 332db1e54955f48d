"""The buffer of a recipe with a replay sampler: what it must be, whether it is, and filling it."""

import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grpo_kit.buffers import Buffer, Filled, fill
from grpo_kit.buffers.fingerprints import Identity, rollout_identity, score_identity, weights_of
from grpo_kit.buffers.store import refusal
from grpo_kit.detail import Detail
from grpo_kit.policies import Policy
from grpo_kit.policies.load import vocabulary_size
from grpo_kit.recipe import Recipe
from grpo_kit.run.inputs import Inputs
from grpo_kit.run.interrupt import Interrupt
from grpo_kit.samplers import Replay
from grpo_kit.terminal import say


def kept_details(recipe: Recipe) -> dict[str, Detail]:
    """The policies whose scores a recipe's buffer keeps, and how much of them; none without a buffer.

    These are the frozen ones, as far as a file can hold what is read of them: not whole distributions or entropies,
    which are scored at every step.
    """
    if not isinstance(recipe.sampler, Replay):
        return {}
    return {name: own for name, own in recipe.frozen_details().items() if own.storable}


def mistakes_of_buffer(recipe: Recipe, inputs: Inputs) -> list[str]:
    """Why a recipe's buffer cannot be used, without loading weights."""
    if not isinstance(recipe.sampler, Replay):
        return []
    buffer, wanted = Buffer(Path(recipe.sampler.buffer)), recipe.sampler.prompts
    if wanted is not None and wanted > len(inputs.prompts):
        return [f"sampler.prompts: {wanted}, and the data has {len(inputs.prompts)} prompts. Lower it."]
    if buffer.path.exists() and not buffer.path.is_dir():
        return [f"sampler.buffer: {buffer.path} is no folder. Give another."]
    if not buffer.exists:
        return []
    found = buffer.mistakes(*_identities(recipe, inputs))
    return [f"sampler.buffer: {refusal(buffer.path, found)}."] if found else []


def idle_policies(recipe: Recipe, inputs: Inputs) -> frozenset[str]:
    """The policies that training does not call, since everything of theirs is in the buffer."""
    if not isinstance(recipe.sampler, Replay) or recipe.sampler.refresh is not None:
        return frozenset()
    kept = kept_details(recipe)
    if not Buffer(Path(recipe.sampler.buffer)).is_whole(len(inputs.prompts), kept):
        return frozenset()
    live = {*recipe.learners, *(spec.follows for spec in recipe.policies.values())}
    followers = {name for name, spec in recipe.policies.items() if spec.follows is not None}
    return frozenset(recipe.policies) - live - followers - (set(recipe.details()) - set(kept))


def fill_buffer(
    recipe: Recipe, inputs: Inputs, policies: Mapping[str, Policy], *, console: Console, interrupt: Interrupt
) -> bool:
    """Fill what is missing of a recipe's buffer, with progress and a closing line; whether it is whole now.

    Ctrl-C ends it after the shard at hand. ValueError where the folder cannot be written.
    """
    assert isinstance(recipe.sampler, Replay)
    try:
        return _fill(recipe, inputs, policies, recipe.sampler, console, interrupt)
    except OSError as error:
        said = f"buffer {recipe.sampler.buffer} cannot be written: {error.strerror}"
        raise ValueError(f"{said}. What was finished is kept; give another folder, or make room") from None


def _fill(
    recipe: Recipe,
    inputs: Inputs,
    policies: Mapping[str, Policy],
    sampler: Replay,
    console: Console,
    interrupt: Interrupt,
) -> bool:
    """See `fill_buffer`."""
    buffer, kept, started = Buffer(Path(sampler.buffer)), kept_details(recipe), time.perf_counter()
    buffer.begin(*_identities(recipe, inputs))
    live = [name for name in recipe.details() if name not in kept and name not in recipe.learners]
    if live:
        say(console, f"not kept in the buffer, and scored at every step: {', '.join(live)}")
    if not buffer.is_whole(len(inputs.prompts), kept):
        say(console, f"filling buffer {buffer.path}")
    columns = [TextColumn("buffer"), MofNCompleteColumn(), TimeRemainingColumn(compact=True), BarColumn(bar_width=None)]
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
        interrupt.handling(),
    ):
        task = bar.add_task("", total=None)

        def progress(filled: Filled) -> bool:
            bar.update(task, total=filled.shards, completed=filled.done)
            if filled.written and not console.is_terminal and filled.done % max(1, filled.shards // 10) == 0:
                say(console, f"shard {filled.done}/{filled.shards}")
            return not interrupt.asked

        filled = fill(
            buffer,
            sampler.of,
            inputs.prompts,
            policies,
            kept,
            seed=sampler.seed,
            max_gib=sampler.max_gib,
            progress=progress,
        )
    for fault in filled.damaged:
        say(console, f"{fault}, and is written again", style="yellow")
    say(console, _closing_line(buffer, filled, time.perf_counter() - started))
    return filled.done == filled.shards


def _identities(recipe: Recipe, inputs: Inputs) -> tuple[Identity, dict[str, Identity]]:
    """What the rows and each policy's scores of a recipe's buffer are a function of."""
    sampler = recipe.sampler
    assert isinstance(sampler, Replay)
    read: tuple[str, ...] = getattr(sampler, "reads", ())
    weights = {name: weights_of(recipe.policies[name]) for name in {*read, *kept_details(recipe)}}
    rows = rollout_identity(
        sampler.of,
        {name: weights[name] for name in read},
        next(iter(inputs.tokenizers.values())),
        inputs.prompts,
        seed=sampler.seed,
        prompts_per_shard=sampler.prompts_per_shard,
        vocabulary=min(vocabulary_size(spec) for spec in recipe.policies.values() if spec.follows is None),
    )
    temperature = getattr(sampler, "temperature", 1.0)
    return rows, {
        name: score_identity(weights[name], detail, temperature) for name, detail in kept_details(recipe).items()
    }


def _closing_line(buffer: Buffer, filled: Filled, seconds: float) -> str:
    size = f"{filled.rows:,} rows, {filled.tokens:,} tokens, {buffer.bytes / 2**20:.1f} MiB on disk"
    if not filled.written:
        return f"buffer {buffer.path}: {size}; nothing was missing"
    speed = f"{filled.sampled:,} tokens sampled and scored in {seconds:.1f} s, {filled.sampled / seconds:,.0f} tokens/s"
    if not filled.sampled:
        speed = f"scored in {seconds:.1f} s"
    part = "" if filled.done == filled.shards else f", {filled.done} of {filled.shards} shards"
    return f"buffer {buffer.path}{part}: {size}; {speed}"
