"""Rewards: correctness, format, distillation, any Python function."""

import math
import threading

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import Behavior, Correctness, Format, OnPolicyKD, Python, Sampling, Scores, SignalKey, Signals, Writer
from grpo_kit.rewards import correctness
from grpo_kit.rewards.python import resolve
from tolerances import EXACT

NO_SIGNALS = Signals({})


def test_correctness_grades_every_row_with_its_status():
    texts = [r"\boxed{7}", r"\boxed{8}", "7", r"\boxed{\frac{14}{2}}"]
    component = Correctness(column="gold")(tiny.with_texts(texts, gold=["7"] * 4), NO_SIGNALS)
    assert component.values.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert component.statuses == ("ok", "ok", "no_answer", "ok")
    assert Correctness(column="gold").columns == ("gold",)


def test_a_gold_answer_that_cannot_be_read_is_a_missing_reward(monkeypatch):
    correctness._same_mathematics.cache_clear()
    monkeypatch.setattr(correctness.math_verify, "parse", lambda *_, **__: [])
    value, status = Correctness().grade("gold?", r"\boxed{3}")
    assert math.isnan(value)
    assert status == "unparsed_gold"


@pytest.mark.parametrize(
    ("error", "status"), [(correctness.TimeoutException("late"), "timeout"), (RecursionError("deep"), "error")]
)
def test_a_verdict_that_cannot_be_had_is_a_missing_reward(monkeypatch, error, status):
    correctness._same_mathematics.cache_clear()

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(correctness.math_verify, "verify", fail)
    value, found = Correctness().grade("12", r"\boxed{13}")
    assert math.isnan(value)
    assert found == status
    correctness._same_mathematics.cache_clear()


def test_correctness_works_off_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(Correctness().grade("1/4", r"\boxed{0.25}")))
    thread.start()
    thread.join()
    assert found == [(1.0, "ok")]


def test_format():
    rows = tiny.with_texts(["<a>\n</a>", "<a>", "</a><a>"])
    component = Format(pattern="<a>.*</a>")(rows, NO_SIGNALS)
    assert component.values.tolist() == [1.0, 0.0, 0.0]
    assert Format().matches(r"x \boxed{1}")
    assert not Format().matches(r"\boxed{}")
    with pytest.raises(ValidationError, match="is not a regular expression"):
        Format(pattern="(")


SIGNALS = {"teacher": [[-1.0, -2.0, -3.0], [-1.0, -1.0, -9.0]], "student": [[-2.0, -2.5, -1.0], [-0.5, -0.5, -9.0]]}


def signals():
    return Signals({SignalKey(name, 0): Scores(logprobs=torch.tensor(v)) for name, v in SIGNALS.items()})


@pytest.mark.usefixtures("float64")
def test_on_policy_kd_is_the_sum_of_log_ratios_over_n():
    rows = tiny.rollouts([3, 2], [0, 0], writer="student")
    sums = torch.tensor([1.0 + 0.5 - 2.0, -0.5 - 0.5])
    kd = {"teacher": "teacher", "student": "student", "alpha": 2.0}
    torch.testing.assert_close(OnPolicyKD(**kd, length=8)(rows, signals()).values, 2 / 8 * sums, **EXACT)
    by_row = OnPolicyKD(**kd, length_norm="sequence")(rows, signals()).values
    torch.testing.assert_close(by_row, 2 * sums / torch.tensor([3.0, 2.0]), **EXACT)
    assert OnPolicyKD(**kd, length=8).reads == ("teacher", "student")


@pytest.mark.usefixtures("float64")
def test_on_policy_kd_leaves_the_teachers_own_tokens_out():
    from dataclasses import replace

    rows = tiny.rollouts([3, 2], [0, 0])
    writers = tuple(Writer(policy=name, version=0, sampling=Sampling()) for name in ("student", "teacher"))
    hinted = Behavior(writers=writers, writer=torch.tensor([[1, 0, 0], [1, 1, 0]]), logprobs=rows.behavior.logprobs)
    rows = replace(rows, behavior=hinted)
    kd = {"teacher": "teacher", "student": "student"}
    torch.testing.assert_close(
        OnPolicyKD(**kd, length=4)(rows, signals()).values, torch.tensor([(0.5 - 2.0) / 4, 0.0]), **EXACT
    )
    by_row = OnPolicyKD(**kd, length_norm="sequence")(rows, signals()).values
    torch.testing.assert_close(by_row, torch.tensor([(0.5 - 2.0) / 2, 0.0]), **EXACT)


def test_on_policy_kd_passes_no_gradient():
    leaf = torch.tensor(SIGNALS["teacher"], requires_grad=True)
    given = dict(signals().scores) | {SignalKey("teacher", 0): Scores(logprobs=leaf)}
    rows = tiny.rollouts([3, 2], [0, 0], writer="student")
    assert not OnPolicyKD(teacher="teacher", student="student", length=4)(rows, Signals(given)).values.requires_grad


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs length"),
        ({"length_norm": "sequence", "length": 4}, "does not use length"),
        ({"alpha": -1.0, "length": 4}, "alpha"),
        ({"length": 0}, "length"),
    ],
)
def test_on_policy_kd_refuses_idle_and_wrong_options(settings, message):
    with pytest.raises(ValidationError, match=message):
        OnPolicyKD(teacher="t", student="s", **settings)


def words(completions, answer, **columns):
    return [None if gold is None else float(text == gold) for text, gold in zip(completions, answer, strict=True)]


def test_python_gets_completions_and_columns():
    component = Python(function=words)(tiny.with_texts(["a", "b", "c"], answer=["a", "x", None]), NO_SIGNALS)
    assert component.values[:2].tolist() == [1.0, 0.0]
    assert component.values[2].isnan()
    assert component.statuses == ("ok", "ok", "none")


def test_python_finds_a_function_by_name():
    assert resolve("math:fsum") is math.fsum
    for name, message in [
        ("math", "names no function"),
        ("nowhere_at_all:f", "cannot be imported"),
        ("math:nothing", "has no function 'nothing'"),
    ]:
        with pytest.raises(ValueError, match=message):
            resolve(name)


@pytest.mark.parametrize(
    ("result", "message"),
    [([math.inf, 0.0], "returned inf for row 0"), ([0.0, -math.inf], "row 1"), ({1: 2}, "a dict for 2 completions")],
)
def test_python_refuses_values_that_are_no_rewards(result, message):
    def odd(completions, **columns):
        return result

    with pytest.raises(ValueError, match=rf"odd.*{message}"):
        Python(function=odd)(tiny.with_texts(["a", "b"]), NO_SIGNALS)


def test_an_exception_names_the_function():
    def breaks(completions, **columns):
        raise KeyError("gold")

    with pytest.raises(ValueError, match="breaks failed: KeyError: 'gold'"):
        Python(function=breaks)(tiny.with_texts(["a"]), NO_SIGNALS)


@pytest.mark.parametrize("value", ["1.5", [1.0], 1j, float("inf")])
def test_a_python_reward_that_is_no_finite_number_names_function_and_row(value):
    def odd(completions, **columns):
        return [0.0, value]

    with pytest.raises(ValueError, match=r"odd returned .* for row 1; return a finite number or None"):
        Python(function=odd)(tiny.rollouts([2, 3], [0, 0]), Signals({}))


def test_a_python_reward_may_return_one_element_tensors():
    rewards = Python(function=lambda completions, **columns: [torch.tensor(0.5), None])
    found = rewards(tiny.rollouts([2, 3], [0, 0]), Signals({}))
    assert found.values[0] == 0.5
    assert found.statuses == ("ok", "none")
