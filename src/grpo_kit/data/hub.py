"""Tables that the library `datasets` reads: hub data sets, folders, Parquet and Arrow files."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import datasets
import datasets.config
import huggingface_hub.constants

PATIENCE = 5.0
"""Seconds that the hub has to take a connection."""


def load_table(path: str, name: str, split: str, *, rows: int | None, stream: bool) -> dict[str, list[Any]]:
    """A hub data set or a folder as columns; ValueError says why it cannot be read, within seconds without a network.

    Args:
        path: name on the hub, or a folder.
        name: configuration; empty where there is one only.
        split: split, slices included unless streamed.
        rows: how many of the first rows; all without it.
        stream: read no more of the data than those rows.
    """
    fault = None if Path(path).is_dir() else unreachable()
    with _offline(fault is not None):
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


def unreachable() -> str | None:
    """Why the hub cannot be reached, found out in at most `PATIENCE` seconds; None where it can, or a proxy decides.

    `huggingface_hub` by itself tries again for half a minute to several minutes.
    """
    if datasets.config.HF_HUB_OFFLINE:
        return "offline mode is on, by HF_HUB_OFFLINE or HF_DATASETS_OFFLINE"
    address = urlsplit(datasets.config.HF_ENDPOINT)
    if getproxies().keys() & {address.scheme, "all"}:
        return None
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    problems: list[str] = [f"no answer from {host} in {PATIENCE:g} seconds"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), PATIENCE).close()
            problems.clear()
        except OSError as error:
            problems.insert(0, f"{host}: {error.strerror or error}")

    thread = threading.Thread(target=connect, daemon=True)  # looking a name up has no time limit of its own
    thread.start()
    thread.join(PATIENCE)
    return next(iter(list(problems)), None)


@contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """Let both libraries look no further than the cache, for this call only."""
    before = [(module, module.HF_HUB_OFFLINE) for module in (datasets.config, huggingface_hub.constants)]
    try:
        for module, _ in before:
            module.HF_HUB_OFFLINE = wanted or module.HF_HUB_OFFLINE  # pyright: ignore[reportAttributeAccessIssue]
        yield
    finally:
        for module, value in before:
            module.HF_HUB_OFFLINE = value  # pyright: ignore[reportAttributeAccessIssue]
