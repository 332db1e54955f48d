"""Rows as they were read, and the rows that cannot be used: each with its place, a kind and a reason."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import datasets

FaultKind = Literal[
    "malformed",
    "broken unicode",
    "no prompt",
    "odd chat",
    "too long",
    "no value",
    "odd value",
    "duplicate id",
    "few-shot example",
    "not gradable",
    "no completion",
]
"""What can be wrong with a row; the page on data says what each means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A row that cannot be used.

    Attributes:
        place: where it stands: `line 12` of a text file (from 1), else `row 11` (from 0); with the file's name where
            there are several.
        kind: what is wrong, in a word or two; faults are counted by it.
        reason: what is wrong with this row.

    Example:
        >>> print(Fault(place="line 2", kind="malformed", reason="not JSON"))
        line 2: not JSON
    """

    place: str
    kind: FaultKind
    reason: str

    def __str__(self) -> str:
        """The place and the reason."""
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """A table of plain Python values, which may differ in type from row to row, as a file's may.

    Attributes:
        columns: the values of every column, one a row.
        places: where each row stands in its source, see `Fault`.
        faults: the rows that could not be read, which are not in the columns.
        source: what error messages call the table.
        chat_options: options of the chat template, for prompts that are chat messages.

    Example:
        >>> rows = Rows(columns={"prompt": ["1+1=", "2+2="]}, places=["line 1", "line 3"])
        >>> len(rows), rows["prompt"][1]
        (2, '2+2=')
    """

    columns: Mapping[str, Sequence[Any]]
    places: Sequence[str]
    faults: tuple[Fault, ...] = ()
    source: str = "the data"
    chat_options: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of rows that could be read."""
        return len(self.places)

    def __getitem__(self, column: str) -> Sequence[Any]:
        """The values of a column."""
        return self.columns[column]

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in their order."""
        return list(self.columns)


def as_rows(table: Rows | datasets.Dataset) -> Rows:
    """A table of `datasets` as rows, numbered from 0; rows as they are."""
    if isinstance(table, Rows):
        return table
    columns = {name: list(table[name]) for name in table.column_names}
    return Rows(columns=columns, places=[f"row {number}" for number in range(len(table))])


def tally(faults: Iterable[Fault]) -> dict[str, int]:
    """How many rows have each kind of fault, the most frequent first.

    Example:
        >>> tally([Fault(place="row 0", kind="too long", reason="12 tokens, over max_prompt_tokens = 10")])
        {'too long': 1}
    """
    return dict(Counter(fault.kind for fault in faults).most_common())


def in_words(counts: Mapping[str, int]) -> str:
    """Counts by kind as text.

    Example:
        >>> in_words({"too long": 3, "malformed": 1})
        '3 too long, 1 malformed'
    """
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())
