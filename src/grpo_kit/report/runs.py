"""The runs that a report is of, and which of them are seeds of one thing."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_kit.disk import reason
from grpo_kit.json_lines import is_number, read_lines
from grpo_kit.report.bands import Lines
from grpo_kit.report.folders import METRICS, RECIPE, SAMPLES, compared, has_lines, is_run, read_toml
from grpo_kit.report.samples import Place, places


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run folder as it was read.

    Attributes:
        path: the folder.
        given: the folder of its comparison; of a run outside of one its own.
        label: what it is one of: its arm in a comparison, the name of its recipe otherwise.
        seed: the recipe's seed.
        components: the names of the recipe's rewards.
        metrics: the lines of `metrics.jsonl`, numbers and None alone.
        samples: where the lines of `samples.jsonl` stand in it.
        notes: what was left out, a line each.
    """

    path: Path
    given: Path
    label: str
    seed: int
    components: tuple[str, ...]
    metrics: Lines
    samples: Sequence[Place]
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
        if is_run(folder):
            plain.append(_read(folder))
            continue
        comparison = compared(folder)
        found = [(arm, run) for arm, own in comparison.runs.items() for run in own]
        if not found:
            raise ValueError(comparison.why_empty())
        begun = [(arm, run) for arm, run in found if has_lines(run)]
        if not begun:
            raise ValueError(f"no run of {folder} has metrics yet: no step of any has ended.")
        notes += [*comparison.notes(), *(f"{run}: no metrics yet; left out" for _, run in found if not has_lines(run))]
        arms += [_read(run, arm, folder) for arm, run in begun]
    runs = list(told_apart([*arms, *plain]))
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


def told_apart(runs: Sequence[Run]) -> Iterator[Run]:
    """The same runs, where two have one label and one seed with labels of their own.

    Those are a plain run's folder, and for all seeds of an arm its comparison's folder and the arm; by name where that
    is enough, by path otherwise.
    """
    same = Counter((run.label, run.seed) for run in runs)
    apart = {_source(run) for run in runs if same[run.label, run.seed] > 1}
    sources = {_source(run): run for run in runs}
    names = Counter(_name(run) if source in apart else run.label for source, run in sources.items())
    for run in runs:
        if _source(run) in apart:
            yield replace(run, label=_name(run) if names[_name(run)] == 1 else _name(run, whole=True))
        else:
            yield run


def _source(run: Run) -> tuple[Path, str]:
    return run.given.resolve(), run.label


def _name(run: Run, *, whole: bool = False) -> str:
    folder = str(run.given) if whole else run.given.resolve().name
    return folder if run.given == run.path else f"{folder}/{run.label}"


def _read(folder: Path, arm: str | None = None, comparison: Path | None = None) -> Run:
    if not has_lines(folder):
        raise ValueError(f"the run {folder} has no metrics yet: no step of it has ended.")
    recipe = _recipe(folder)
    metrics, damaged = read_lines(folder / METRICS)
    if not metrics:
        raise ValueError(f"{folder / METRICS} has no line that can be read.")
    notes = _left_out(folder / METRICS, damaged)
    samples: list[Place] = []
    if (folder / SAMPLES).is_file():
        samples, damaged = places(folder / SAMPLES)
        notes += _left_out(folder / SAMPLES, damaged)
    name, seed, rewards = recipe.get("name"), recipe.get("seed", 0), recipe.get("rewards", {})
    return Run(
        path=folder,
        given=comparison or folder,
        label=arm or (name if isinstance(name, str) and name else folder.name),
        seed=seed if isinstance(seed, int) else 0,
        components=tuple(rewards) if isinstance(rewards, dict) else (),
        metrics=[{key: value for key, value in line.items() if value is None or is_number(value)} for line in metrics],
        samples=samples,
        notes=tuple(notes),
    )


def _recipe(folder: Path) -> dict[str, Any]:
    try:
        return read_toml(folder / RECIPE)
    except OSError as error:
        raise ValueError(f"'{folder}' is no whole run folder: {RECIPE}: {reason(error)}.") from None


def _left_out(file: Path, damaged: Sequence[int]) -> list[str]:
    if not damaged:
        return []
    named = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
    lines = f"{len(damaged)} damaged line{'s' if len(damaged) > 1 else ''}"
    return [f"{file}: {lines} left out ({named})"]
