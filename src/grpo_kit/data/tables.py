"""From a place to rows: which reader a path needs, and which rows of what it reads are wanted."""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import datasets

from grpo_kit.data.columns import keep
from grpo_kit.data.files import COMPRESSIONS, TEXT_FORMATS, Placed, Read, find_files, format_of, read_files
from grpo_kit.data.hub import load_files, load_table
from grpo_kit.data.rows import Rows

BUILDERS = {".parquet": "parquet", ".arrow": "arrow"}
"""Endings of the files that `datasets` reads for us, and its name for each."""
ENDINGS = (*TEXT_FORMATS, *BUILDERS)


def read_table(
    path: str, *, name: str = "", split: str = "train", rows: int | None = None, stream: bool = False
) -> Rows:
    """Read local files, a folder or a hub data set; the settings are those of `DatasetRows`.

    ValueError when there is no such thing, when it cannot be read as a whole, or when a setting does not fit it.
    """
    files = find_files(path)
    if not files:
        if format_of(path) in ENDINGS or re.search(r"[*?\[]", path):
            raise ValueError(f"data file '{path}' does not exist (looked from {Path.cwd()})")
        columns = load_table(path, name, split, rows=rows, stream=stream)
        return _from_columns(columns, f"data set '{path}' (split {split})")
    ending = format_of(files[0])
    if ending not in ENDINGS:
        raise ValueError(
            f"data file '{files[0]}' must end in {', '.join(ENDINGS)}, by its format; the text formats also with "
            f"{', '.join(COMPRESSIONS)}"
        )
    other = [file for file in files if format_of(file) != ending]
    if other:
        raise ValueError(f"'{path}' matches files of several formats: '{files[0]}' and '{other[0]}'. Name one format")
    if name:
        raise ValueError(f"name '{name}' belongs to a hub data set; for the file '{path}' set it to ''")
    if stream:
        raise ValueError(f"stream is for hub data sets and folders; of the file '{path}' only `rows` are read anyway")
    source = f"data file '{path}' (split {split})"
    if ending in BUILDERS:
        columns = load_files(BUILDERS[ending], files, rows=None if "[" in split else rows)
        table = _from_columns(columns, source)
        return table if "[" not in split else keep(table, islice(_slice(split, len(table)), rows))
    if "[" not in split:
        return _from_reads(list(islice(read_files(files), rows)), source)
    reads = list(read_files(files))
    return _from_reads([reads[number] for number in islice(_slice(split, len(reads)), rows)], source)


def _slice(split: str, count: int) -> Sequence[int]:
    """The numbers of the rows that a split with slices such as `train[:100]+train[-5%:]` means, out of so many."""
    names = {part.partition("[")[0].strip() for part in split.split("+")}
    try:
        pieces = datasets.ReadInstruction.from_spec(split).to_absolute(dict.fromkeys(names, count))
    except (ValueError, AssertionError, KeyError) as error:
        raise ValueError(f"split '{split}' cannot be taken of {count} rows: {error}") from error
    return [number for piece in pieces for number in range(piece.from_ or 0, count if piece.to is None else piece.to)]


def _from_columns(columns: dict[str, list], source: str) -> Rows:
    count = max(map(len, columns.values()), default=0)
    return Rows(columns=columns, places=[f"row {number}" for number in range(count)], source=source)


def _from_reads(reads: Sequence[Read], source: str) -> Rows:
    """Rows with the columns of all of them; None where one has no value."""
    good = [read for read in reads if isinstance(read, Placed)]
    names = dict.fromkeys(name for read in good for name in read.values)
    return Rows(
        columns={name: [read.values.get(name) for read in good] for name in names},
        places=[read.place for read in good],
        faults=tuple(read for read in reads if not isinstance(read, Placed)),
        source=source,
    )
