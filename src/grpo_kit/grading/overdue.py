"""Answers whose grading took too long, remembered on disk, so that the clock cannot change a run that goes on."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_kit.disk import append_line, sync

Judgement = tuple[str, float, str, str]
"""Who judged, within how many seconds, by which gold answer, and what."""


class Overdue:
    """The judgements that were given up. What is among them is not tried again: it has its status at once."""

    def __init__(self, path: Path) -> None:
        """Read those of a file that an earlier process wrote, a torn last line left out."""
        self._path = path
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        try:
            self._known = {_judgement(line) for line in whole.splitlines()}
        except (ValueError, TypeError):
            raise ValueError(f"{path} is damaged: a line is no judgement. Remove that line") from None
        if whole != content:
            os.truncate(path, len(whole))

    def __contains__(self, judgement: Judgement) -> bool:
        """Whether it was given up before."""
        return judgement in self._known

    def add(self, judgement: Judgement) -> None:
        """Remember it; on disk before its status can have any effect."""
        if judgement not in self._known:
            self._known.add(judgement)
            append_line(self._path, json.dumps(judgement))
            sync(self._path)


_at_work: list[Overdue] = []


@contextmanager
def remembering(path: Path) -> Iterator[None]:
    """Inside the block judgements that are given up are remembered in a file, and those in it are not tried again."""
    _at_work.append(Overdue(path))
    try:
        yield
    finally:
        _at_work.pop()


def is_overdue(judge: str, limit: float, gold: str, answer: str) -> bool:
    """Whether the run at work gave up this judgement before."""
    return any((judge, limit, gold, answer) in known for known in _at_work)


def note_overdue(judge: str, limit: float, gold: str, answer: str) -> None:
    """Tell the run at work, if there is one, that this judgement was given up."""
    for known in _at_work:
        known.add((judge, limit, gold, answer))


def _judgement(line: bytes) -> Judgement:
    judge, limit, gold, answer = json.loads(line)
    return judge, limit, gold, answer
