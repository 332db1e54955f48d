"""Files and folders on disk that are whole or not there, whatever kills the program or fills the disk."""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

UNFINISHED = ".unfinished-"
"""How the name of a folder that is being written begins."""


def file_hash(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line by one write; of a line that the disk has no room for nothing stays. OSError says so."""
    content = (line + "\n").encode()
    with path.open("ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            file.truncate(before)
            raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def whole_folder(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """A folder to fill, beside `path`, whose name it takes when the block ends.

    All its bytes have reached the disk by then. Where the block fails nothing is left of it, and `path` is as it was.
    With `replace` it takes the place of what was there; without, FileExistsError where something is.
    """
    if not replace and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    unfinished = path.with_name(f"{UNFINISHED}{path.name}-{uuid4().hex[:8]}")
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        for file in [*unfinished.rglob("*"), unfinished]:
            sync(file)
        if replace and path.exists():
            remove(path)
        try:
            unfinished.rename(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):  # something came to be there
                raise
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        sync(path.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def remove(folder: Path) -> None:
    """Remove a folder by its name first, so that what a kill leaves of it is not taken for whole."""
    gone = folder.with_name(f"{UNFINISHED}gone-{folder.name}")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)


def remove_leftovers(parent: Path) -> None:
    """Remove what killed writers left in a folder."""
    for path in parent.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path)


def reason(error: Exception) -> str:
    """Why the disk refused something, in its own words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def sync(path: Path) -> None:
    """Let a file's bytes, or the names in a folder, reach the disk; folders where the system can open them."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
