"""A summary as tables: the same ones on the terminal and in `summary.md`, and its numbers as `summary.json`."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grpo_kit.compare.statistics import Difference, Estimate
from grpo_kit.compare.summary import Row, Summary
from grpo_kit.parts import as_table
from grpo_kit.terminal import say, visible

Grid = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A heading, the names of columns, and rows of cells."""
SMALL = 1e-4
"""P-values below are shown as such."""
WORDS = ("arm", "against", "metric", "point", "others")
"""Columns without numbers."""
WIDE = 400


def tables_of(summary: Summary) -> Iterator[Grid]:
    """Every table, in the order of reading."""
    if summary.chosen:
        yield "tuning: the point taken", ("arm", "point", "metric", "others"), [*_tuned(summary)]
    policies = dict.fromkeys(key.partition("/")[0] for key in summary.metrics)
    for policy in policies:
        yield from _of_policy(summary, policy)
    if summary.costs:
        yield _costs(summary, "seconds/", "seconds a run, by stage", lambda value: f"{value:.1f}")
        yield _costs(
            summary, ("tokens/", "updates/"), "tokens and optimizer steps a run", lambda value: f"{value:,.0f}"
        )
        yield _costs(summary, "flops/", "model FLOPs a run, by policy and stage", lambda value: f"{value:.3g}")


def show(summary: Summary, console: Console) -> None:
    """Print all of it; into a file or a pipe, where nobody sees a width, without breaking a line."""
    if not console.is_terminal:
        console.width = WIDE
    for heading, columns, rows in tables_of(summary):
        table = Table(title=visible(heading), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(Text(visible(column)), justify="left" if column in WORDS else "right")
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        console.print()
        console.print(table)
    for line in notes(summary):
        say(console, line)


def markdown(summary: Summary) -> str:
    """The same as Markdown."""
    lines = [f"# {summary.plan.name}", ""]
    if summary.plan.hypotheses:
        lines += ["Expected, written down before the runs:", "", *(f"- {own}" for own in summary.plan.hypotheses), ""]
    for heading, columns, rows in tables_of(summary):
        lines += [f"## {heading}", "", _line(columns)]
        lines += [_line(["---" if column in WORDS else "---:" for column in columns])]
        lines += [*map(_line, rows), ""]
    lines += [f"- {line}" for line in notes(summary)]
    return "\n".join(lines) + "\n"


def document(summary: Summary) -> str:
    """Every number as JSON; one that does not exist is null."""
    whole = {
        "plan": as_table(summary.plan),
        "chosen": summary.chosen,
        "metrics": {key: [asdict(row) for row in rows] for key, rows in summary.metrics.items()},
        "costs": summary.costs,
        "failures": summary.failures,
        "notes": summary.notes,
    }
    return json.dumps(_finite(whole), indent=1) + "\n"


def notes(summary: Summary) -> list[str]:
    """What has to be known to read the tables."""
    count = len(summary.plan.seeds)
    seeds = f"{count} seed{'s' if count != 1 else ''}"
    lines = [
        f"differences are paired by seed; intervals are t-intervals at 95 % over {seeds}",
        "p is Holm's over the differences of a metric, and so is that of equality",
        "accuracy, greedy, pass@k, entropy (nats a token) and length are of the last weights on the held-out "
        "questions; area is the mean height of the accuracy curve on the run's own evaluation questions",
    ]
    if count == 1:
        lines.append("one seed says nothing about how much a difference varies: there are no intervals")
    lines += summary.notes
    lines += [f"no result: {arm} seed {seed}: {reason}" for arm, seed, reason in summary.failures]
    return lines


def _of_policy(summary: Summary, policy: str) -> Iterator[Grid]:
    """Means of all its metrics, then the differences of each."""
    metrics = {key.partition("/")[2]: rows for key, rows in summary.metrics.items() if key.startswith(f"{policy}/")}
    arms = list(dict.fromkeys(row.arm for rows in metrics.values() for row in rows))
    body = [[arm, *(_mean(rows, arm) for rows in metrics.values())] for arm in arms]
    yield f"{policy}: mean and half of the 95 % interval", ("arm", *metrics), body
    margins = {key.partition("/")[2]: m for key, m in summary.plan.equivalence.items() if key.startswith(f"{policy}/")}
    lines: list[list[str]] = []
    for name, rows in metrics.items():
        for row in rows:
            for base, found in row.differences.items():
                cells = [row.arm, base, name, f"{found.of.mean:+.4f}", _interval(found.of), _p(found.p_holm)]
                lines.append([*cells, str(found.of.count), *([_equal(found, margins.get(name))] if margins else [])])
    if lines:
        columns = ("arm", "against", "metric", "difference", "95 % interval", "p (Holm)", "seeds")
        yield f"{policy}: differences", (*columns, *(["equal within"] if margins else [])), lines


def _tuned(summary: Summary) -> Iterator[list[str]]:
    for arm, found in summary.chosen.items():
        others = [f"{_point(point)}: {_number(score)}" for point, score in found["scores"]]
        yield [arm, _point(found["point"]), found["metric"], "; ".join(others)]


def _costs(summary: Summary, starts: str | tuple[str, ...], heading: str, shown: Any) -> Grid:
    keys = list(dict.fromkeys(key for found in summary.costs.values() for key in found if key.startswith(starts)))
    keys.sort(key=lambda key: key.endswith("/total"))
    short = [key.partition("/")[2] if isinstance(starts, str) else key for key in keys]
    body = [
        [arm, *(shown(found[key]) if key in found else "-" for key in keys)] for arm, found in summary.costs.items()
    ]
    return heading, ("arm", *short), body


def _mean(rows: Sequence[Row], arm: str) -> str:
    found = next((row.estimate for row in rows if row.arm == arm), None)
    if found is None:
        return "-"
    half = found.high - found.mean
    return f"{found.mean:.4g}" if math.isnan(half) else f"{found.mean:.4g} ± {half:.2g}"


def _interval(found: Estimate) -> str:
    return "-" if math.isnan(found.low) else f"{found.low:+.4f} to {found.high:+.4f}"


def _p(value: float) -> str:
    return "-" if math.isnan(value) else f"< {SMALL:g}" if value < SMALL else f"{value:.4f}"


def _equal(found: Difference, margin: float | None) -> str:
    if margin is None:
        return "-"
    p = found.p_equivalent
    said = "-" if math.isnan(p) else "yes" if p < 0.05 else "not shown"
    return f"{margin:g}: {said} (p {_p(p)})"


def _point(point: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} = {value:g}" if isinstance(value, float) else f"{key} = {value}" for key, value in point.items()
    )


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _finite(value: Any) -> Any:
    """The same with null for numbers that do not exist."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
