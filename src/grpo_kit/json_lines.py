"""Lines of a run's `.jsonl` files for those who show them: what cannot be read is left out and counted, not the end."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_kit.disk import reason

LARGEST = 2.0**53
"""Whole numbers up to here are the same in every program that reads the page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line that is not blank.

    Attributes:
        number: its place in the file, from 1 on.
        start: the bytes before it.
        length: its own bytes.
        value: the object with a `step` that it is; None for anything else.
    """

    number: int
    start: int
    length: int
    value: dict[str, Any] | None


def each_line(file: Path) -> Iterator[Line]:
    """The lines of a file, one in memory at a time; ValueError if it cannot be read."""
    start = 0
    try:
        with file.open("rb") as lines:
            for number, raw in enumerate(lines, start=1):
                if raw.strip():
                    yield Line(number=number, start=start, length=len(raw), value=parsed(raw))
                start += len(raw)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {reason(error)}") from None


def read_lines(file: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects with a `step` of a file, and the numbers of the other lines; ValueError if it cannot be read."""
    found: list[dict[str, Any]] = []
    damaged: list[int] = []
    for line in each_line(file):
        if line.value is None:
            damaged.append(line.number)
        else:
            found.append(line.value)
    return found, damaged


def parsed(raw: bytes) -> dict[str, Any] | None:
    """The object with a `step` that a line is, or None.

    In it a number that is not finite, or a whole one that is too large, is None.
    """
    text = raw.decode("utf-8", errors="replace")
    try:
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_finite, parse_int=_exact)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and is_whole(value.get("step")) else None


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
