"""Columns under our names: renamed, extracted from, told apart by an id; and what to say where one is missing."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from grpo_kit.data.rows import Fault, Rows, in_words, tally
from grpo_kit.parts import did_you_mean

USUAL = {
    "prompt": ("question", "problem", "instruction", "query", "input", "messages", "text", "content"),
    "answer": (
        *("final_answer", "expected_answer", "ground_truth", "gold", "target", "label", "solution"),
        *("reference", "output", "response"),
    ),
    "completion": ("response", "output", "solution", "answer", "chosen", "target"),
}
"""What other tables call our columns, the likeliest first; only for hints."""


def map_columns(table: Rows, columns: Mapping[str, str], extract: Mapping[str, str]) -> Rows:
    """Give columns our names beside the table's own, and keep what a pattern's group matches; `prompt` must be there.

    A number is matched as it is written; a value that does not match, or is neither text nor number, becomes None.
    """
    names = {name: columns.get(name, name) for name in sorted({"prompt", *columns, *extract})}
    missing = {name: theirs for name, theirs in names.items() if theirs not in table.columns}
    if missing:
        raise ValueError(missing_columns(table, missing))
    ours = {name: list(table[theirs]) for name, theirs in names.items()}
    for name, pattern in extract.items():
        ours[name] = [_extract(pattern, value) for value in ours[name]]
    return replace(table, columns={**table.columns, **ours})


def missing_columns(table: Rows, missing: Mapping[str, str], readers: Mapping[str, str] | None = None) -> str:
    """The sentence for columns that a table has not: our names, the table's names looked for, and who reads each."""
    if not table.columns:
        return nothing_read(table)
    lines: list[str] = []
    hints: list[str] = []
    for name, theirs in missing.items():
        reader = f", which {readers[name]} reads" if readers and name in readers else ""
        if theirs != name:
            lines.append(f"no column '{theirs}' (columns.{name}){reader}.{did_you_mean(theirs, table.columns)}")
        else:
            lines.append(f"no column '{theirs}'{reader}.")
            hints.append(f'{name} = "{guess(name, table) or "..."}"')
    has = f"It has: {', '.join(table.columns)}."
    hint = f" Map {'it' if len(hints) == 1 else 'them'}, for example columns = {{ {', '.join(hints)} }}."
    return f"{table.source} has {' And '.join(lines)} {has}{hint if hints else ''}"


def nothing_read(table: Rows) -> str:
    """The sentence for a table without a row that can be read."""
    if not table.faults:
        return f"{table.source} has no rows"
    counts = in_words(tally(table.faults))
    return f"{table.source}: 0 of {len(table.faults)} rows can be read ({counts}). {table.faults[0]}"


def guess(name: str, table: Rows) -> str | None:
    """The column that is most likely ours under another name: by usual names, for a prompt else the longest texts."""
    lower = {theirs.lower(): theirs for theirs in reversed(table.column_names)}
    for usual in (name, *USUAL.get(name, ())):
        if usual in lower:
            return lower[usual]
    lengths = {theirs: _mean_length(values) for theirs, values in table.columns.items()}
    longest = max(lengths, key=lambda theirs: lengths[theirs], default=None)
    return longest if name == "prompt" and longest is not None and lengths[longest] > 0 else None


def _mean_length(values: Sequence[Any]) -> float:
    first = values[:100]
    return sum(len(value) for value in first if isinstance(value, str)) / max(1, len(first))


def drop_duplicates(table: Rows, column: str) -> Rows:
    """Keep the first row of each id; later ones become faults. Rows without an id (blank, or NaN) are all kept.

    Of several files each may number its own rows.
    """
    if column not in table.columns:
        return table
    seen: dict[str, str] = {}
    kept: list[int] = []
    faults: list[Fault] = []
    for number, (place, value) in enumerate(zip(table.places, table[column], strict=True)):
        missing = value is None or value != value or (isinstance(value, str) and not value.strip())
        key = f"{place.rpartition(' ')[0]} {type(value).__name__} {value!r}"
        if not missing and key in seen:
            reason = f"{column} {_short(value)} is that of {seen[key]}, too"
            faults.append(Fault(place=place, kind="duplicate id", reason=reason))
        else:
            seen[key] = place
            kept.append(number)
    return replace(keep(table, kept), faults=(*table.faults, *faults))


def keep(table: Rows, numbers: Iterable[int]) -> Rows:
    """The rows of these numbers, in this order; the faults stay."""
    numbers = list(numbers)
    columns = {name: [values[number] for number in numbers] for name, values in table.columns.items()}
    return replace(table, columns=columns, places=[table.places[number] for number in numbers])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _extract(pattern: str, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    found = re.fullmatch(pattern, value if isinstance(value, str) else repr(value), re.DOTALL)
    return (found[1] or "").strip() if found else None
