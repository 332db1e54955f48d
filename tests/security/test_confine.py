"""Code that ran where answers are judged, as if a parser had evaluated one: it reaches nothing, and judging goes on."""

import json
import os
import subprocess
import sys

import pytest

from grpo_kit.grading.confine import MEMORY, environment
from grpo_kit.grading.pool import Worker

PROGRAM = """
import json, os, sys
from grpo_kit.grading.judge import judge
from grpo_kit.grading.confine import confine
import ctypes, inspect, signal, socket, subprocess, threading  # what some library may have loaded before
judge("x+1", "1+x")
attempts, file = json.loads(sys.argv[1]), sys.argv[2]
if os.getuid() == 0 and sys.argv[3:]:
    os.setresuid(65534, 65534, 65534)
confine()
for attempt in attempts:
    try:
        exec(attempt, {"file": file, "parent": os.getppid()})
        outcome = "done"
    except BaseException as error:
        outcome = type(error).__name__
    os.write(1, json.dumps(outcome).encode() + b"\\n")
verdict = judge(r"\\int_0^1 x^2 dx", r"\\frac{1}{3}")
os.write(1, json.dumps([verdict.equal, verdict.status]).encode())
os._exit(0)
"""

# Each of these is harmless where it is not refused: what it changes is in the test's own folder.
REFUSED = {
    "write a file": "open(file, 'w')",
    "append to a file": "open(file, 'a')",
    "write by number": "import os; os.open(file, os.O_CREAT | os.O_WRONLY)",
    "write beside a module": "import os, sympy; os.open(sympy.__file__, os.O_WRONLY)",
    "write with pathlib": "from pathlib import Path; Path(file).write_text('x')",
    "touch": "from pathlib import Path; Path(file).touch()",
    "read a file": "open('/etc/passwd').read()",
    "read another process": "open(f'/proc/{parent}/environ', 'rb').read()",
    "read its own environment": "open('/proc/self/environ', 'rb').read()",
    "read out of a library's folder": "import sympy; open(sympy.__path__[0] + '/../../../../../../../../etc/passwd')",
    "read a source out of it": "import sympy; open(sympy.__path__[0] + '/../typing_extensions.py')",
    "read what is no source": "import sympy; open(sympy.__path__[0] + '/data.txt')",
    "read a descriptor": "open(0)",
    "read by a text of its own": "yes = lambda self, all: True\n"
    "open(type('Text', (str,), {'startswith': yes, 'endswith': yes})('/etc/passwd'))",
    "list a folder": "import os; os.listdir('/')",
    "scan a folder": "import os; list(os.scandir('/'))",
    "make a folder": "import os; os.mkdir(file)",
    "make a pipe in a folder": "import os; os.mkfifo(file)",
    "make a node in a folder": "import posix; posix.mknod(file)",
    "make a link": "import os; os.symlink('/etc', file)",
    "remove a file": "import os; os.remove(file + '.mine')",
    "rename a file": "import os; os.rename(file + '.mine', file)",
    "change a mode": "import os; os.chmod(file + '.mine', 0o600)",
    "go elsewhere": "import os; os.chdir('/')",
    "a shell": "import os; os.system('touch ' + file)",
    "a shell's output": "import os; os.popen('touch ' + file).read()",
    "a program": "import subprocess; subprocess.run(['touch', file])",
    "a program without a word": "import subprocess; subprocess._fork_exec(*[None] * 23)",
    "a program from below": "import _posixsubprocess; _posixsubprocess.fork_exec(*[None] * 23)",
    "become a program": "import os; os.execv('/bin/true', ['true'])",
    "spawn a program": "import os; os.posix_spawn('/bin/true', ['true'], {})",
    "fork": "import os; os.fork() or os._exit(0)",
    "a socket": "import socket; socket.socket()",
    "a pair of sockets": "import socket; socket.socketpair()",
    "end the parent": "import os; os.kill(parent, 0)",
    "end the group": "import os; os.killpg(os.getpgrp(), 0)",
    "end the parent by a descriptor": "import os, signal; signal.pidfd_send_signal(os.pidfd_open(parent), 0)",
    "slow the parent": "import os; os.setpriority(os.PRIO_PROCESS, parent, os.getpriority(os.PRIO_PROCESS, parent))",
    "limit the parent": "import resource as r; r.prlimit(parent, r.RLIMIT_CPU, r.prlimit(parent, r.RLIMIT_CPU))",
    "lift its own limits": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))",
    "native code": "import ctypes; ctypes.CDLL(None).system(b'true')",
    "native code that was there": "import sys; sys.modules['socket'].ctypes = __import__('_ctypes')",
    "another interpreter": "import _xxsubinterpreters; _xxsubinterpreters.create()",
    "a new library": "import sqlite3",
    "a new library by its file": "from importlib.machinery import ExtensionFileLoader as L, ModuleSpec as S\n"
    "import _json\nL('sympy._json', file).create_module(S('sympy._json', None, origin=_json.__file__))",
    "the hook itself": "import gc; gc.get_objects()",
    "the hook's lists": "import grpo_kit.grading.confine as c\nc.HARMLESS = {'open'}\nopen(file, 'w')",
    "the names a hook might use": "import builtins; kept = type\nbuiltins.type = lambda *all: str\n"
    "try: open(file, 'w')\nfinally: builtins.type = kept",
}


