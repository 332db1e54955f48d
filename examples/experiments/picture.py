"""Draw a metric of a comparison: every seed's value as a dot, the mean and its 95 % interval, arm by arm.

Run it: python examples/experiments/picture.py runs/compare-small/summary.json small/accuracy docs/pictures/small.svg
"""

import json
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import typer
from matplotlib.figure import Figure

BLUE, GREY = "#0072b2", "#999999"


def draw(summary: Path, metric: str) -> Figure:
    """The picture; one line an arm, the plan's first on top."""
    rows = json.loads(summary.read_text(encoding="utf-8"))["metrics"][metric]
    figure = Figure(figsize=(7, 0.6 + 0.4 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(rows):
        values, found = list(row["values"].values()), row["estimate"]
        axes.plot(values, [place] * len(values), "o", color=GREY, markersize=4)
        low, high = (found["mean"] if found[end] is None else found[end] for end in ("low", "high"))
        axes.errorbar(
            found["mean"], place, xerr=[[found["mean"] - low], [high - found["mean"]]], fmt="s", color=BLUE, capsize=3
        )
    axes.set_yticks(range(len(rows)), [row["arm"] for row in rows])
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x", color="#dddddd")
    axes.set_xlabel(f"{metric}: mean with 95 % interval, and every seed")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main(
    summary: Annotated[Path, typer.Argument(help="summary.json of a comparison.")],
    metric: Annotated[str, typer.Argument(help="<policy>/<metric>.")],
    out: Annotated[Path, typer.Argument(help="Picture to write; its ending is the format.")],
) -> None:
    """Write the picture of a metric."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "grpo_kit", "svg.fonttype": "none"}):
        draw(summary, metric).savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


if __name__ == "__main__":
    typer.run(main)
