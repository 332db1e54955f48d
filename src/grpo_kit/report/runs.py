"""The runs that a report is of, and which of them are seeds of one thing."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_kit.disk import reason
from grpo_kit.report.bands import Lines
from grpo_kit.report.lines import is_number, read_lines

RECIPE = "recipe.resolved.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run folder as it was read.

    Attributes:
        path: the folder.
        label: what it is one of: its arm in a comparison, the name of its recipe otherwise.
        seed: the recipe's seed.
        components: the names of the recipe's rewards.
        metrics: the lines of `metrics.jsonl`, numbers and None alone.
        samples: the lines of `samples.jsonl`.
        notes: what was left out, a line each.
    """

    path: Path
    label: str
    seed: int
    components: tuple[str, ...]
    metrics: Lines
    samples: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...]

    @property
    def steps(self) -> int:
        """The last step that has metrics."""
        return int(max(line["step"] or 0 for line in self.metrics))


def read_runs(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs in some folders, and what was left out; ValueError for a folder that is no run, or has no metrics."""
    plain: list[Run] = []
    arms: list[Run] = []
    notes: list[str] = []
    for folder in folders:
        if _is_run(folder):
            plain.append(_read(folder, None))
            continue
        found = [(arm, run) for arm, run in _compared(folder) if _is_run(run)]
        if not found:
            problem = "is no run folder (it has no metrics.jsonl)" if folder.is_dir() else "does not exist"
            raise ValueError(f"'{folder}' {problem}. Give run folders, or one made by grpo-kit compare.")
        begun = [(arm, run) for arm, run in found if _has_lines(run)]
        notes += [f"{run}: no metrics yet; left out" for _, run in found if not _has_lines(run)]
        if not begun:
            raise ValueError(f"no run of {folder} has metrics yet: no step of any has ended.")
        arms += [_read(run, arm) for arm, run in begun]
    runs = [*arms, *_told_apart(plain)]
    twice = [path for path, count in Counter(run.path.resolve() for run in runs).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]} is given twice. Give each run once.")
    return runs, [*notes, *(note for run in runs for note in run.notes)]


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by their label, each group by its seeds."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.label, []).append(run)
    return {label: sorted(own, key=lambda run: (run.seed, str(run.path))) for label, own in found.items()}


def _is_run(folder: Path) -> bool:
    return (folder / "metrics.jsonl").is_file() or (folder / RECIPE).is_file()


def _has_lines(folder: Path) -> bool:
    file = folder / "metrics.jsonl"
    return file.is_file() and file.stat().st_size > 0


def _compared(folder: Path) -> Iterator[tuple[str, Path]]:
    """The runs of a comparison: `runs/<arm>/seed-<n>/run` below it, with their arms."""
    for run in sorted((folder / "runs").glob("*/seed-*/run")):
        yield run.parents[1].name, run


def _read(folder: Path, arm: str | None) -> Run:
    if not _has_lines(folder):
        raise ValueError(f"the run {folder} has no metrics yet: no step of it has ended.")
    recipe = _recipe(folder)
    metrics, damaged = read_lines(folder / "metrics.jsonl")
    if not metrics:
        raise ValueError(f"{folder / 'metrics.jsonl'} has no line that can be read.")
    notes = _left_out(folder / "metrics.jsonl", damaged)
    samples: list[dict[str, Any]] = []
    if (folder / "samples.jsonl").is_file():
        samples, damaged = read_lines(folder / "samples.jsonl")
        notes += _left_out(folder / "samples.jsonl", damaged)
    name, seed, rewards = recipe.get("name"), recipe.get("seed", 0), recipe.get("rewards", {})
    return Run(
        path=folder,
        label=arm or (name if isinstance(name, str) and name else folder.name),
        seed=seed if isinstance(seed, int) else 0,
        components=tuple(rewards) if isinstance(rewards, dict) else (),
        metrics=[{key: value for key, value in line.items() if value is None or is_number(value)} for line in metrics],
        samples=samples,
        notes=tuple(notes),
    )


def _recipe(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((folder / RECIPE).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"'{folder}' is no whole run folder: {RECIPE}: {reason(error)}.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder / RECIPE} cannot be read: {error}.") from None


def _told_apart(runs: Sequence[Run]) -> Iterator[Run]:
    """The same runs; where two have one recipe name and one seed, each has its folder's name as a label of its own."""
    same = Counter((run.label, run.seed) for run in runs)
    names = Counter(run.path.resolve().name for run in runs)
    for run in runs:
        label = run.label
        if same[run.label, run.seed] > 1:
            own = run.path.resolve()
            label = own.name if names[own.name] == 1 else str(run.path)
        yield replace(run, label=label)


def _left_out(file: Path, damaged: Sequence[int]) -> list[str]:
    if not damaged:
        return []
    named = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
    lines = f"{len(damaged)} damaged line{'s' if len(damaged) > 1 else ''}"
    return [f"{file}: {lines} left out ({named})"]
