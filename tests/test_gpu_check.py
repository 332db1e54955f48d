"""The script for a machine with a GPU, on the CPU: what it checks there holds here, and a fault fails it."""

import runpy
from pathlib import Path

import pytest
from rich.console import Console

SCRIPT = Path(__file__).parents[1] / "examples" / "gpu_check.py"


@pytest.fixture
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.mark.slow
def test_everything_that_needs_no_engine_holds_on_the_cpu(script):
    console = Console(width=150, record=True)
    assert script["main"]("cpu", True, console) == 0
    said = console.export_text()
    assert "gradients, float32: ok" in said
    assert "tiny recipes: ok" in said
    assert "135M, bfloat16: ok" in said
    assert "FAILED" not in said


def test_a_check_that_fails_is_named_and_the_others_go_on(script):
    def broken(device, small, folder):
        raise AssertionError("wrong by 3")

    def lacking(device, small, folder):
        raise script["Skipped"]("no engine here: pip install 'grpo-kit[vllm]'")

    checks, console = script["CHECKS"], Console(width=150, record=True)
    checks.clear()
    checks |= {"first": broken, "second": lacking, "third": lambda device, small, folder: "fine"}
    assert script["main"]("cpu", True, console) == 1
    said = console.export_text()
    assert "first: FAILED" in said
    assert "AssertionError: wrong by 3" in said
    assert "second: skipped" in said
    assert "grpo-kit[vllm]" in said
    assert "third: ok" in said


def test_gradients_that_differ_fail(script, tmp_path, monkeypatch):
    monkeypatch.setitem(script["gradients"].__globals__, "GRADIENTS", -1.0)
    with pytest.raises(AssertionError, match="gradients differ by"):
        script["gradients"]("cpu", True, tmp_path)
