"""`grpo-kit run --resume`: go on with a run that ended early, from its latest whole checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_kit.checkpoints import CheckpointError, newest
from grpo_kit.config import RecipeError
from grpo_kit.parts import as_table
from grpo_kit.recipe import Recipe
from grpo_kit.run.engines import refuse_absent
from grpo_kit.run.folder import RECIPE, RunFolder, versions_of
from grpo_kit.run.inputs import Inputs
from grpo_kit.run.session import Session, describe, prepare
from grpo_kit.run.setup import open_recipe
from grpo_kit.terminal import say

CHANGEABLE = (
    "name", "steps", "log_samples", "max_log_gib", "max_non_finite_skips", "evaluation", "evaluation.*",
    "checkpoints.*", "policies.*.micro_batch_tokens", "policies.*.device", "policies.*.engine.*",
    "sampler.*rows_per_batch", "sampler.*engine.*", "sampler.max_gib",
)  # fmt: skip
"""What may be changed when a run goes on: it decides how long, where and how visibly, not what is learned."""


def resume(folder: Path, *, settings: Sequence[str], allow_code: bool, console: Console) -> Session:
    """A session that goes on where the run of a folder stopped; ValueError says why it cannot.

    Without a checkpoint it begins again in the same folder; with all steps done it writes its results again. What was
    changed becomes the folder's recipe, so that it need not be said again.
    """
    file = folder / RECIPE
    if not file.is_file():
        raise ValueError(f"--resume {folder}: no run folder, since it has no {RECIPE}. Give the folder of a run.")
    recipe, inputs = open_recipe(str(file), settings=settings, allow_code=allow_code)
    refuse_absent(recipe)
    opened = RunFolder.reopen(folder)
    try:
        return _go_on(recipe, inputs, opened, console)
    except BaseException:
        opened.close()
        raise


def _go_on(recipe: Recipe, inputs: Inputs, folder: RunFolder, console: Console) -> Session:
    found, faults = newest(folder.checkpoints)
    done = 0 if found is None else found.step
    if done > recipe.steps:
        said = f"step {done} is done, and steps is {recipe.steps}. Give {done} or more."
        raise ValueError(f"--resume {folder.path}: {said}")
    if found is None and faults:  # to begin again would drop every line of the run
        said = f"no checkpoint is whole. {'. '.join(faults)}. Remove {folder.checkpoints} to begin again."
        raise CheckpointError(f"--resume {folder.path}: {said}")
    changed = [] if found is None else _changes(found.part("session")["recipe"], recipe, folder.path / RECIPE)
    for line in [*faults, *changed, *versions_of(folder.path)]:
        say(console, line, style="yellow")
    for line in describe(inputs):
        say(console, line)
    session = prepare(recipe, inputs, lambda: folder, console)
    try:
        if found is None:
            folder.cut_back({})
        else:
            session.restore(found.read())
        folder.recipe(recipe)
    except BaseException as error:
        session.close()
        if isinstance(error, CheckpointError):
            where = f"--resume {folder.path}: the checkpoint of step {done}"
            raise CheckpointError(f"{where} does not fit: {error}") from None
        raise
    text = "begins again: there is no checkpoint" if found is None else f"goes on after step {done} of {recipe.steps}"
    if done == recipe.steps:  # it may have died before its results were written, so these are written again
        text = f"has all its {done} steps; --set steps=N goes further"
    say(console, f"{folder.path} {text}")
    return session


def _changes(before: Mapping[str, Any], recipe: Recipe, file: Path) -> list[str]:
    """What is another than in the recipe of the checkpoint, a line each; RecipeError where that may not be."""
    changed = list(differences(before, as_table(recipe)))
    if refused := [f"{place}: {said}" for place, said in changed if not _may_change(place)]:
        raise RecipeError(
            [f"{line}; the checkpoints are of the former. Leave it, or start a new run." for line in refused], str(file)
        )
    lines = [f"changed: {place}: {said}" for place, said in changed]
    if any(place == "steps" for place, _ in changed):
        lines += [
            f"the learning rate of '{name}' falls ({own.optimizer.decay}) to 0 at the new last step from now on"
            for name, own in recipe.learners.items()
            if own.optimizer.decay != "constant"
        ]
    return lines


def differences(before: Mapping[str, Any], after: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, str]]:
    """Every place where two recipes differ, with what it was and what it is."""
    for key in dict.fromkeys([*before, *after]):
        here, old, new = f"{place}{key}", before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{here}.")
        elif old != new:
            yield here, f"{_said(old)} -> {_said(new)}"


def _may_change(place: str) -> bool:
    return any(fnmatchcase(place, pattern) for pattern in CHANGEABLE)


def _said(value: Any) -> str:
    return "nothing" if value is None else repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
