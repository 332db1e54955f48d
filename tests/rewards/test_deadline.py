"""Calls that may take so long and no longer."""

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from grpo_kit.rewards import deadline
from grpo_kit.rewards.deadline import OverdueError, within

LIMIT = 0.2
PATIENCE = 8.0
"""Seconds by which an interruption must have happened, on a machine that is busy."""


def loop():
    while True:
        pass


def sleep():
    time.sleep(100)


def wait_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def regular_expression():
    re.match(r"(a+)+$", "a" * 40 + "b")  # never lets another thread run


def power():
    return pow(9, 9**9)  # the same


def swallow():
    try:
        time.sleep(100)
    except:  # noqa: E722  (what careless reward functions do)
        return [0.0]


def swallow_twice():
    for _ in range(2):
        with contextlib.suppress(BaseException):
            time.sleep(100)


def turn_into_another_error():
    try:
        time.sleep(100)
    except BaseException:
        raise KeyError("something else") from None


HANGS = [loop, sleep, wait_for_a_lock, regular_expression, power, swallow, swallow_twice, turn_into_another_error]


@pytest.mark.parametrize("call", HANGS, ids=lambda call: call.__name__)
def test_a_call_on_the_main_thread_is_stopped(call):
    started = time.monotonic()
    with pytest.raises(OverdueError, match=r"not done in 0\.2 s"):
        within(LIMIT, call)
    assert time.monotonic() - started < PATIENCE


@pytest.mark.parametrize("call", [loop, sleep], ids=lambda call: call.__name__)
def test_a_call_on_another_thread_is_left_behind(call):
    found = []

    def run():
        stop = time.monotonic() + 3

        def mortal():
            call() if call is sleep else [None for _ in iter(lambda: time.monotonic() < stop, False)]

        try:
            within(LIMIT, mortal)
        except OverdueError as error:
            found.append(error)

    started = time.monotonic()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(found) == 1
    assert time.monotonic() - started < 2.5


@pytest.mark.parametrize("elsewhere", [False, True])
def test_results_and_errors_come_through(elsewhere):
    found = []

    def run():
        found.append(within(5.0, lambda: 7))
        try:
            within(5.0, lambda: {}["gold"])
        except KeyError as error:
            found.append(str(error))

    thread = threading.Thread(target=run)
    (thread.start if elsewhere else run)()
    if elsewhere:
        thread.join()
    assert found == [7, "'gold'"]


def test_inside_an_event_loop_the_call_may_have_a_loop_of_its_own():
    async def answer():
        return 7

    async def outer():
        return within(5.0, lambda: asyncio.run(answer()))

    assert asyncio.run(outer()) == 7


def test_alarms_and_handlers_are_as_before():
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append("alarm"))
    try:

        def call():
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            time.sleep(0.3)
            return "done"

        assert within(5.0, call) == "done"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == ["alarm"]
    assert signal.getsignal(signal.SIGVTALRM) in (signal.SIG_IGN, signal.SIG_DFL)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_limits_may_be_nested():
    with pytest.raises(OverdueError, match=r"in 0\.2 s"):
        within(30.0, lambda: within(LIMIT, sleep))
    started = time.monotonic()
    with pytest.raises(OverdueError):
        within(LIMIT, lambda: within(30.0, sleep))
    assert time.monotonic() - started < PATIENCE


@pytest.fixture
def heeding_ctrl_c():
    """What a shell starts in the background ignores Ctrl-C, and so do the tests then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeding_ctrl_c")
def test_ctrl_c_is_not_held_back():
    main = threading.main_thread().ident
    threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        within(60.0, sleep)
    assert time.monotonic() - started < PATIENCE


ENDLESS = """
import deadline
deadline.LAST_RESORT = 1.0

def endless_c_code():
    sum(range(10**15))

deadline.within(0.05, endless_c_code)
"""
CALLED_OFF = """
import deadline, time
deadline.LAST_RESORT = 1.0
try:
    deadline.within(0.1, int)
except deadline.OverdueError:
    pass  # a busy machine
time.sleep(2.5)
"""


def alone(code: str) -> subprocess.CompletedProcess:
    """Run code beside the module, which needs nothing of the package."""
    folder = Path(deadline.__file__).parent
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_call_that_nothing_can_stop_ends_the_program_and_is_named():
    result = alone(ENDLESS)
    assert result.returncode == 1
    assert "in endless_c_code" in result.stderr


def test_the_last_resort_is_called_off():
    assert deadline.LAST_RESORT >= 60
    result = alone(CALLED_OFF)
    assert (result.returncode, result.stderr) == (0, "")
