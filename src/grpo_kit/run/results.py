"""What a run leaves at its end: trained policies, curves, and a table on the terminal."""

import math
from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.run.folder import RunFolder, RunFolderError


def write_results(
    recipe: Recipe, policies: Mapping[str, Policy], folder: RunFolder, complain: Callable[[str], None]
) -> bool:
    """Write trained policies and curves, each that can be; whether all could. `complain` hears of the others."""
    faults: list[str] = []
    for name in recipe.learners:
        if not policies[name].is_finite():
            faults.append(f"policies/{name} is not written: its weights are not finite")
            continue
        try:
            folder.policy(policies[name])
        except RunFolderError as error:
            faults.append(str(error))
    try:
        folder.curves()
    except RunFolderError as error:
        faults.append(str(error))
    for fault in faults:
        complain(fault)
    return not faults


def closing_table(recipe: Recipe, evaluations: Sequence[tuple[int, Mapping[str, float]]]) -> tuple[str, Table]:
    """Every live policy on held-out questions, at first and at last; its heading, and the table."""
    (first, before), (last, after) = evaluations[0], evaluations[-1]
    table = Table()
    assert recipe.evaluation is not None
    keys = ["accuracy", "greedy", f"pass@{recipe.evaluation.samples}", "length", "entropy"]
    for heading in ("", *recipe.learners):
        table.add_column(heading)
    for key in keys:
        places = [f"eval/{name}/{key}" for name in recipe.learners]
        pairs = [(before.get(place, math.nan), after.get(place, math.nan)) for place in places]
        table.add_row(key, *(f"{number(old)} -> {number(new)}" for old, new in pairs))
    return f"{recipe.name}: held-out questions, step {first} -> {last}", table


def number(value: float) -> str:
    """A metric in a few digits."""
    return "-" if math.isnan(value) else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
