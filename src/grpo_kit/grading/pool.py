"""A pool of worker processes for judging answers, each of which can be killed in the middle of a job."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import LifoQueue
from typing import Any, get_args

from grpo_kit.grading.confine import environment
from grpo_kit.grading.status import Status

BOOT_SECONDS = 120.0
"""A worker that is not ready after this long, on a machine however loaded, never will be."""
PATIENCE = 5
"""A job's limit is of processor time, so that verdicts do not depend on how busy the machine is; in real time it has
this many times as much."""
GRACE_SECONDS = 5.0
"""A worker that says nothing for this long after that is broken, and replaced."""
LONGEST_LINE = 2**16
"""Bytes that a worker's word may have; they are short, whatever was judged."""
FIRST_LIMIT = 0.5
"""In a batch every job first gets this many seconds at most, so that quick ones never wait for those that hang."""


class Worker:
    """One worker process, started on its first job and again whenever it is gone."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._jobs = 0
        self.ended = False

    def judge(self, gold: str, answer: str | None, limit: float) -> tuple[bool, Status]:
        """The verdict on one pair of answers within `limit` seconds of work."""
        for _ in range(2):  # a worker that died while idle is found out by writing to it
            try:
                return self._ask(gold, answer, limit)
            except (BrokenPipeError, EOFError):
                self.stop()
        return False, "error"

    def stop(self) -> None:
        """Kill the process and its child."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        self._process, self._rest = None, b""

    def _ask(self, gold: str, answer: str | None, limit: float) -> tuple[bool, Status]:
        process = self._process or self._start()
        assert process.stdin is not None
        self._jobs += 1
        job = {"job": self._jobs, "gold": gold, "answer": answer, "limit": limit, "patience": PATIENCE * limit}
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        while True:
            try:
                found = self._read(PATIENCE * limit + GRACE_SECONDS)
            except ValueError:
                self.stop()
                return False, "error"
            if found is None:
                self.stop()
                return False, "timeout"
            if found.get("job", self._jobs) == self._jobs:
                return found.get("equal", False), found["status"]

    def _start(self) -> subprocess.Popen[bytes]:
        if self.ended:
            raise RuntimeError("the grader's workers were stopped")
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "grpo_kit.grading.worker"],  # -P: no module of the working folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is the program's to handle
            env={**environment(os.environ), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        try:
            ready = self._read(BOOT_SECONDS)
        except (EOFError, ValueError):
            ready = None
        if ready is None:
            self.stop()
            raise RuntimeError("the grader's worker process did not start; see its message above")
        return self._process

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """The next line of the process; None when there is none within the time, EOFError when it has ended.

        ValueError for a line that is not one of a worker's own.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._rest and len(self._rest) <= LONGEST_LINE:
            if not select.select([descriptor], [], [], seconds)[0]:
                return None
            piece = os.read(descriptor, 65536)
            if not piece:
                raise EOFError
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            found = json.loads(line)
        except RecursionError:
            found = None
        if not (
            isinstance(found, dict)
            and (found.get("ready") is True or found.get("status") in get_args(Status))
            and isinstance(found.get("equal", False), bool)
        ):
            raise ValueError("no word of a worker")
        return found


class Pool:
    """A fixed number of workers that any thread may use; callers wait for a free one, so that nothing piles up."""

    def __init__(self, workers: int) -> None:
        """Start nothing yet; a worker starts when all started ones are busy."""
        self.workers = [Worker() for _ in range(workers)]
        self._free: LifoQueue[Worker] = LifoQueue()
        for worker in self.workers:
            self._free.put(worker)

    def judge(self, gold: str, answer: str | None, limit: float) -> tuple[bool, Status]:
        """The verdict on one pair of answers within `limit` seconds of work on it."""
        worker = self._free.get()
        try:
            return worker.judge(gold, answer, limit)
        except BaseException:  # a Ctrl-C in the middle: what the worker says next would be of this job
            worker.stop()
            raise
        finally:
            self._free.put(worker)

    def judge_all(self, pairs: Sequence[tuple[str, str | None]], limit: float) -> list[tuple[bool, Status]]:
        """The verdicts on many pairs, in order; those that hang come last, after all others have been judged."""
        verdicts: dict[tuple[str, str | None], tuple[bool, Status]] = {}
        waiting = list(dict.fromkeys(pairs))
        limits = dict.fromkeys((min(FIRST_LIMIT, limit), limit) if len(waiting) > 1 else (limit,))
        threads = ThreadPoolExecutor(len(self.workers))
        try:
            for seconds in limits:
                found = threads.map(lambda pair, seconds=seconds: self.judge(pair[0], pair[1], seconds), waiting)
                verdicts |= zip(waiting, found, strict=True)
                waiting = [pair for pair in waiting if verdicts[pair][1] == "timeout"]
        except BaseException:  # a Ctrl-C: nobody waits for what is being judged
            self.stop()
            raise
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        return [verdicts[pair] for pair in pairs]

    def stop(self) -> None:
        """End all workers, for good."""
        with _lock:
            if _pools.get(os.getpid()) is self:
                del _pools[os.getpid()]
        for worker in self.workers:
            worker.ended = True
            worker.stop()


_lock = threading.Lock()
_pools: dict[int, Pool] = {}


def shared_pool() -> Pool:
    """The program's own pool, a worker a core (at most 8); made on first use, ended with the program."""
    with _lock:
        if os.getpid() not in _pools:  # after a fork the workers are the parent's
            _pools.clear()
            allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            _pools[os.getpid()] = Pool(min(8, allowed))
        return _pools[os.getpid()]


@atexit.register
def _end() -> None:
    if (ours := _pools.get(os.getpid())) is not None:
        ours.stop()
