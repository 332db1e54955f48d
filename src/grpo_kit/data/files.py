"""Local text files row by row: JSON lines, JSON, CSV and TSV, where one bad line costs one row and not the file."""

import csv
import io
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple, cast

import fsspec

from grpo_kit.data.rows import Fault

TEXT_FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
"""Endings of the files read here."""
COMPRESSIONS = (".gz", ".bz2", ".xz")
"""Endings that may follow them."""
Binary = Any
"""A file open for bytes, decompressed on the way: the classes have no type in common but `object`."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Placed(NamedTuple):
    """A row that could be read, and where it stands."""

    place: str
    values: dict[str, Any]


Read = Placed | Fault


def format_of(path: str) -> str:
    """The ending that says a file's format, before that of a compression.

    Example:
        >>> format_of("rows.jsonl.gz")
        '.jsonl'
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def find_files(path: str) -> list[str]:
    """The file of that name, or all that a pattern with `*`, `?` or `[...]` matches, sorted; none where none is."""
    if Path(path).is_file() or not re.search(r"[*?\[]", path):
        return [path] if Path(path).is_file() else []
    return sorted(found for found in glob(path, recursive=True) if Path(found).is_file())


def read_files(paths: list[str]) -> Iterator[Read]:
    """The rows of text files one after the other; ValueError when a whole file cannot be read."""
    for path in paths:
        before = f"{Path(path).name}, " if len(paths) > 1 else ""
        try:
            for read in _read_file(path):
                yield read._replace(place=before + read.place) if isinstance(read, Placed) else _moved(read, before)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, csv.Error, UnicodeError) as error:
            raise ValueError(f"data file '{path}' cannot be read: {error}") from error


def _moved(fault: Fault, before: str) -> Fault:
    return Fault(place=before + fault.place, kind=fault.kind, reason=fault.reason)


def _read_file(path: str) -> Iterator[Read]:
    kind = format_of(path)
    with cast(AbstractContextManager[Binary], fsspec.open(path, "rb", compression="infer")) as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError(f"data file '{path}' is UTF-16; save it as UTF-8")
        file.seek(0)
        if kind in (".csv", ".tsv"):
            yield from _separated(file, "\t" if kind == ".tsv" else ",", path)
        elif kind == ".json":
            yield from _json(file, path)
        else:
            yield from _json_lines(file)


def _json_lines(file: Binary) -> Iterator[Read]:
    r"""A row a line. Lines end at `\n` alone: texts may hold U+2028 and its like, which `splitlines` would cut at."""
    for number, line in enumerate(file, start=1):
        text = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        if text.strip():
            yield _line(text, f"line {number}")


def _line(line: bytes, place: str) -> Read:
    """One line of JSON."""
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Fault(place=place, kind="broken unicode", reason=f"not UTF-8 (byte {error.start + 1} of the line)")
    except json.JSONDecodeError as error:
        return Fault(place=place, kind="malformed", reason=f"not JSON ({error.msg} at character {error.pos + 1})")
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets a thousand deep
        return Fault(place=place, kind="malformed", reason=f"not JSON that can be read ({type(error).__name__})")
    return _row(value, place, check=SURROGATE.search(line) is not None)


def _row(value: Any, place: str, *, check: bool) -> Read:
    """A JSON value as a row: an object of valid unicode."""
    if not isinstance(value, dict):
        kind = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
        return Fault(place=place, kind="malformed", reason=f"{kind}, not an object of columns")
    if check:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            return Fault(place=place, kind="broken unicode", reason=r"half of a surrogate pair (\ud800 to \udfff)")
    return Placed(place, value)


def _json(file: Binary, path: str) -> Iterator[Read]:
    """A list of objects, an object of lists, or an object whose only key is a list of objects; else JSON lines."""
    content = file.read().removeprefix(BYTE_ORDER_MARK)
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        if content.lstrip()[:1] == b"{" and b"\n" in content.strip():  # an object a line, by the ending of a list
            yield from _json_lines(io.BytesIO(content))
            return
        raise ValueError(f"data file '{path}' is not JSON: {error}") from error
    if isinstance(value, dict) and value and all(isinstance(item, list) for item in value.values()):
        lists = list(value.values())
        if len(lists) == 1 and all(isinstance(item, dict) for item in lists[0]):
            value = lists[0]
        elif len({len(items) for items in lists}) == 1:
            value = [dict(zip(value, items, strict=True)) for items in zip(*lists, strict=True)]
    elif isinstance(value, dict):  # JSON lines of one line
        value = [value]
    if not isinstance(value, list):
        raise ValueError(f"data file '{path}' is neither a list of objects nor an object of lists of equal length")
    check = SURROGATE.search(content) is not None
    yield from (_row(item, f"row {number}", check=check) for number, item in enumerate(value))


def _separated(file: Binary, delimiter: str, path: str) -> Iterator[Read]:
    """CSV or TSV under a header. Values are texts as they stand (CSV has no types); an empty cell is a missing one."""
    csv.field_size_limit(2**31 - 1)
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        yield from _cells(csv.reader(text, delimiter=delimiter), path)


def _cells(lines: Any, path: str) -> Iterator[Read]:
    """The rows that a reader of the module `csv` gives, after its header."""
    header = next(lines, [])
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise ValueError(f"data file '{path}' has the column '{twice[0]}' twice; rename one")
    last = lines.line_num
    for cells in lines:
        first, last = last + 1, lines.line_num
        if not cells:
            continue
        place = f"line {first}"
        if len(cells) != len(header):
            over = f" over lines {first} to {last}; a quote that is not closed?" if last > first else ""
            reason = f"{len(cells)} cells, the header has {len(header)}{over}"
            yield Fault(place=place, kind="malformed", reason=reason)
        elif any(not cell.isascii() and re.search("[\ud800-\udfff]", cell) for cell in cells):
            yield Fault(place=place, kind="broken unicode", reason="not UTF-8")
        else:
            yield Placed(place, {name: cell or None for name, cell in zip(header, cells, strict=True)})
