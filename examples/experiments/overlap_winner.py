"""Experiment c: does the overlap tell whether OPD or Semi-OPD wins, and how much sooner is one where the other ends?

Reads the folder that `grpo-kit compare --plan examples/experiments/distillation.toml` left, and the teachers' measures.

Run it: python examples/experiments/overlap_winner.py runs/compare-distillation runs/teachers
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import typer
from scipy import stats

CURVE = "eval/small/accuracy"
HEAD = (
    "| teacher | overlap | KL | OPD | Semi-OPD | difference | 95 % interval | sooner | sooner, rows used |",
    "|---|---:|---:|---:|---:|---:|---|---:|---:|",
)


class Point(NamedTuple):
    """A curve's evaluation: the accuracy, the seconds of training before it, and the share of steps done."""

    accuracy: float
    seconds: float
    share: float


class Teacher(NamedTuple):
    """What came of a teacher.

    Attributes:
        name: its style.
        overlap: with the student, at the start.
        reverse_kl: KL(student || teacher) at the start, in nats a token.
        opd: mean of the metric over seeds.
        semi_opd: the same.
        interval: of their difference, at 95 %.
        sooner: seconds of OPD over those of Semi-OPD, the filling of its buffer included, until both were as good as
            the worse of them became; the median over seeds. NaN where one was never better than at its start.
        sooner_used: the same where the buffer had no more rows than were used until then.
    """

    name: str
    overlap: float
    reverse_kl: float
    opd: float
    semi_opd: float
    interval: tuple[float, float]
    sooner: float
    sooner_used: float

    @property
    def difference(self) -> float:
        """Semi-OPD minus OPD."""
        return self.semi_opd - self.opd


def curve(lines: Sequence[Mapping[str, Any]], steps: int) -> list[Point]:
    """The evaluations of a run against its seconds of training; evaluating is not in them."""
    seconds, found = 0.0, list[Point]()
    for line in lines:
        seconds += line.get("time/step") or 0.0
        if line.get(CURVE) is not None:
            found.append(Point(line[CURVE], seconds, line["step"] / steps))
    return found


def times(opd: Sequence[Point], semi: Sequence[Point], fill: float) -> tuple[float, float]:
    """How many times sooner Semi-OPD is as good as the worse of both becomes: with its whole buffer, with rows used.

    NaN where the start was not surpassed: there is nothing to be sooner at.
    """
    target = min(max(point.accuracy for point in opd), max(point.accuracy for point in semi))
    if target <= max(opd[0].accuracy, semi[0].accuracy):
        return math.nan, math.nan
    first = next(point for point in opd if point.accuracy >= target)
    second = next(point for point in semi if point.accuracy >= target)
    whole, used = second.seconds + fill, second.seconds + fill * second.share
    return first.seconds / whole, first.seconds / used


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run of a comparison."""
    text = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def read(comparison: Path, teachers: Path, metric: str) -> list[Teacher]:
    """Every teacher with both of its arms, in the order of the plan."""
    summary = json.loads((comparison / "summary.json").read_text(encoding="utf-8"))
    rows = {row["arm"]: row for row in summary["metrics"][metric]}
    found: list[Teacher] = []
    for arm, row in rows.items():
        if (name := arm.removeprefix("semi_opd_")) == arm or f"opd_{name}" not in rows:
            continue
        measured = json.loads((teachers / name / "measured.json").read_text(encoding="utf-8"))
        ratios: list[tuple[float, float]] = []
        for seed in row["values"]:
            one, other = (comparison / "runs" / own / f"seed-{seed}" for own in (f"opd_{name}", arm))
            if not all((own / "result.json").exists() for own in (one, other)):
                continue
            fill = json.loads((other / "result.json").read_text(encoding="utf-8"))["seconds"]["fill"]
            pair = [lines_of(own) for own in (one, other)]
            opd, semi = (curve(own, own[-1]["step"]) for own in pair)
            ratios.append(times(opd, semi, fill))
        of = row["differences"][f"opd_{name}"]["of"]
        found.append(
            Teacher(
                name=name,
                overlap=measured["overlap"],
                reverse_kl=measured["reverse_kl"],
                opd=rows[f"opd_{name}"]["estimate"]["mean"],
                semi_opd=row["estimate"]["mean"],
                interval=(of["low"], of["high"]),
                sooner=_median([ratio for ratio, _ in ratios]),
                sooner_used=_median([ratio for _, ratio in ratios]),
            )
        )
    return found


def _median(ratios: Sequence[float]) -> float:
    """The median, NaN where one of them is."""
    return math.nan if any(map(math.isnan, ratios)) else median(ratios)


def _times(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.1f} x"


def correlations(found: Sequence[Teacher]) -> list[str]:
    """Spearman's rank correlation of what was known before with what came out, a line each."""
    known = {
        "overlap": [own.overlap for own in found],
        "KL(student || teacher)": [own.reverse_kl for own in found],
    }
    came = {
        "Semi-OPD - OPD": [own.difference for own in found],
        "OPD": [own.opd for own in found],
        "Semi-OPD": [own.semi_opd for own in found],
    }
    lines: list[str] = []
    for before, values in known.items():
        for after, others in came.items():
            result: Any = stats.spearmanr(values, others)
            lines.append(f"rank correlation of {before} and {after}: {result.statistic:+.2f} (p {result.pvalue:.3f})")
    return lines


def main(
    comparison: Annotated[Path, typer.Argument(help="Folder of the comparison.")],
    teachers: Annotated[Path, typer.Argument(help="Folder of the teachers.")],
    metric: Annotated[str, typer.Option(help="small/accuracy of the last weights, or small/area, as the paper.")] = (
        "small/accuracy"
    ),
) -> None:
    """Print a row for each teacher, and rank correlations over them."""
    found = read(comparison, teachers, metric)
    print("\n".join(HEAD))
    for own in found:
        low, high = own.interval
        print(
            f"| {own.name} | {own.overlap:.2f} | {own.reverse_kl:.2f} | {own.opd:.3f} | {own.semi_opd:.3f} "
            f"| {own.difference:+.3f} | {low:+.3f} to {high:+.3f} | {_times(own.sooner)} | {_times(own.sooner_used)} |"
        )
    print("\n" + "\n".join(correlations(found)))


if __name__ == "__main__":
    typer.run(main)
