"""The completions of the token view: the lines of `samples.jsonl` as the page holds them, as many as fit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from grpo_kit.report.lines import is_number, is_whole
from grpo_kit.report.runs import Run
from grpo_kit.terminal import one_line, visible

MOST_TOKENS = 200_000
"""Tokens in a page, about 25 MB of it with the signals of two policies."""
BY_NAME = ("logprobs", "entropy", "advantage", "correction", "counted")
LONGEST_COLUMN = 200


def token_rows(runs: Sequence[Run], most: int = MOST_TOKENS) -> tuple[list[dict[str, Any]], list[str]]:
    """The completions of each run that has some, and what was left out, a line each."""
    found, notes = list[dict[str, Any]](), list[str]()
    share = most // max(1, sum(bool(run.samples) for run in runs))
    for run in runs:
        if not run.samples:
            continue
        rows = [row for line in run.samples if (row := token_row(line)) is not None]
        if odd := len(run.samples) - len(rows):
            notes.append(f"{run.path / 'samples.jsonl'}: {odd} lines that no run writes left out")
        fitting = thinned(rows, share)
        if len(fitting) < len(rows):
            steps = len({row["step"] for row in fitting}), len({row["step"] for row in rows})
            notes.append(
                f"{run.path / 'samples.jsonl'}: {len(fitting)} of {len(rows)} completions are in the token view "
                f"({steps[0]} of {steps[1]} steps), since a page holds {most:,} tokens"
            )
        if fitting:
            found.append(
                {"label": one_line(run.label), "seed": run.seed, "path": one_line(str(run.path)), "rows": fitting}
            )
    return found, notes


def thinned(rows: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The rows of every second step, fourth, ... with the first and the last, until they have at most so many tokens.

    Of two steps and less rows are taken from the first on, one at least.
    """
    steps, kept = sorted({row["step"] for row in rows}), list(rows)
    while _tokens(kept) > most and len(steps) > 2:
        steps = [*steps[:-1:2], steps[-1]]
        kept = [row for row in kept if row["step"] in set(steps)]
    while _tokens(kept) > most and len(kept) > 1:
        kept.pop()
    return kept


def token_row(line: Mapping[str, Any]) -> dict[str, Any] | None:
    """A line as the page holds it, every text visible; None for one whose parts do not fit together."""
    tokens, texts = line.get("tokens"), line.get("pieces")
    if not _is_list(tokens, is_whole) or not (texts is None or _is_list(texts, lambda text: isinstance(text, str))):
        return None
    if texts is not None and len(texts) != len(tokens):
        return None
    named = {name: line.get(name) or {} for name in (*BY_NAME, "rewards", "statuses", "columns")}
    if not all(isinstance(own, dict) for own in named.values()):
        return None
    numbers = [own for name in BY_NAME for own in named[name].values()] + [line.get("behavior")]
    if not all(own is None or (_is_list(own, _is_number_or_none) and len(own) == len(tokens)) for own in numbers):
        return None
    if not all(_is_number_or_none(value) for value in named["rewards"].values()):
        return None
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
        "tokens": tokens,
        "pieces": None if texts is None else [visible(text) for text in texts],
        "behavior": line.get("behavior"),
        **{name: {one_line(who): own for who, own in named[name].items()} for name in BY_NAME},
    }


def _tokens(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(row["tokens"]) for row in rows)


def _short(value: Any) -> str:
    text = str(value)
    return one_line(text if len(text) <= LONGEST_COLUMN else f"{text[:LONGEST_COLUMN]}...")


def _is_list(value: Any, is_one: Callable[[Any], bool]) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and all(map(is_one, value))


def _is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)
