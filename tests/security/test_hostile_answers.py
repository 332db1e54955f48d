"""Answers that are written as code, commands or garbage: a verdict with a known status, and no trace of them."""

import json
import math
import os
import subprocess
import sys
from typing import get_args

import pytest

from grpo_kit.grading import final_answer, grade
from grpo_kit.grading.pool import Worker, shared_pool
from grpo_kit.grading.status import Status

HOSTILE = [
    "__import__('os').system('touch ran')",
    '__import__("os").system("touch ran")',
    "exec(\"open('ran', 'w')\")",
    "eval('open(\\'ran\\', \\'w\\')')",
    "open('ran','w')",
    "().__class__.__bases__[0].__subclasses__()",
    "x.__class__",
    "lambda: open('ran', 'w')",
    "Symbol('x').__init__.__globals__['__builtins__']['open']('ran','w')",
    'S(\'open("ran", "w")\')',
    'sympify(\'open("ran","w")\')',
    'f\'{open("ran","w")}\'',
    "0x1+open",
    r"\write18{touch ran}",
    r"\immediate\write18{touch ran}",
    r"\input{/etc/passwd}",
    r"\include{ran}",
    r"\openout5=ran",
    r"\directlua{os.execute('touch ran')}",
    r"\catcode`\@=0 @input ran",
    r"\def\x{\x\x}\x",
    r"\loop\repeat",
    r"\operatorname{open}('ran','w')",
    r"\operatorname{__import__}(os)",
    r"\text{open('ran','w')}",
    r"\mathrm{system}(touch ran)",
    r"\variable{__import__('os').system('touch ran')}",
    r"\frac{open('ran','w')}{1}",
    r"x_{__import__('os').system('touch ran')}",
    r"\sqrt[open('ran','w')]{2}",
    r"\gcd(open('ran'),1)",
    r"1e5__import__",
    r"1\_\_import\_\_('os')",
    "$(touch ran)",
    "`touch ran`",
    "; touch ran",
    "| touch ran",
    "\x00\x1b]0;title\x07\x1b[2J\x9b31m",
    "\u202e1+1\u202c",
    "\ud800",
    "{" * 500,
    "\\left" * 300,
    "(" * 3000 + "1",
    "9" * 5000 + "^" + "9" * 5000,
]
PROGRAM = """
import json, sys
seen = []
sys.addaudithook(lambda event, found: seen.append(found[0]) if event == "compile" else None)
from grpo_kit.grading.judge import judge
judge("x+1", "1+x")
seen.clear()
for answer in json.loads(sys.stdin.read()):
    judge("x+1", answer)
texts = {source.decode() if isinstance(source, bytes) else str(source) for source in seen}
print(json.dumps([text for text in texts if text != "from sympy import *"]))
"""


@pytest.fixture(scope="module")
def grades(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("here"), os.getcwd()
    os.chdir(folder)
    try:
        found = {answer: shared_pool().judge("x+1", answer, 0.5) for answer in HOSTILE}
        asked = {answer: grade("x+1", rf"\boxed{{{answer}}}", timeout=0.5) for answer in HOSTILE}
    finally:
        os.chdir(before)
    return found, asked, list(folder.iterdir())


@pytest.mark.parametrize("answer", HOSTILE, ids=lambda answer: repr(answer)[:30])
def test_a_hostile_answer_has_a_status_and_is_not_right(grades, answer):
    equal, status = grades[0][answer]
    assert status in get_args(Status)
    assert not equal
    given = grades[1][answer]
    assert given.status in get_args(Status)
    assert given.value == 0 or (math.isnan(given.value) and given.status in ("error", "timeout"))
    assert given.parsed == final_answer(rf"\boxed{{{answer}}}")


def test_hostile_answers_leave_nothing_behind(grades):
    assert grades[2] == []


def test_of_an_answer_only_numbers_are_ever_evaluated(tmp_path):
    # The parser gives the texts of numbers to sympy, which evaluates them: no other part of an answer may get there.
    answers = [answer for answer in HOSTILE if len(answer) < 400 and "\ud800" not in answer]
    answers += [f"{hostile}2" for hostile in answers]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(answers), capture_output=True, text=True, check=True,
        cwd=tmp_path,
    )  # fmt: skip
    evaluated = json.loads(done.stdout)
    assert "Integer (2 )" in evaluated
    for text in evaluated:
        assert not any(word in text for word in ("__", "open", "os", "touch", "ran", "eval", "exec")), text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "word",
    [
        "no json at all",
        "[1]",
        '{"job": 1}',
        '{"job": 1, "status": "perfect", "equal": true}',
        '{"job": 1, "status": "ok", "equal": "yes"}',
        '{"job": 1, "status": ["ok"], "equal": true}',
        "9" * 5000,
        "[" * 50_000,
        '"' + "a" * 100_000 + '"',
    ],
)
def test_what_a_worker_says_cannot_harm_the_program(monkeypatch, word):
    code = (
        f"import sys\nprint('{{\"ready\": true}}', flush=True)\nfor line in sys.stdin:\n    print({word!r}, flush=True)"
    )
    start = subprocess.Popen
    monkeypatch.setattr(
        "grpo_kit.grading.pool.subprocess.Popen", lambda command, **how: start([command[0], "-c", code], **how)
    )
    worker = Worker()
    try:
        assert worker.judge("x+1", "1+x", 1.0) == (False, "error")
    finally:
        worker.stop()
