"""Tables that the library `datasets` reads: hub data sets, folders, Parquet and Arrow files."""

import re
from itertools import islice
from pathlib import Path
from typing import Any

import datasets

from grpo_kit.hub import from_hub


def load_table(path: str, name: str, split: str, *, rows: int | None, stream: bool) -> dict[str, list[Any]]:
    """A hub data set or a folder as columns; ValueError says why it cannot be read, within seconds without a network.

    Args:
        path: name on the hub, or a folder.
        name: configuration; empty where there is one only.
        split: split, slices included unless streamed.
        rows: how many of the first rows; all without it.
        stream: read no more of the data than those rows.
    """
    with from_hub(local=Path(path).is_dir()) as fault:
        try:
            return _columns(rows, stream, path, name or None, split=split)
        except Exception as error:
            if fault is not None and isinstance(error, ConnectionError):
                raise ValueError(
                    f"data set '{path}' is not on this machine: there is no file or folder of that name in "
                    f"{Path.cwd()}, nothing in the cache, and the hub cannot be reached ({fault}). Give a local file, "
                    "or connect to the network."
                ) from error
            raise ValueError(f"data set '{path}' cannot be read: {_first_line(error)}") from error


def load_files(builder: str, paths: list[str], *, rows: int | None) -> dict[str, list[Any]]:
    """Local files of a format that `datasets` has a builder for, as columns."""
    try:
        return _columns(rows, rows is not None, builder, data_files={"train": paths}, split="train")
    except Exception as error:
        raise ValueError(f"data file '{paths[0]}' cannot be read: {_first_line(error)}") from error


def _columns(rows: int | None, stream: bool, *where: Any, **settings: Any) -> dict[str, list[Any]]:
    table: Any = datasets.load_dataset(*where, streaming=stream, **settings)  # pyright: ignore
    if not stream:
        table = table if rows is None else table.select(range(min(rows, len(table))))
        return {name: list(table[name]) for name in table.column_names}
    found = list(islice(table, rows))
    return {name: [row.get(name) for row in found] for name in dict.fromkeys(key for row in found for key in row)}


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error  # the outer message often says no more than that something failed
    return re.sub(r"\s*\n.*", "", str(cause).strip(), flags=re.DOTALL) or type(cause).__name__
