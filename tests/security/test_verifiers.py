"""reasoning-gym's verifiers that evaluate what they are given: neither an answer nor an entry gets to run code."""

import builtins
import inspect
import json
import math
import subprocess
import sys

import pytest
import reasoning_gym
import sympy
from hypothesis import given, strategies as st
from reasoning_gym.factory import DATASETS

from grpo_kit import ReasoningGymScore
from grpo_kit.rewards import reasoning_gym as ours
from grpo_kit.rewards.runnable import FUNCTIONS, is_runnable

EVALUATING = [name for name in sorted(DATASETS) if name != "composite" and ours._verifier(name)[1]]
TEXTS = {"'": "srepr(x)[7]", ")": "srepr(x)[10]", "(": "srepr(x)[6]", ".": "sstr(0.5)[1]", " ": "sstr(x+y)[1]"}
"""Signs as sympy writes them, for a text without a quotation mark."""


def spelled(code):
    """An expression of sympy's own functions whose value is a text, and which holds none."""
    return "+".join(TEXTS.get(sign) or f"sstr({sign})" for sign in code)


SPELLED = f"S({spelled('__import__(')}+{spelled(chr(39) + 'os' + chr(39) + ').system(')}+"
SPELLED += f"{spelled(chr(39) + 'touch ran' + chr(39) + ')')})"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def entry_of(task, **changes):
    entry = json.loads(json.dumps(dict(reasoning_gym.create_dataset(task, size=1, seed=7)[0]), default=str))
    return json.dumps(entry | changes | {"metadata": entry["metadata"] | changes.get("metadata", {})})


def test_which_tasks_evaluate():
    assert len(EVALUATING) == 11
    for task in ours.READERS:  # of which the source holds such a word
        source = inspect.getsource(ours._verifier(task)[0])
        assert "exec(" not in source
        assert "eval(" not in source
    assert "sympy" not in inspect.getsource(reasoning_gym.logic.propositional_logic)


@pytest.mark.parametrize("task", EVALUATING)
def test_right_answers_and_entries_are_never_refused(task):
    for entry in reasoning_gym.create_dataset(task, size=30, seed=11):
        grade = ReasoningGymScore().grade(json.dumps(dict(entry), default=str), f"<answer>{entry['answer']}</answer>")
        assert grade == (1.0, "ok"), entry["answer"]


def test_a_task_that_only_reads_answers_takes_any_text():
    for entry in reasoning_gym.create_dataset("codeio", size=10, seed=3):
        grade = ReasoningGymScore().grade(json.dumps(dict(entry), default=str), f"<answer>{entry['answer']}</answer>")
        assert grade == (1.0, "ok")


def test_code_spelled_by_sympy_would_run(tmp_path):
    # Else the next test would show nothing.
    subprocess.run(
        [sys.executable, "-c", f"from sympy import parse_expr; parse_expr({SPELLED!r})"], cwd=tmp_path, check=True
    )
    (tmp_path / "ran").unlink()


@pytest.mark.parametrize(
    "answer",
    [
        SPELLED,
        SPELLED.replace("S(", "S \t(", 1),
        SPELLED.replace("S(", "(S)(", 1),
        SPELLED.replace("S(", "[S][0](", 1),
        SPELLED.replace("S(", "(S#\n(", 1) + ")",
        SPELLED.replace("S(", "S\\\n(", 1),
        SPELLED.replace("S(", "\uff33(", 1),
        SPELLED.replace("S(", "(lambda y: y)(S)(", 1),
        SPELLED.replace("S(", "1+S(", 1),
        "system(x)",
        "x.free_symbols",
        "f'{x}'",
    ],
)
@pytest.mark.parametrize("task", ["polynomial_multiplication", "simple_integration", "countdown", "spiral_matrix"])
def test_no_answer_is_run(task, answer):
    assert ReasoningGymScore().grade(entry_of(task), f"<answer>{answer}</answer>") == (0.0, "refused")


CODE = "__import__('os').system('touch ran')"


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("number_sorting", {"answer": CODE}),
        ("number_sorting", {"answer": "[" + CODE + "]"}),
        ("polynomial_multiplication", {"answer": CODE}),
        ("polynomial_multiplication", {"answer": SPELLED}),
        ("simple_integration", {"metadata": {"integrand": CODE}}),
        ("intermediate_integration", {"metadata": {"integrand": CODE}}),
        ("bitwise_arithmetic", {"metadata": {"problem": CODE}}),
        ("bitwise_arithmetic", {"metadata": {"problem": "1", "more": [{"deep": CODE}]}}),
    ],
)
def test_no_entry_of_a_data_set_is_run(task, changes):
    entry = entry_of(task, **changes)
    value, status = ReasoningGymScore().grade(entry, "<answer>[1]</answer>")
    assert status == "unparsed_gold"
    assert math.isnan(value)
    assert ReasoningGymScore().row_faults({"entry": [entry]})[0] == (
        f"column 'entry': the entry of {task} holds code, which its verifier would run"
    )


@pytest.mark.parametrize(
    "text",
    ["(S)(x)", "[S][0](x)", "{S}(x)", "'1'(x)", "(S#\n(x))", "S\\\n(x)", "S\\\r(x)", "\uff4fpen", "x.exp", "1 .real",
     "x\uff3f\uff3f", "S (x)", "open", "lambda: 1", "[y:=2]", "'a'", "f'1'+S(x)", "str(x)"],
)  # fmt: skip
def test_each_way_to_do_more_is_seen(text):
    assert is_runnable(text)


@pytest.mark.parametrize(
    "text", ["2*(3 + 4)*(5)", "x**2/2 + C", "sin(3*x)", "[1, 2.5]", "_ Q _\n_ _ Q", "['1', '-2.0']"]
)
def test_mathematics_is_passed(text):
    assert not is_runnable(text)


def test_what_may_be_called_gives_no_text():
    # A text that sympy's own functions gave would be evaluated by the next one.
    x = sympy.symbols("x", positive=True)
    for name in FUNCTIONS - {"list", "tuple", "sum", "max", "min", "float", "int", "Integer", "Float", "Rational"}:
        function = getattr(sympy, name, None) or getattr(builtins, name)
        for arguments in ((x,), (x, 2), (x, 2, 3)):
            try:
                assert not isinstance(function(*arguments), str), name
            except (TypeError, ValueError, AttributeError, IndexError):
                continue


PIECES = ["S", "sstr", "x", "open", "(", ")", "[", "]", "exp", "2", ".", "'", '"', "#", "\n", "\\", " ", ",", "+", "_"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_python_would_call_is_seen(text):
    import ast

    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        strange = isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS)
        if strange and not isinstance(getattr(node, "func", None), ast.Constant):
            assert is_runnable(text)
        if isinstance(node, ast.Attribute):
            assert is_runnable(text)
