"""A call of someone else's code that may take so long and no longer.

On the main thread the call runs where it is and is interrupted by a signal: Python code, a sleep, a wait for the
network, a regular expression and the power of two integers all end. Two things send it: a thread of ours, for calls
that let other threads run, and a kernel timer of processor time, for calls that do not. `SIGVTALRM` is used, so the
call may set `signal.alarm` itself (math-verify does). Elsewhere (another thread, a running event loop, Windows) the
call runs in a daemon thread, which is left behind when time is up: it goes on in the background.

A single call of C code that neither ends nor looks for signals, such as `sum(range(10**15))`, cannot be stopped from
inside a process. Rather than wait for ever, the process then prints where it stands and ends with exit code 1, after
ten times the limit and at least `LAST_RESORT` seconds (on the main thread; `faulthandler` has one timer for this, so a
program's own `dump_traceback_later` ends with the call).
"""

import asyncio
import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
LAST_RESORT = 60.0
"""Seconds at least before a call that nothing can stop ends the process."""
AGAIN = 1.0
"""Seconds after which a call that ignored the interruption is interrupted again."""


_guarded: list[bool] = []


class OverdueError(Exception):
    """The call did not end in time."""


class _Interruption(BaseException):
    """What is raised inside the call; no `except Exception` stops it."""


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call, or OverdueError after so many seconds; see the module.

    A call that swallows the interruption (a bare `except:`) and then ends is overdue all the same. Ctrl-C works
    throughout.

    Example:
        >>> within(5.0, lambda: 2 + 2)
        4
    """
    limit = _interrupted if _can_be_interrupted() else _left_behind
    with _last_resort(seconds):
        return limit(seconds, call)


def _can_be_interrupted() -> bool:
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False  # an interruption would end the loop's own work; and the call may want a loop of its own


def _interrupted(seconds: float, call: Callable[[], T]) -> T:
    try:
        return _called(seconds, call)
    except _Interruption as error:  # it came just as the call ended
        raise OverdueError(f"not done in {seconds:g} s") from error


def _called(seconds: float, call: Callable[[], T]) -> T:
    deadline, running, overdue = time.monotonic() + seconds, False, False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal overdue
        if running and time.monotonic() >= deadline:
            overdue = True
            raise _Interruption

    with _signals(interrupt, seconds):
        try:
            running = True
            result = call()
            running = False
        except KeyboardInterrupt:
            running = False
            raise
        except BaseException as error:
            running = False
            if overdue:
                raise OverdueError(f"not done in {seconds:g} s") from error
            raise
    if overdue:
        raise OverdueError(f"not done in {seconds:g} s")
    return result


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], None], seconds: float) -> Iterator[None]:
    """Send SIGVTALRM to this thread when the time is up, and again until the end; leave all as it was found."""
    before = signal.getsignal(signal.SIGVTALRM)

    def handle(number: int, frame: FrameType | None) -> None:
        handler(number, frame)
        if callable(before):
            before(number, frame)  # a limit around this one

    signal.signal(signal.SIGVTALRM, handle)
    timer = signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN)
    ended = threading.Event()
    here = threading.get_ident()

    def watch() -> None:
        if not ended.wait(seconds):
            signal.pthread_kill(here, signal.SIGVTALRM)
            while not ended.wait(AGAIN):
                signal.pthread_kill(here, signal.SIGVTALRM)

    watcher = threading.Thread(target=watch, name="grpo_kit deadline", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, *timer)
        ended.set()
        watcher.join()  # no signal is on its way now, whose default action would end the process
        signal.signal(signal.SIGVTALRM, before)


def _left_behind(seconds: float, call: Callable[[], T]) -> T:
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=run, name="grpo_kit limited call", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise OverdueError(f"not done in {seconds:g} s")
    good, result = outcome[0]
    if not good:
        raise result
    return result


@contextmanager
def _last_resort(seconds: float) -> Iterator[None]:
    errors = sys.__stderr__
    outermost = not _guarded and threading.current_thread() is threading.main_thread()
    if errors is None or errors.closed or not outermost:
        yield  # there is one such timer in a process
        return
    _guarded.append(True)
    faulthandler.dump_traceback_later(max(LAST_RESORT, 10 * seconds), exit=True, file=errors)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        _guarded.clear()
