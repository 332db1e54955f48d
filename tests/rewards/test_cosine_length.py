"""The cosine length-scaled reward."""

import math

import pytest
from pydantic import ValidationError

import tiny
from grpo_kit import Component, CosineLength, NumberMatch, Python, Signals
from grpo_kit.config import parse_recipe
from grpo_kit.parts import as_table
from grpo_kit.rewards import REWARDS


def by_the_paper(length, longest, correct, settings):
    """arXiv:2502.03373: CosFn from the value at 0 to the value at the longest, and r_e at the longest."""
    start, end, exceed = settings
    if length >= longest:
        return exceed
    start, end = (start[0], end[0]) if correct else (start[1], end[1])
    return end + (start - end) / 2 * (1 + math.cos(math.pi * length / longest))


def graded(values, statuses):
    """A grading that says what it is told."""
    return lambda rollouts, signals: Component(values=tiny.component(values).values, statuses=tuple(statuses))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("correct", [True, False])
def test_it_is_the_papers_with_the_papers_values(correct):
    rows = tiny.rollouts([0, 1, 4, 7, 8, 9], [0] * 6)
    shaped = CosineLength(
        max_length=8,
        grading=graded([float(correct)] * 6, ["ok"] * 6),
        correct=(2.0, 1.0),
        wrong=(-10.0, 0.0),
        exceed=-10.0,
    )
    expected = [by_the_paper(length, 8, correct, ((2, -10), (1, 0), -10)) for length in (0, 1, 4, 7, 8, 9)]
    component = shaped(rows, Signals({}))
    assert component.values.tolist() == pytest.approx(expected, abs=1e-12)
    assert component.statuses == ("ok",) * 4 + ("exceeded",) * 2


def test_short_is_good_when_right_and_bad_when_wrong():
    shaped = CosineLength(max_length=10, grading=NumberMatch())
    right = [shaped.value(length, True) for length in range(10)]
    wrong = [shaped.value(length, False) for length in range(10)]
    assert right == sorted(right, reverse=True)
    assert wrong == sorted(wrong)
    assert (right[0], wrong[0]) == (1.0, -1.0)
    assert min(right) > 0 > max(wrong)


def test_no_verdict_stays_none_but_a_row_that_was_cut_gets_its_own():
    rows = tiny.rollouts([2, 2, 5, 2], [0] * 4)
    shaped = CosineLength(
        max_length=5, grading=graded([math.nan, 0.5, math.nan, 1.0], ["timeout", "no_answer", "error", "ok"])
    )
    component = shaped(rows, Signals({}))
    assert component.values[0].isnan()
    assert component.values[1] < 0  # a half is not right
    assert component.values[2] == -1
    assert component.values[3] > 0
    assert component.statuses == ("timeout", "no_answer", "exceeded", "ok")


def test_columns_and_faults_are_those_of_the_grading():
    shaped = CosineLength(max_length=5, grading=NumberMatch(column="gold"))
    assert shaped.columns == ("gold",)
    assert list(shaped.row_faults({"gold": ["1", "one"]})) == [1]
    plain = CosineLength(max_length=5, grading=graded([], []))
    assert plain.columns == ()
    assert plain.row_faults({"gold": ["one"]}) == {}


def test_a_table_is_read_and_written_again():
    table = {"kind": "cosine_length", "max_length": 9, "grading": {"kind": "number_match", "relative": 0.1}}
    shaped = REWARDS.read(table)
    assert shaped == CosineLength(max_length=9, grading=NumberMatch(relative=0.1))
    assert REWARDS.read(as_table(shaped)) == shaped


def test_a_mistake_in_the_grading_is_named_by_its_place():
    rewards = {"shaped": {"kind": "cosine_length", "max_length": 9, "grading": {"kind": "number_match", "colum": "a"}}}
    _, mistakes, _ = parse_recipe({"rewards": rewards})
    assert any(line.startswith("rewards.shaped.grading.colum: ") for line in mistakes), mistakes
    rewards["shaped"]["grading"] = {"kind": "numbermatch"}
    _, mistakes, _ = parse_recipe({"rewards": rewards})
    assert any("rewards.shaped.grading" in line and "Did you mean 'number_match'?" in line for line in mistakes)


def test_a_grading_that_compares_policies_is_refused():
    with pytest.raises(ValidationError, match="says nothing of right or wrong"):
        CosineLength(max_length=5, grading={"kind": "on_policy_kd", "teacher": "a", "student": "b", "length": 5})


def test_a_python_grading_keeps_its_columns():
    shaped = CosineLength(max_length=5, grading=Python(function=lambda completions, gold: [1.0] * len(completions)))
    assert shaped.columns == ("gold",)
