"""Ctrl-C: the first asks for the end after the work at hand, the second ends at once."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""


@dataclass(slots=True)
class Interrupt:
    """Whether Ctrl-C was pressed."""

    asked: bool = False

    def __call__(self, number: int, frame: object) -> None:
        """Handle the signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\nstopping after the work at hand; Ctrl-C again stops at once", file=sys.stderr, flush=True)

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Take the signal inside the block; only the main thread may handle signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
