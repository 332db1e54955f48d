"""The gold text against the final answer."""

import pytest
from pydantic import ValidationError

import tiny
from grpo_kit import Signals, StringMatch


def boxed(text):
    return rf"so it is \boxed{{{text}}}"


@pytest.mark.parametrize(
    ("settings", "gold", "answer", "right"),
    [
        ({}, "Paris", "Paris", True),
        ({}, "Paris", "paris", False),
        ({"ignore_case": True}, "Paris", "pARIS", True),
        ({"ignore_case": True}, "Straße", "STRASSE", True),
        ({}, "New York", " New \n York ", True),
        ({}, "New York", "NewYork", False),
        ({"spaces": "remove"}, "New York", "NewYo rk", True),
        ({"spaces": "keep"}, "New York", "New  York", False),
        ({"spaces": "keep"}, " New York ", "New York", True),
        ({}, "caf\u00e9", "cafe\u0301", True),
        ({}, "cafe", "café", False),
        ({}, 42, "42", True),
        ({}, 0.5, "0.5", True),
        ({}, "0.5", "1/2", False),
    ],
)
def test_the_verdict(settings, gold, answer, right):
    assert StringMatch(**settings).grade(gold, boxed(answer)) == (float(right), "ok")


def test_statuses_and_faults():
    reward = StringMatch(column="gold")
    golds = ["a", "a", "", None, [1]]
    component = reward(tiny.with_texts([boxed("a"), "a", boxed("a"), boxed("a"), boxed("a")], gold=golds), Signals({}))
    assert component.values.tolist()[:2] == [1.0, 0.0]
    assert component.values[2:].isnan().all()
    assert component.statuses == ("ok", "no_answer", *["unparsed_gold"] * 3)
    assert reward.columns == ("gold",)
    assert reward.row_faults({"gold": golds}) == {
        2: "column 'gold': '' is no text to compare with",
        3: "column 'gold': None is no text to compare with",
        4: "column 'gold': [1] is no text to compare with",
    }


def test_where_the_answer_is_looked_for():
    assert StringMatch().grade("blue", "The answer is blue.") == (1.0, "ok")
    assert StringMatch(strict=True).grade("blue", "The answer is blue.") == (0.0, "no_answer")
    assert StringMatch(pattern=r"\A(.*)\Z").grade("eulb", "eulb\n") == (1.0, "ok")
    with pytest.raises(ValidationError, match="does nothing with a pattern"):
        StringMatch(strict=True, pattern="(a)")
