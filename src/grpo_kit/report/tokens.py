"""The completions of the token view: the lines of `samples.jsonl` as the page holds them, as many as fit."""

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_kit.disk import reason
from grpo_kit.json_lines import is_whole
from grpo_kit.report.folders import SAMPLES
from grpo_kit.report.runs import Run
from grpo_kit.report.samples import BY_NAME, Place, fits, lines_at, parts_by_name, thinned
from grpo_kit.terminal import one_line, visible

MOST_TOKENS = 200_000
"""Tokens in a page, about 16 MB of it with the signals of two policies."""
LONGEST_COLUMN = 200


def token_rows(runs: Sequence[Run], most: int = MOST_TOKENS) -> tuple[list[dict[str, Any]], list[str]]:
    """The completions of each run that has some, and what was left out, a line each."""
    found, notes = list[dict[str, Any]](), list[str]()
    share = most // max(1, sum(bool(run.samples) for run in runs))
    for run in runs:
        file = run.path / SAMPLES
        known = [place for place in run.samples if place.tokens is not None]
        if odd := len(run.samples) - len(known):
            notes.append(f"{file}: {odd} lines that no run writes left out")
        chosen = thinned(known, share)
        if len(chosen) < len(known):
            notes.append(f"{file}: {_share(chosen, known)} are in the token view, since a page holds {most:,} tokens")
        rows = _rows(run, chosen) if chosen else []
        if changed := len(chosen) - len(rows):
            notes.append(f"{file}: {changed} completions left out that changed while they were read")
        if rows:
            found.append(
                {"label": one_line(run.label), "seed": run.seed, "path": one_line(str(run.path)), "rows": rows}
            )
    return found, notes


def _share(chosen: Sequence[Place], known: Sequence[Place]) -> str:
    steps = [len({place.step for place in own}) for own in (chosen, known)]
    return f"{len(chosen)} of {len(known)} completions ({steps[0]} of {steps[1]} steps)"


def _rows(run: Run, chosen: Sequence[Place]) -> list[dict[str, Any]]:
    try:
        return [row for line in lines_at(run.path / SAMPLES, chosen) if (row := token_row(line)) is not None]
    except OSError as error:
        raise ValueError(f"{run.path / SAMPLES} cannot be read: {reason(error)}") from None


def token_row(line: Mapping[str, Any]) -> dict[str, Any] | None:
    """A line as the page holds it, every text visible; None for one whose parts do not fit together."""
    if not fits(line):
        return None
    texts, named = line.get("pieces"), parts_by_name(line)
    return {
        "step": line["step"],
        "group": line["group"] if is_whole(line.get("group")) else None,
        "kept": line.get("kept") is True,
        "greedy": line.get("greedy") is True,
        "prompt": visible(str(line.get("prompt", ""))),
        "text": visible(str(line.get("completion", ""))) if texts is None else None,
        "end": one_line(str(line.get("stop_reason", ""))),
        "columns": [[one_line(name), _short(value)] for name, value in named["columns"].items() if name != "prompt"],
        "rewards": {one_line(name): value for name, value in named["rewards"].items()},
        "statuses": {one_line(name): one_line(str(value)) for name, value in named["statuses"].items()},
        "tokens": line["tokens"],
        "pieces": None if texts is None else [visible(text) for text in texts],
        "behavior": line.get("behavior"),
        **{name: {one_line(who): own for who, own in named[name].items()} for name in BY_NAME},
    }


def _short(value: Any) -> str:
    text = str(value)
    return one_line(text if len(text) <= LONGEST_COLUMN else f"{text[:LONGEST_COLUMN]}...")
