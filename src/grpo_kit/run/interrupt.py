"""Ctrl-C and SIGTERM: the first asks for the end after the work at hand, the second ends at once."""

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
    """Whether Ctrl-C was pressed, or SIGTERM came, as from a scheduler that takes a machine back."""

    asked: bool = False

    def __call__(self, number: int, frame: object) -> None:
        """Handle the signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\nstopping after the work at hand; Ctrl-C again stops at once", file=sys.stderr, flush=True)

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Take the signals inside the block; only the main thread may handle signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
