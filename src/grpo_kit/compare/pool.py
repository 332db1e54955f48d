"""Jobs in worker processes, a few at a time: progress with the time left, and a failed one that loses no other."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from grpo_kit.compare.jobs import FAILURE, LOG, Job
from grpo_kit.disk import write_text
from grpo_kit.run.interrupt import INTERRUPTED, Interrupt
from grpo_kit.terminal import one_line, say

POLL = 0.2
"""Seconds between two looks at the workers."""
QUESTIONS = 0.2
"""Share of a job's work that is loading and asking the held-out questions, for the time left alone."""


@dataclass(slots=True)
class Pool:
    """Worker processes for jobs.

    Attributes:
        workers: processes at a time.
        console: where progress is said.
        interrupt: whether to stop; workers then end after the step at hand, with a checkpoint.
    """

    workers: int
    console: Console
    interrupt: Interrupt
    running: dict[Job, tuple[subprocess.Popen[bytes], IO[bytes], int]] = field(default_factory=dict, init=False)

    def run(self, jobs: Sequence[Job], stage: str) -> bool:
        """Run the jobs that have no result yet, in order; whether it came to the end of them."""
        waiting = [job for job in jobs if job.state != "ended"]
        if not waiting:
            return True
        there, began, asked = len(jobs) - len(waiting), time.monotonic(), False
        already = sum(map(_work_done, jobs))
        if there:
            say(self.console, f"{stage}: {there} of {len(jobs)} runs are there already")
        columns = [TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[now]}")]
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            task = bar.add_task(stage, total=sum(_work(job) for job in jobs), now="")
            try:
                while (waiting and not self.interrupt.asked) or self.running:
                    while waiting and len(self.running) < self.workers and not self.interrupt.asked:
                        self._begin(waiting.pop(0))
                    if self.interrupt.asked and not asked:
                        asked = True
                        for process, _, _ in self.running.values():
                            process.terminate()
                    for job in [own for own, (process, _, _) in self.running.items() if process.poll() is not None]:
                        self._end(job)
                        done = sum(map(_work_done, jobs))
                        left = _left(time.monotonic() - began, done - already, sum(map(_work, jobs)) - done)
                        number = sum(own.state != "waiting" for own in jobs)
                        self._say_end(job, f"{stage} {number}/{len(jobs)}", left)
                    if self.console.is_terminal:
                        done = sum(map(_work_done, jobs))
                        left = _left(time.monotonic() - began, done - already, sum(map(_work, jobs)) - done)
                        now = f"{sum(own.state == 'ended' for own in jobs)}/{len(jobs)} runs, {left or 'starting'}"
                        bar.update(task, completed=done, now=now)
                    time.sleep(POLL)
            finally:
                for process, log, _ in self.running.values():
                    process.kill()
                    log.close()
                self.running.clear()
        return not waiting and not self.interrupt.asked

    def _begin(self, job: Job) -> None:
        (job.folder / FAILURE).unlink(missing_ok=True)
        job.write()
        log = (job.folder / LOG).open("ab")
        threads = str(max(1, (os.cpu_count() or 1) // self.workers))
        environment = {"OMP_NUM_THREADS": threads, **os.environ, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "grpo_kit.compare.worker", str(job.folder)]
        # A session of its own: Ctrl-C is for us, who ask the workers once.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        self.running[job] = process, log, log.tell()

    def _end(self, job: Job) -> None:
        process, log, before = self.running.pop(job)
        log.close()
        if job.state == "ended" or self.interrupt.asked:
            return
        reason = _reason(job, process.returncode, before)
        write_text(job.folder / FAILURE, json.dumps({"reason": reason, "exit_code": process.returncode}) + "\n")

    def _say_end(self, job: Job, head: str, left: str) -> None:
        if job.state == "failed":
            say(self.console, f"{head} {job.label}: FAILED: {job.failure()}; see {job.folder / LOG}", style="red")
        elif job.state == "ended":
            say(self.console, f"{head} {job.label}: {_summary(job)}{f'; {left}' if left else ''}")


def _work(job: Job) -> float:
    """How much a job is, in steps."""
    return job.steps + max(1.0, QUESTIONS * job.steps)


def _work_done(job: Job) -> float:
    return _work(job) if job.state != "waiting" else float(job.steps_done)


def _left(seconds: float, done: float, left: float) -> str:
    if done <= 0 or left <= 0:
        return ""
    minutes = seconds / done * left / 60
    return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"


def _summary(job: Job) -> str:
    """The accuracies of a finished job: on the held-out questions, or by its last evaluation."""
    found = job.result()["held_out"]
    if not found:
        lines = [line for line in job.metrics() if any(key.startswith("eval/") for key in line)]
        found = {key.removeprefix("eval/"): value for key, value in (lines[-1] if lines else {}).items()}
    shown = [
        f"{key.removesuffix('/accuracy')} {value:.3f}"
        for key, value in found.items()
        if key.endswith("/accuracy") and value is not None
    ]
    return ", ".join(shown) or "ended"


def _reason(job: Job, code: int, before: int) -> str:
    """Why a worker ended without a result: what it said of it, else its last line; its log begins at an offset."""
    text = (job.folder / LOG).read_bytes()[before:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("stopped: ")), lines[-1] if lines else "no word")
    killed = f"killed by signal {-code}; last line: " if code < 0 else ""
    killed = "stopped from outside; last line: " if code == INTERRUPTED else killed
    return one_line(f"{killed}{said.removeprefix('stopped: ')}")[:500]
