"""Where the completions of a `samples.jsonl` stand in it, and which of them a page has room for: no text is held."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from grpo_kit.json_lines import each_line, parsed

BY_NAME = ("logprobs", "entropy", "advantage", "correction", "counted")
NUMBERS = frozenset({int, float, type(None)})


class Place(NamedTuple):
    """Where a line stands, and what it costs to show it.

    Attributes:
        start: the bytes before it.
        length: its own bytes.
        step: of the completion.
        tokens: of the completion; None for a line that no run writes.
    """

    start: int
    length: int
    step: int
    tokens: int | None


def places(file: Path) -> tuple[list[Place], list[int]]:
    """The readable lines of a file, and the numbers of the others. The file is read once, a line at a time."""
    found: list[Place] = []
    damaged: list[int] = []
    for line in each_line(file):
        if line.value is None:
            damaged.append(line.number)
        else:
            tokens = len(line.value["tokens"]) if fits(line.value) else None
            found.append(Place(line.start, line.length, line.value["step"], tokens))
    return found, damaged


def lines_at(file: Path, chosen: Sequence[Place]) -> Iterator[dict[str, Any]]:
    """The lines at these places, but for those whose file was written anew since then."""
    with file.open("rb") as lines:
        for place in chosen:
            lines.seek(place.start)
            value = parsed(lines.read(place.length))
            if value is not None and value["step"] == place.step:
                yield value


def thinned(rows: Sequence[Place], most: int) -> list[Place]:
    """The rows of every second step, fourth, ... with the first and the last, until they have at most so many tokens.

    From two steps and less each gives a row away in turn, its last one; one stays of each, whatever they have.
    """
    by_step: dict[int, list[Place]] = {}
    for row in rows:
        by_step.setdefault(row.step, []).append(row)
    sizes = {step: sum(row.tokens or 0 for row in own) for step, own in by_step.items()}
    steps, total = sorted(by_step), sum(sizes.values())
    while total > most and len(steps) > 2:
        steps = [*steps[:-1:2], steps[-1]]
        total = sum(sizes[step] for step in steps)
    giving = [by_step[step] for step in steps]
    while total > most and (giving := [own for own in giving if len(own) > 1]):
        for own in giving:
            if total > most:
                total -= own.pop().tokens or 0
    return sorted(row for step in steps for row in by_step[step])


def fits(line: Mapping[str, Any]) -> bool:
    """Whether the parts of a line fit together: as many texts and numbers as tokens."""
    tokens, texts = line.get("tokens"), line.get("pieces")
    if not _is_list(tokens, {int}) or min(tokens, default=0) < 0:
        return False
    if texts is not None and not (_is_list(texts, {str}) and len(texts) == len(tokens)):
        return False
    named = parts_by_name(line)
    if not all(isinstance(own, dict) for own in named.values()):
        return False
    numbers = [own for name in BY_NAME for own in named[name].values()] + [line.get("behavior")]
    if not all(own is None or (_is_list(own, NUMBERS) and len(own) == len(tokens)) for own in numbers):
        return False
    return _are(named["rewards"].values(), NUMBERS)


def parts_by_name(line: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a line that are tables; empty where it has none."""
    return {name: line.get(name) or {} for name in (*BY_NAME, "rewards", "statuses", "columns")}


def _is_list(value: Any, kinds: Set[type]) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and _are(value, kinds)


def _are(values: Iterable[Any], kinds: Set[type]) -> bool:
    """Whether JSON values are of these kinds; `true` is no number."""
    return {*map(type, values)} <= kinds
