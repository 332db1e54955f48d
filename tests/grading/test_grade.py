"""The call and the pool behind it: any thread, any text, workers that can be killed."""

import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from grpo_kit.grading import grade, grade_all, pool, unreadable
from grpo_kit.grading.pool import Pool

HANGS = [rf"\prod_{{k=1}}^{{200000}}({start}+k)" for start in range(3, 11)]
"""Products that sympy computes for minutes, number by number; no two alike."""


@pytest.fixture
def two_workers():
    workers = Pool(2)
    yield workers
    workers.stop()


@pytest.mark.parametrize(
    ("gold", "text", "value", "status", "parsed"),
    [
        ("42", r"\boxed{42}", 1.0, "ok", "42"),
        (42, r"\boxed{42}", 1.0, "ok", "42"),
        (0.5, r"\boxed{\frac12}", 1.0, "ok", r"\frac12"),
        ("6*7=42\n#### 42", "the answer is 42", 1.0, "ok", "42"),
        (r"Hence \boxed{42}.", r"\boxed{42}", 1.0, "ok", "42"),
        ("42", r"\boxed{41}", 0.0, "ok", "41"),
        ("42", "I cannot", 0.0, "no_answer", None),
        (None, r"\boxed{None}", math.nan, "unparsed_gold", "None"),
        (True, r"\boxed{1}", math.nan, "unparsed_gold", "1"),
        ({"a": 1}, r"\boxed{1}", math.nan, "unparsed_gold", "1"),
        ("", r"\boxed{42}", math.nan, "unparsed_gold", "42"),
        (r"\frac{1}{", r"\boxed{42}", math.nan, "unparsed_gold", "42"),
        ("2^{10^{10}}", r"\boxed{4^{5 \cdot 10^{9}}}", math.nan, "timeout", r"4^{5 \cdot 10^{9}}"),
    ],
)
def test_value_status_and_what_was_read(gold, text, value, status, parsed):
    found = grade(gold, text)
    assert (found.status, found.parsed) == (status, parsed)
    assert found.value == value or (math.isnan(value) and math.isnan(found.value))


def test_strict_is_the_box_alone():
    assert grade("18", "the answer is 18").value == 1
    assert grade("18", "the answer is 18", strict=True).status == "no_answer"


@pytest.mark.parametrize("timeout", [0.0, -1.0, math.nan, math.inf, 1e9])
def test_a_timeout_is_positive(timeout):
    with pytest.raises(ValueError, match="above 0"):
        grade("1", r"\boxed{1}", timeout=timeout)


def test_a_completion_is_a_text():
    # In a process of its own: here the types of all arguments are checked before.
    code = "from grpo_kit.grading import grade; grade('1', None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ValueError: a completion is a NoneType; give its text" in done.stderr


def test_nothing_is_started_for_what_an_exact_match_decides():
    code = (
        "import sys; from grpo_kit.grading import grade, pool; "
        r"assert grade('1/2', r'\boxed{0.50}').value == 1; assert grade('7', r'\boxed{8}').value == 0; "
        "assert not pool._pools and 'sympy' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_comparison_that_hangs_is_given_up_and_the_worker_replaced_at_once():
    assert grade("x+1", r"\boxed{1+x}").value == 1
    start = time.perf_counter()
    hung = grade("3", rf"\boxed{{{HANGS[0]}}}", timeout=0.5)
    assert hung.status == "timeout"
    assert math.isnan(hung.value)
    assert grade("x+1", r"\boxed{1+x}").value == 1
    assert time.perf_counter() - start < 10


def test_b041_good_answers_do_not_wait_for_those_that_hang(two_workers, monkeypatch):
    pairs = [("3", hang) for hang in HANGS] + [("x+1", f"{n}+x-{n - 1}") for n in range(2, 7)]
    two_workers.judge("x+1", "1+x", 2.0)
    order, judge = [], two_workers.judge

    def recorded(gold, answer, limit):
        found = judge(gold, answer, limit)
        order.append((time.perf_counter() - start, found))
        return found

    monkeypatch.setattr(two_workers, "judge", recorded)
    monkeypatch.setattr(pool, "FIRST_LIMIT", 0.1)
    start = time.perf_counter()
    found = two_workers.judge_all(pairs, 0.3)
    assert [status for _, status in found] == ["timeout"] * 8 + ["ok"] * 5
    assert all(equal for equal, _ in found[8:])
    last_good = max(seconds for seconds, verdict in order if verdict == (True, "ok"))
    second_round = sorted(seconds for seconds, _ in order)[13]
    assert last_good < second_round


def test_towers_cost_nothing():
    towers = [rf"{base}^{{{base}^{{{base}^{{{base}}}}}}}" for base in range(11, 31)]
    grade("x+1", r"\boxed{1+x}")
    start = time.perf_counter()
    grades = grade_all(["3"] * 20, [rf"\boxed{{{tower}}}" for tower in towers])
    assert all((given.value, given.status) == (0.0, "ok") for given in grades)
    assert time.perf_counter() - start < 10


def test_many_threads_share_the_workers(two_workers):
    found = {}

    def ask(number):
        found[number] = two_workers.judge(f"x+{number}", f"{number - 1}+x+1", 5.0)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2, 18)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found.values()) == {(True, "ok")}
    assert len(found) == 16


