"""The folders that a report is given: run folders, and those of `grpo-kit compare` with the runs of their arms."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_kit.disk import reason

RECIPE, METRICS, SAMPLES = "recipe.resolved.toml", "metrics.jsonl", "samples.jsonl"
PLAN, RECIPES = "plan.toml", "recipes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A folder that grpo-kit compare made, or one laid out like it.

    Attributes:
        folder: it.
        runs: the run folders of each arm, in the plan's order of the arms; none of one that has not begun.
        controls: the arms that the plan does not train: they never have a run.
    """

    folder: Path
    runs: Mapping[str, Sequence[Path]]
    controls: frozenset[str]

    def notes(self) -> Iterator[str]:
        """Which arms have no run to draw, and why."""
        empty = [arm for arm, runs in self.runs.items() if not runs]
        if controls := [arm for arm in empty if arm in self.controls]:
            yield f"{self.folder}: no run to draw of {', '.join(controls)}: not trained (train = false); left out"
        if waiting := [arm for arm in empty if arm not in self.controls]:
            yield f"{self.folder}: no run to draw of {', '.join(waiting)}: not begun yet; left out"

    def why_empty(self) -> str:
        """Why it has no run at all, for the one who gave it."""
        if (self.folder / PLAN).is_file() and (self.folder / RECIPES).is_dir():
            if self.controls and self.controls >= self.runs.keys():
                return f"{self.folder} has no run to draw: none of its arms is trained. Look at its summary.md."
            return f"no reported run of {self.folder} has begun yet. Draw it again once one has."
        problem = f"is no run folder (it has no {METRICS})" if self.folder.is_dir() else "does not exist"
        return f"'{self.folder}' {problem}. Give run folders, or one made by grpo-kit compare."


def is_run(folder: Path) -> bool:
    """Whether a run wrote it, or began to."""
    return (folder / METRICS).is_file() or (folder / RECIPE).is_file()


def has_lines(folder: Path) -> bool:
    """Whether something was written about a step."""
    file = folder / METRICS
    return file.is_file() and file.stat().st_size > 0


def compared(folder: Path) -> Comparison:
    """The runs at `runs/<arm>/seed-<n>/run`; arms that no plan names come last. ValueError if the plan is damaged."""
    arms = _arms(folder)
    runs: dict[str, list[Path]] = {arm: [] for arm in arms}
    for run in sorted((folder / "runs").glob("*/seed-*/run")):
        if is_run(run):
            runs.setdefault(run.parents[1].name, []).append(run)
    controls = frozenset(arm for arm, own in arms.items() if isinstance(own, dict) and own.get("train") is False)
    return Comparison(folder=folder, runs=runs, controls=controls)


def read_toml(file: Path) -> dict[str, Any]:
    """A TOML file; ValueError says what is wrong with it, OSError that it cannot be opened."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read: {error}.") from None


def _arms(folder: Path) -> dict[str, Any]:
    try:
        arms = read_toml(folder / PLAN).get("arms") if (folder / PLAN).is_file() else None
    except OSError as error:
        raise ValueError(f"{folder / PLAN} cannot be read: {reason(error)}.") from None
    return arms if isinstance(arms, dict) else {}
