"""`grpo-kit samples RUN`: completions of a run with their rewards and statuses."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grpo_kit.json_lines import read_lines
from grpo_kit.terminal import one_line, say, visible


def show_samples(run: Path, console: Console, *, step: int | None, limit: int, status: str | None) -> None:
    """Print the completions of one step, the last by default; ValueError where there are none."""
    rows, damaged = read_samples(run)
    chosen = _chosen(run, rows, step, status, damaged)
    prompts = groupby(chosen[:limit], key=lambda row: (row.get("group"), row.get("prompt")))
    for (group, prompt), members in prompts:
        console.print()
        head = Text(visible(f"step {chosen[0]['step']}, group {group}: "), style="bold")
        console.print(head + Text(visible(str(prompt)), style="none") + Text(_columns(chosen, group)))
        console.print(_table(list(members)))
    if len(chosen) > limit:
        say(console, f"{limit} of {len(chosen)} completions; --limit shows more")
    if damaged:
        lines = ", ".join(map(str, damaged))
        say(console, f"left out: line {lines} of {run / 'samples.jsonl'}, not readable as JSON")


def read_samples(run: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The lines of a run's `samples.jsonl`, and the numbers of those that cannot be read (a half-written last one)."""
    file = run / "samples.jsonl"
    if not file.is_file():
        raise ValueError(_no_samples(run))
    return read_lines(file)


def runs(parent: Path = Path("runs")) -> list[str]:
    """The run folders there are, the latest first."""
    found = [folder for folder in parent.glob("*") if (folder / "recipe.toml").is_file()]
    return [str(folder) for folder in sorted(found, key=lambda folder: (-folder.stat().st_mtime, folder.name))]


def _no_samples(run: Path) -> str:
    if run.is_dir() and (run / "recipe.toml").is_file():
        return f"the run {run} has no samples.jsonl: no step has ended yet, or the recipe has log_samples = 0."
    problem = "is no run folder (it has no samples.jsonl)" if run.is_dir() else "does not exist"
    known = runs()
    there = f"Runs here: {', '.join(known[:10])}{', ...' if len(known) > 10 else ''}." if known else "No runs/ here."
    return f"run folder '{run}' {problem}. {there}"


def _chosen(
    run: Path, rows: Sequence[dict[str, Any]], step: int | None, status: str | None, damaged: Sequence[int]
) -> list[dict[str, Any]]:
    """The rows of the step and status asked for."""
    if not rows and damaged:
        raise ValueError(f"{run / 'samples.jsonl'} has no line that can be read as a completion.")
    if not rows:
        raise ValueError(f"{run / 'samples.jsonl'} has no completions yet.")
    steps = sorted({row["step"] for row in rows})
    wanted = steps[-1] if step is None else step
    if wanted not in steps:
        raise ValueError(f"--step {wanted}: no samples of that step. There are {_ranges(steps)}.")
    found = [row for row in rows if row["step"] == wanted]
    known = sorted({str(given) for row in found for given in row.get("statuses", {}).values()})
    if status is not None:
        found = [row for row in found if status in row.get("statuses", {}).values()]
        if not found:
            raise ValueError(f"--status {status}: no completion of step {wanted} has it. Known: {', '.join(known)}.")
    return found


def _ranges(steps: Sequence[int]) -> str:
    """Sorted numbers with runs of them shortened: 1 to 4, 7."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(steps), key=lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _columns(rows: Sequence[Mapping[str, Any]], group: Any) -> str:
    """The data set's columns of a group but the prompt, in one line: each shortened, without line breaks."""
    columns = next((row.get("columns", {}) for row in rows if row.get("group") == group), {})
    shown = [f"{_one_line(key)} = {_one_line(str(value))}" for key, value in columns.items() if key != "prompt"]
    return f"   ({', '.join(shown)})" if shown else ""


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    rewards = list(dict.fromkeys(name for row in rows for name in row.get("rewards", {})))
    for heading in ("kept", "end", *rewards):
        table.add_column(Text(visible(heading)), no_wrap=True)
    table.add_column("completion", overflow="fold")
    for row in rows:
        judged = [_reward(row, name) for name in rewards]
        kept = "greedy" if row.get("greedy") else "yes" if row.get("kept") else "no"
        cells = [kept, str(row.get("stop_reason", "")), *judged, str(row.get("completion"))]
        table.add_row(*(Text(visible(cell)) for cell in cells))
    return table


def _reward(row: Mapping[str, Any], name: str) -> str:
    """The value of a reward, and its status where it is not `ok`."""
    value, status = row.get("rewards", {}).get(name), row.get("statuses", {}).get(name, "ok")
    shown = "-" if value is None else f"{value:.3f}"
    return shown if status == "ok" else f"{shown} {status}"


def _one_line(text: str, longest: int = 60) -> str:
    """The beginning of a text on one line, line breaks written out."""
    shown = one_line(text[:longest])
    return shown if len(text) <= longest else f"{shown}..."