def test_a_worker_that_somebody_killed_is_replaced(two_workers):
    assert two_workers.judge("x+1", "1+x", 2.0) == (True, "ok")
    (worker,) = [worker for worker in two_workers.workers if worker._process is not None]
    os.killpg(worker._process.pid, signal.SIGKILL)
    assert two_workers.judge("x+1", "1+x", 2.0) == (True, "ok")


def test_a_job_killed_from_outside_has_no_verdict(two_workers):
    two_workers.judge("x+1", "1+x", 2.0)
    (worker,) = [worker for worker in two_workers.workers if worker._process is not None]
    children = f"/proc/{worker._process.pid}/task/{worker._process.pid}/children"
    found = []
    thread = threading.Thread(target=lambda: found.append(two_workers.judge("3", HANGS[1], 20.0)))
    thread.start()
    time.sleep(0.5)
    with open(children) as file:
        os.kill(int(file.read().split()[0]), signal.SIGKILL)
    thread.join(timeout=10)
    assert found == [(False, "error")]
    assert two_workers.judge("x+1", "1+x", 2.0) == (True, "ok")


def test_the_workers_end_with_the_program():
    code = (
        "from grpo_kit.grading import grade, pool\n"
        r"grade('x+1', r'\boxed{1+x}')"
        "\nprint([w._process.pid for p in pool._pools.values() for w in p.workers if w._process])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (pid,) = eval(done.stdout)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_the_workers_end_with_a_program_that_is_killed():
    code = (
        "import os, signal, sys\nfrom grpo_kit.grading import grade, pool\n"
        r"grade('x+1', r'\boxed{1+x}')"
        "\nprint([w._process.pid for p in pool._pools.values() for w in p.workers if w._process], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    (pid,) = eval(done.stdout)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_fork_of_the_program_has_workers_of_its_own():
    assert grade("x+1", r"\boxed{1+x}").value == 1
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if grade("x+2", r"\boxed{2+x}").value == 1 else 1
            pool.shared_pool().stop()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert grade("x+3", r"\boxed{3+x}").value == 1


def test_gold_answers_that_cannot_be_read_are_found():
    assert unreadable(["1/2", "Tuesday", r"\frac{1}{", "(1, 2)", r"\sqrt[", "x < 3", "", None, [1], 7]) == [
        2,
        4,
        6,
        7,
        8,
    ]


def test_a_worker_imports_nothing_of_the_working_folder(tmp_path):
    (tmp_path / "sympy.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    code = "import sys; sys.path[:] = [entry for entry in sys.path if entry]\n"
    code += r"from grpo_kit.grading import grade; print(grade('x+1', r'\boxed{1+x}').value)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "1.0\n"
    assert not (tmp_path / "ran").exists()


def test_a_stopped_pool_is_not_started_again(two_workers):
    two_workers.stop()
    with pytest.raises(RuntimeError, match="were stopped"):
        two_workers.judge("x+1", "1+x", 1.0)
