"""The pictures, made with plotly: curves with seed bands, and bars of stage times."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_kit.report.bands import Band, band, mean
from grpo_kit.report.panels import Panel
from grpo_kit.report.runs import Run
from grpo_kit.terminal import one_line

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#5D3A9B", "#333333")
"""Told apart by the color-blind: those of Okabe and Ito, the yellow one darker."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
STAGES = ("#4C78A8", "#F2B56B", "#79B8A4", "#C98BB9", "#8DA0CB", "#D9826A", "#A6A65E", "#9A9A9A")
FEW_STEPS = 10
"""With no more steps than these each has its tick."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
GRID = "#e8eaee"
MARGIN = {"l": 92, "r": 14, "t": 8, "b": 40}
"""Pixels around a picture, at the left for nine digits. Fixed: plotly's own follow the labels, whose number follows the
margins, and with some fonts that never comes to rest."""
LETTER, WIDE = 8, 13
"""Pixels of a letter, at most: of most small ones, and of all."""
LINE = 20
"""Letters of a group's name before it goes on in a new line."""


def plotly_program() -> str:
    """The program that draws, as a page holds it; ValueError where plotly is not installed."""
    return _plotly()[1]


def _plotly() -> tuple[Any, str]:
    try:
        from plotly import graph_objects
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ValueError("a report needs plotly: pip install 'grpo-kit[evidence]'") from None
    return graph_objects, get_plotlyjs()


def curves(panel: Panel, groups: Mapping[str, Sequence[Run]]) -> dict[str, Any] | None:
    """The metrics of a panel: for each group and each who, the mean line over its seeds and their band."""
    objects, _ = _plotly()
    figure = objects.Figure()
    for place, (label, runs) in enumerate(groups.items()):
        for number, (who, key) in enumerate(panel.series):
            whole = band([run.metrics for run in runs], key)
            if whole is None:
                continue
            found = whole.thinned()
            color = COLORS[(place if len(groups) > 1 else number) % len(COLORS)]
            dash = DASHES[number % len(DASHES)] if len(groups) > 1 else "solid"
            name = shown(" · ".join(part for part in (label if len(groups) > 1 else "", who) if part) or label)
            legend = {"legendgroup": f"{place}/{number}", "name": name}
            for stretch in found.stretches():
                figure.add_trace(objects.Scatter(**_band(found, stretch), fillcolor=_thin(color), **legend))
            figure.add_trace(objects.Scatter(**_line(found, color, dash), **legend))
    if not figure.data:
        return None
    if max(run.steps for runs in groups.values() for run in runs) <= FEW_STEPS:
        figure.update_xaxes(dtick=1)
    names = {trace.legendgroup for trace in figure.data}
    figure.update_layout(**_layout("step"), hovermode="x unified", showlegend=len(names) > 1)
    return figure.to_plotly_json()


def stage_times(groups: Mapping[str, Sequence[Run]]) -> dict[str, Any] | None:
    """A bar a group: mean seconds of each stage of a step, over all steps and seeds."""
    objects, _ = _plotly()
    figure = objects.Figure()
    seconds = {label: _stages(runs) for label, runs in groups.items()}
    for number, stage in enumerate(dict.fromkeys(stage for own in seconds.values() for stage in own)):
        bars = [own.get(stage) for own in seconds.values()]
        figure.add_trace(
            objects.Bar(
                y=[shown(label) for label in seconds],
                x=bars,
                orientation="h",
                name=shown(stage),
                marker={"color": STAGES[number % len(STAGES)], "line": {"color": "white", "width": 1}},
                hovertemplate="%{x:.4g} s<extra>%{fullData.name}</extra>",
            )
        )
    if not figure.data:
        return None
    figure.update_layout(**_layout("seconds a step (mean)"), barmode="stack", bargap=0.35)
    names = [_lines(label) for label in groups]
    left = 24 + max(_pixels(line) for lines in names for line in lines)
    bar = max(46, 22 * max(map(len, names)))
    figure.update_layout(height=130 + bar * len(groups), legend={"traceorder": "normal"}, margin=MARGIN | {"l": left})
    figure.update_yaxes(
        autorange="reversed",
        tickvals=[shown(label) for label in groups],
        ticktext=["<br>".join(map(shown, lines)) for lines in names],
    )
    return figure.to_plotly_json()


def shown(text: str) -> str:
    """A name as plotly writes it: visible, and read neither as its markup nor as a template, such as `%{meta}`."""
    return html.escape(one_line(text), quote=False).replace("%{", "%&#123;")


def _lines(text: str) -> list[str]:
    """A name in lines of `LINE` letters."""
    text = one_line(text)
    return [text[first : first + LINE] for first in range(0, len(text), LINE)] or [""]


def _pixels(text: str) -> int:
    """No less than the width of a line of a name."""
    return sum(
        LETTER if letter.isascii() and letter not in "mw@%&" and not letter.isupper() else WIDE for letter in text
    )


def _stages(runs: Sequence[Run]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for run in runs:
        for line in run.metrics:
            for key, value in line.items():
                stage = key.removeprefix("time/")
                if stage != key and value is not None and stage not in ("step", "tokens_per_second"):
                    found.setdefault(stage, []).append(float(value))
    return {stage: value for stage, own in found.items() if (value := mean(own)) is not None}


def _line(found: Band, color: str, dash: str) -> dict[str, Any]:
    single = max(found.seeds) <= 1
    spread = "" if single else " (%{customdata[0]:.4~g} to %{customdata[1]:.4~g}, %{customdata[2]} seeds)"
    return {
        "x": list(found.steps),
        "y": list(found.mean),
        "customdata": None if single else [list(own) for own in zip(found.low, found.high, found.seeds, strict=True)],
        "mode": "lines+markers" if len(found.steps) <= 30 else "lines",
        "line": {"color": color, "dash": dash, "width": 2},
        "marker": {"size": 5, "color": color},
        "connectgaps": False,
        "hovertemplate": f"%{{y:.6~g}}{spread}",
    }


def _band(found: Band, places: range) -> dict[str, Any]:
    """The area from the least to the greatest of the seeds, there and back."""
    steps, low, high = ([own[place] for place in places] for own in (found.steps, found.low, found.high))
    return {
        "x": [*steps, *reversed(steps)],
        "y": [*high, *reversed(low)],
        "fill": "toself",
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _thin(color: str) -> str:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.16)"


def _layout(below: str) -> dict[str, Any]:
    axis = {
        "gridcolor": GRID,
        "linecolor": "#c4c8d0",
        "zerolinecolor": "#d5d8de",
        "ticks": "outside",
        "tickcolor": "#c4c8d0",
        "ticklen": 4,
    }
    title = {"size": 12, "color": "#5b6270"}
    return {
        "template": None,
        "height": 290,
        "margin": MARGIN,
        "font": {"family": FONT, "size": 12, "color": "#2b303a"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": axis | {"zeroline": False, "title": {"text": below, "font": title, "standoff": 6}},
        "yaxis": axis,
        "legend": {"orientation": "h", "y": 1.03, "yanchor": "bottom", "x": 0, "font": {"size": 11.5}},
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "modebar": {"bgcolor": "rgba(255,255,255,0.8)", "color": "#8a92a0", "activecolor": "#2b303a"},
    }
