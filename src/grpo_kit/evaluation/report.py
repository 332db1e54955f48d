"""Results for people and for programs: a table in a terminal, plain lines elsewhere, JSON in a file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grpo_kit.evaluation.result import Result
from grpo_kit.terminal import say, visible, visible_json


def show(results: Sequence[Result], console: Console) -> None:
    """Print every result: one table with a column each in a terminal, else a block of `name: value` lines each."""
    blocks = [_lines(result) for result in results]
    names = list(dict.fromkeys(name for block in blocks for name in block))
    if console.is_terminal:
        table = Table()
        for heading in ("", *map(_heading, results)):
            table.add_column(Text(heading))
        for name in names:
            table.add_row(*map(Text, [visible(name), *(block.get(name, "") for block in blocks)]))
        console.print(table)
    for result, block in zip(results, blocks, strict=True):
        if not console.is_terminal:
            say(console, f"{result.policy} on {result.data}")
            for name, value in block.items():
                say(console, f"  {name}: {value}")
        for line in _remarks(result):
            say(console, line)


def write(
    path: Path,
    settings: Mapping[str, Any],
    versions: Mapping[str, str],
    results: Sequence[Result],
    asked: Sequence[Mapping[str, Any]],
) -> None:
    """Write settings, versions and every result, with how it was asked, as JSON; no number is null."""
    found = [_plain(asdict(result)) | {"asked": how} for result, how in zip(results, asked, strict=False)]
    content = {"settings": settings, "versions": versions, "results": found}
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    path.write_text(visible_json(text) + "\n", encoding="utf-8")


def _heading(result: Result) -> str:
    return visible(f"{result.policy}\n{result.data}")


def _lines(result: Result) -> dict[str, str]:
    """What is said of a result, by name, in order."""
    low, high = result.interval
    found = {
        "questions": str(result.questions),
        "accuracy": _share(result.accuracy),
        "95 % interval": f"{_share(low)} to {_share(high)}",
    }
    if result.missing:
        found["if missing wrong / right"] = " / ".join(map(_share, result.bounds))
    if result.samples > 1:
        found |= {f"pass@{k}": _share(value) for k, value in result.pass_at.items()}
        found[f"maj@{result.samples}"] = _share(result.majority)
    found |= {
        "tokens a completion": f"{result.length:.1f}",
        f"cut at {result.max_new_tokens} tokens": _share(result.truncated),
    }
    total = result.questions * result.samples
    found |= {f"status {status}": f"{count} of {total}" for status, count in result.statuses.items()}
    seconds = result.sampling_seconds + result.grading_seconds
    found["seconds"] = f"{seconds:.1f} ({result.grading_seconds:.1f} of them grading)"
    found["tokens a second"] = f"{result.tokens_per_second:.0f}"
    return found


def _remarks(result: Result) -> list[str]:
    """What is not to be overlooked: verdicts that are missing, the first example of each status."""
    lines: list[str] = []
    place = f"{result.policy} on {result.data}"
    if result.missing:
        lines.append(f"{place}: {result.missing} completions have no verdict and count neither as right nor as wrong")
    if result.majority_missing and result.samples > 1:
        lines.append(f"{place}: maj@{result.samples} leaves out {result.majority_missing} questions without a verdict")
    seen: set[str] = set()
    for example in result.examples:
        if example["status"] not in seen:
            seen.add(example["status"])
            end = " ".join(example["end"].split())[-100:]
            lines.append(f"{place}: {example['status']}, e.g. question {example['question']}: ...{end!r}")
    return lines


def _share(value: float) -> str:
    return "-" if isnan(value) else f"{value:.3f}"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if isnan(value) else value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
