"""Lines of a `.jsonl` file as a report takes them: what cannot be read is left out and counted, never the end of it."""

import json
import math
from pathlib import Path
from typing import Any

from grpo_kit.disk import reason

LARGEST = 2.0**53
"""Whole numbers up to here are the same in every program that reads the page."""


def read_lines(file: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects with a `step` of a file, and the numbers of the lines that are none; ValueError if it has no bytes.

    A number that is not finite, or a whole one that is too large, is None.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {reason(error)}") from None
    found: list[dict[str, Any]] = []
    damaged: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, parse_constant=lambda _: None, parse_float=_finite, parse_int=_exact)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and is_whole(value.get("step")):
            found.append(value)
        else:
            damaged.append(number)
    return found, damaged


def is_number(value: object) -> bool:
    """Whether it is a number as JSON has them: `true` is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether it is a whole number from 0 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _exact(text: str) -> int | None:
    return int(text) if len(text) < 18 and abs(int(text)) <= LARGEST else None
