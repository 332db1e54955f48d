"""Faults of other trainers' rewards, by the id of the report: a small input and the right value."""

import pytest
import torch

import tiny
from grpo_kit import Correctness, Python, Signals, diagnostics
from grpo_kit.grading.extract import last_boxed

NO_SIGNALS = Signals({})


def grade(gold, text: str) -> float:
    """Through the part's call, so that the gold answer may be any value of a data set."""
    component = Correctness()(tiny.with_texts([text], answer=[gold]), NO_SIGNALS)
    return float(component.values[0])


def boxed(answer: str) -> str:
    return rf"so it is \boxed{{{answer}}}."


@pytest.mark.parametrize(
    ("case", "gold", "text", "expected"),
    [
        ("B038 gold first", "x<4", boxed(r"(-\infty,4)"), 1.0),
        ("B042 symbolic", "(x+1)^2", boxed("x^2+2x+1"), 1.0),
        ("B043 nested braces", r"\frac{1}{3}", boxed(r"\frac{1}{2}"), 0.0),
        ("B043 braces kept", r"\frac{1}{23}", boxed(r"\frac{12}{3}"), 0.0),
        ("B043 the same", r"\frac{1}{2}", boxed(r"\frac{1}{2}"), 1.0),
        ("B044 fbox", "36", r"\fbox{36}", 1.0),
        ("B045 no box", "18", "18 hens and 5 cows, unfinished", 0.0),
        ("B046 the last box", "840", r"\boxed{840}., again \boxed{840}", 1.0),
        ("B046 a guess before", "15", r"try \boxed{12}. ... answer \boxed{15}", 1.0),
        ("B046 a guess before, wrong", "12", r"try \boxed{12}. ... answer \boxed{15}", 0.0),
        ("B048 no think tag", "4", r"The answer is \boxed{4}", 1.0),
        ("B049 a half is not 0", "0.5", boxed("0"), 0.0),
        ("B049 big integers", "9007199254740993", boxed("9007199254740993"), 1.0),
        ("B049 off by one", "9007199254740993", boxed("9007199254740992"), 0.0),
        ("B051 integer gold", 42, boxed("42"), 1.0),
        ("B051 float gold", 0.5, boxed(r"\frac{1}{2}"), 1.0),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("B0") else None,
)
def test_correctness(case, gold, text, expected):
    assert grade(gold, text) == expected


def test_b045_an_answer_that_is_missing_is_counted():
    component = Correctness()(tiny.with_texts(["18 hens"], answer=["18"]), NO_SIGNALS)
    assert component.statuses == ("no_answer",)


@pytest.mark.parametrize("returned", [[1.0], 1.0, [1.0] * 4, None])
def test_b047_a_wrong_count_is_refused_and_named(returned):
    def one_for_all(completions, **columns):
        return returned

    with pytest.raises(ValueError, match=r"one_for_all.*for 3 completions"):
        Python(function=one_for_all)(tiny.with_texts(["a", "b", "c"]), NO_SIGNALS)


def test_b054_the_mean_of_a_metric_leaves_abstentions_out():
    assert diagnostics.mean(torch.tensor([0.5, torch.nan, 0.7])) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{1} \boxed{2", "1"),
        (r"\boxed{a\}b}", r"a\}b"),
        (r"\boxed{ \text{if } \{1, 2\} }", r"\text{if } \{1, 2\}"),
        (r"\boxed{\boxed{3}}", "3"),
        ("", None),
        ("}}}{{{", None),
        (r"\boxed{" * 2000, None),
        ("{" * 50_000 + r"\boxed{5}", "5"),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content
