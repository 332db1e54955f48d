"""Workers that end as they should not: what is said of each, and that it is of this try and no earlier one."""

import json
import signal
import subprocess
import sys

from rich.console import Console

from grpo_kit.compare.jobs import FAILURE, LOG, Job
from grpo_kit.compare.pool import Pool
from grpo_kit.run.interrupt import INTERRUPTED, Interrupt


def job(folder):
    return Job(folder=folder, recipe="x", settings=(), held_out=None, train=True, allow_code=False)


def tried(folder, monkeypatch, program):
    """The reason of a job whose worker is this program."""
    worker = folder.parent / "worker.py"
    worker.write_text(program)
    popen = subprocess.Popen

    def begin(_, **options):
        return popen([sys.executable, str(worker)], **options)

    monkeypatch.setattr("grpo_kit.compare.pool.subprocess.Popen", begin)
    pool = Pool(workers=1, console=Console(quiet=True), interrupt=Interrupt())
    assert pool.run([job(folder)], "runs")
    monkeypatch.undo()
    return json.loads((folder / FAILURE).read_text())["reason"]


def test_the_reason_is_that_of_the_last_try(tmp_path, monkeypatch):
    folder = tmp_path / "seed-0"
    assert tried(folder, monkeypatch, "raise SystemExit('stopped: no more memory')") == "no more memory"
    assert tried(folder, monkeypatch, "raise TypeError('boom')") == "TypeError: boom"
    killed = f"import os, sys; print('at work', flush=True); os.kill(os.getpid(), {signal.SIGKILL})"
    assert tried(folder, monkeypatch, killed) == "killed by signal 9; last line: at work"
    assert "no more memory" in (folder / LOG).read_text(), "the log keeps all tries"


def test_a_worker_that_somebody_else_stopped_is_no_waiting_one(tmp_path, monkeypatch):
    folder = tmp_path / "seed-0"
    reason = tried(folder, monkeypatch, f"print('checkpoint'); raise SystemExit({INTERRUPTED})")
    assert reason == "stopped from outside; last line: checkpoint"
    assert job(folder).state == "failed"
