"""`curves.png`: rewards and held-out accuracy over the steps of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Lines = Sequence[Mapping[str, Any]]


def draw_curves(metrics: Lines, path: Path) -> None:
    """Draw the rewards a learner, held-out accuracy, entropy and lengths; nothing for a run without metrics."""
    if not metrics:
        return
    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2)
    _panel(panels[0, 0], metrics, "reward", lambda key: key.startswith("reward/") and key.endswith("/total"))
    _panel(
        panels[0, 1],
        metrics,
        "held-out accuracy",
        lambda key: key.startswith("eval/") and key.rsplit("/", 1)[1] in ("accuracy", "greedy"),
    )
    _panel(panels[1, 0], metrics, "held-out entropy (nats a token)", lambda key: key.endswith("/entropy"))
    _panel(panels[1, 1], metrics, "completion length (tokens)", lambda key: key in ("sampler/length_mean",))
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        figure.savefig(unfinished, dpi=120, format="png")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _panel(axes: Axes, metrics: Lines, title: str, chosen: Any) -> None:
    keys = sorted({key for line in metrics for key in line if chosen(key)})
    for key in keys:
        points = [(line["step"], line[key]) for line in metrics if line.get(key) is not None]
        marker = "o" if key.startswith("eval/") else None
        label = "/".join(part for part in key.split("/") if part not in ("eval", "reward", "total")) or key
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), marker=marker, markersize=3, linewidth=1.2, label=label)
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize="small")
