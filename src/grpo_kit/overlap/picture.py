"""`overlap.png`: the overlap ratio by position, and the probability inside the common tokens."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_kit.overlap.estimate import Estimate
from grpo_kit.overlap.result import Overlap


def draw(found: Overlap, threshold: float, path: Path) -> None:
    """Draw both panels; the bands are 95 % intervals over prompts."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _panel(left, found, f"overlap ratio, top {found.k} of {found.vocabulary} tokens")
    _line(left, found, [each.overlap for each in found.by_position], "by position")
    left.axhline(found.overlap.value, color="gray", linewidth=1, label=f"all tokens: {found.overlap.value:.3f}")
    left.axhline(threshold, color="gray", linewidth=1, linestyle=":", label=f"threshold {threshold:g} (a convention)")
    _panel(right, found, "probability of the common tokens")
    _line(right, found, [each.student_common for each in found.by_position], f"under the student '{found.student}'")
    _line(right, found, [each.teacher_common for each in found.by_position], f"under the teacher '{found.teacher}'")
    for axes in (left, right):
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def _panel(axes: Axes, found: Overlap, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("position in the completion (tokens)")
    axes.set_xscale("log", base=2)
    firsts = [each.first for each in found.by_position]
    axes.set_xticks(firsts, [str(first) for first in firsts])
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)


def _line(axes: Axes, found: Overlap, estimates: Sequence[Estimate], label: str) -> None:
    middles = [(each.first + each.last) / 2 for each in found.by_position]
    (line,) = axes.plot(
        middles, [each.value for each in estimates], marker="o", markersize=3, linewidth=1.2, label=label
    )
    low = [each.value if each.low is None else each.low for each in estimates]
    high = [each.value if each.high is None else each.high for each in estimates]
    axes.fill_between(middles, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