def run(attempts, file, *more, env=None):
    command = [sys.executable, "-c", PROGRAM, json.dumps(attempts), str(file), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("confined")
    (folder / "ran.mine").touch(0o644)
    (*found, verdict), _ = run(list(REFUSED.values()), folder / "ran")
    return dict(zip(REFUSED, found, strict=True)), verdict, [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("attempt", REFUSED)
def test_what_reaches_outside_is_refused(outcomes, attempt):
    assert outcomes[0][attempt] in ("PermissionError", "ImportError", "ModuleNotFoundError", "AttributeError")


def test_nothing_was_written_and_judging_goes_on(outcomes):
    assert outcomes[1] == [True, "ok"]
    assert outcomes[2] == ["ran.mine"]


def test_the_attempts_would_succeed_elsewhere(tmp_path):
    # Else the tests above would show nothing: most of these are refused by the confinement alone.
    free = {name: code for name, code in REFUSED.items() if name in ("write a file", "a shell", "read a file", "fork")}
    for code in free.values():
        program = f"import os\nfile, parent = {str(tmp_path / 'ran')!r}, os.getppid()\n{code}"
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert (tmp_path / "ran").exists()


def test_memory_is_bounded_and_errors_are_not_shown(tmp_path):
    attempts = [f"bytearray({MEMORY + 1})", "import os; os.write(2, b'\\x1b[2Jhello')"]
    found, errors = run(attempts, tmp_path / "ran")
    assert found == ["MemoryError", "done", [True, "ok"]]
    assert errors == ""
    assert MEMORY < 8 * 2**30


@pytest.mark.parametrize("limit", ["RLIMIT_FSIZE", "RLIMIT_NPROC", "RLIMIT_CORE"])
def test_the_kernel_limits_it_too(tmp_path, limit):
    code = f"import resource as r\nassert r.getrlimit(r.{limit}) == (0, 0)"
    assert run([code], tmp_path / "ran")[0] == ["done", [True, "ok"]]


def process_of(worker):
    assert worker._process is not None
    return worker._process.pid


def test_a_worker_knows_no_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("MY_PASSWORD", "secret")
    worker = Worker()
    try:
        assert worker.judge("x+1", "1+x", 5.0) == (True, "ok")
        with open(f"/proc/{process_of(worker)}/environ", encoding="utf-8") as file:
            names = {line.partition("=")[0] for line in file.read().split("\0") if line}
    finally:
        worker.stop()
    assert {"PATH", "PYTHONPATH", "OMP_NUM_THREADS"} <= names <= environment(dict.fromkeys(names, "")).keys()
    assert not {"HF_TOKEN", "MY_PASSWORD", "HOME"} & names


def test_a_worker_has_no_file_but_its_pipes():
    worker = Worker()
    with open(os.devnull) as mine:
        os.set_inheritable(mine.fileno(), True)
        try:
            worker.judge("x+1", "1+x", 5.0)
            parent = process_of(worker)
            with open(f"/proc/{parent}/task/{parent}/children", encoding="utf-8") as file:
                child = file.read().split()[0]
            folder = f"/proc/{child}/fd"
            found = {int(number): os.readlink(f"{folder}/{number}") for number in os.listdir(folder)}
        finally:
            worker.stop()
    assert sorted(found) == [0, 1, 2]
    assert found[0].startswith("pipe:")
    assert found[1].startswith("pipe:")
    assert found[2] == os.devnull
