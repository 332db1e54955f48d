"""What `grpo-kit report` does: read, draw, write one file, and say what was left out."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_kit import __version__
from grpo_kit.disk import reason, write_text
from grpo_kit.report.bands import Band, band
from grpo_kit.report.figures import curves, plotly_program, stage_times
from grpo_kit.report.page import MARK, page
from grpo_kit.report.panels import SECTIONS, panels
from grpo_kit.report.runs import Run, grouped, read_runs
from grpo_kit.report.tokens import token_rows
from grpo_kit.terminal import one_line, say

NAME = "report.html"


def report_command(folders: Sequence[Path], out: Path | None, console: Console) -> None:
    """Write the report of some runs; ValueError where it cannot be made or written."""
    out = out or (folders[0] / NAME if len(folders) == 1 else Path(NAME))
    runs, notes = read_runs(folders)
    refuse_foreign(out)
    program = plotly_program()
    groups = grouped(runs)
    rows, left_out = token_rows(runs)
    notes += left_out
    data = report_data(groups, rows, notes)
    title = f"Report: {', '.join(groups)}"
    try:
        write_text(out, page(title, data, program))
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {reason(error)}. Give another --out.") from None
    for note in notes:
        say(console, note)
    completions = sum(len(own["rows"]) for own in rows)
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {', '.join(groups)}"
    say(console, f"{out}: {count}, {completions} completions, {out.stat().st_size / 1e6:.1f} MB")


def refuse_foreign(out: Path) -> None:
    """ValueError where something is there that is no report of ours: only such a file is replaced."""
    if not os.path.lexists(out):
        if not out.absolute().parent.is_dir():
            raise ValueError(f"--out {out}: there is no folder {out.absolute().parent}; nothing was written.")
        return
    begins = b""
    if out.is_file():
        with out.open("rb") as file:
            begins = file.read(1024)
    if MARK.encode() not in begins:
        raise ValueError(f"--out {out} exists and is no report of grpo-kit; nothing was written. Give a new file.")


def report_data(
    groups: Mapping[str, Sequence[Run]], rows: Sequence[Mapping[str, Any]], notes: Sequence[str]
) -> dict[str, Any]:
    """Everything that the page shows."""
    runs = [run for own in groups.values() for run in own]
    keys = {key for run in runs for line in run.metrics for key in line}
    components = list(dict.fromkeys(name for run in runs for name in run.components))
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in SECTIONS}
    for panel in panels(keys, components):
        if (figure := curves(panel, groups)) is not None:
            own = {"title": one_line(panel.title), "key": one_line(panel.key), "figure": figure}
            sections[panel.section].append(own)
    if (figure := stage_times(groups)) is not None:
        bars = {"title": "Stages of a step", "key": "time/<stage>", "figure": figure, "wide": True}
        sections["Speed"].insert(0, bars)
    return {
        "title": one_line(", ".join(groups)),
        "made": f"grpo-kit {__version__}, {datetime.now():%Y-%m-%d %H:%M}",
        "notes": [one_line(note) for note in notes],
        "summary": summary(groups),
        "sections": [{"title": name, "panels": own} for name, own in sections.items() if own],
        "runs": rows,
    }


def summary(groups: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """A line a group: its seeds, its steps, and its held-out accuracies from the first evaluation to the last."""
    keys = sorted({key for own in groups.values() for run in own for line in run.metrics for key in line})
    shares = [key for key in keys if key.startswith("eval/") and key.endswith(("/accuracy", "/greedy"))]
    lines: list[list[list[str]]] = []
    for label, runs in groups.items():
        found = [band([run.metrics for run in runs], key) for key in shares]
        ends = [["-", ""] if own is None else _ends(own, len(runs)) for own in found]
        steps = "-".join(dict.fromkeys(str(end(run.steps for run in runs)) for end in (min, max)))
        seeds = ", ".join(str(run.seed) for run in runs)
        lines.append([[one_line(label), ""], [seeds, ""], [steps, ""], *ends])
    heads = [f"{who} {'accuracy' if key.endswith('/accuracy') else 'greedy'}" for key in shares for who in [_who(key)]]
    return {"head": ["", "seeds", "steps", *map(one_line, heads)], "lines": lines}


def _who(key: str) -> str:
    return key.removeprefix("eval/").rsplit("/", 1)[0]


def _ends(own: Band, seeds: int) -> list[str]:
    """First and last number that all seeds have, and under it what they span at the last, and whether some go on."""
    known = [place for place, count in enumerate(own.seeds) if count == seeds]
    furthest = max(step for step, count in zip(own.steps, own.seeds, strict=True) if count)
    if not known:
        return ["-", f"no step that all {seeds} seeds have yet; step {furthest} is the last of some"]
    first, last = known[0], known[-1]
    low, high, step = own.low[last], own.high[last], own.steps[last]
    span = f"{low:.3f} to {high:.3f}" if low != high else ""
    further = f"at step {step}, the last that all seeds have; some are at {furthest}" if step < furthest else ""
    ends = f"{own.mean[first]:.3f} → {own.mean[last]:.3f}" if first != last else f"{own.mean[last]:.3f}"
    return [ends, "; ".join(part for part in (span, further) if part)]
