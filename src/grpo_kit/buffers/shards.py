"""Arrow files with their content's hash in their name: whole or not there, and a changed one is found."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
from datasets.table import MemoryMappedTable

from grpo_kit.disk import file_hash, sync

SUFFIX = ".arrow"


class DamagedShardError(ValueError):
    """A shard whose bytes are not those that were written."""

    def __init__(self, path: Path, fault: str) -> None:
        """Name the file and what is wrong with it."""
        self.path, self.fault = path, fault
        super().__init__(
            f"{path} is damaged: {fault}. It was not read. `grpo-kit rollout` with the same recipe removes it "
            "and writes it again"
        )


def write_shard(folder: Path, number: int, table: pa.Table) -> Path:
    """Write `NNNNN-<sha256>.arrow` by one rename, after its bytes have reached the disk; the whole file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{number:05d}.unfinished"
    with unfinished.open("wb") as file:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        os.fsync(file.fileno())
    path = folder / f"{number:05d}-{file_hash(unfinished)}{SUFFIX}"
    unfinished.replace(path)
    sync(folder)
    return path


def read_shard(path: Path, check: Callable[[pa.Table], None]) -> pa.Table:
    """A shard through the memory map, if its bytes fit its name and its values pass a check; else DamagedShardError."""
    status = path.stat()
    return _verified(path, check, status.st_size, status.st_mtime_ns)


def release() -> None:
    """Close all memory maps, so that removed files free their place on the disk."""
    _verified.cache_clear()


def find_shard(folder: Path, number: int) -> Path | None:
    """The finished shard of a number, unread; of two (a damaged one written again elsewhere) the first by name."""
    return min(folder.glob(f"{number:05d}-*{SUFFIX}"), default=None)


def hash_in(path: Path) -> str:
    """The hash in a shard's name."""
    return path.stem.partition("-")[2]


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed writer left."""
    for path in folder.rglob("*.unfinished"):
        path.unlink()


@cache
def _verified(path: Path, check: Callable[[pa.Table], None], size: int, changed: int) -> pa.Table:
    """The table of a file of that size and time of change, hashed and checked once."""
    found, named = file_hash(path), hash_in(path)
    if found != named:
        raise DamagedShardError(path, f"its bytes hash to {found[:12]}... and its name says {named[:12]}...")
    try:
        table = MemoryMappedTable.from_file(str(path)).table
        check(table)
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise DamagedShardError(path, str(error)) from None
    return table
