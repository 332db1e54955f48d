"""The gold number against the final answer."""

import math

import pytest
from pydantic import ValidationError

import tiny
from grpo_kit import NumberMatch, Signals


def boxed(text):
    return rf"so it is \boxed{{{text}}}"


@pytest.mark.parametrize(
    ("case", "gold", "text", "expected"),
    [
        ("B049 a half is not 0", "0.5", boxed("0"), 0.0),
        ("B049 a half", "0.5", boxed(r"\frac{1}{2}"), 1.0),
        ("B049 big integers", "9007199254740993", boxed("9007199254740993"), 1.0),
        ("B049 off by one", "9007199254740993", boxed("9007199254740992"), 0.0),
        ("B049 a big integer as a number", 9007199254740993, boxed("9,007,199,254,740,993"), 1.0),
        ("B049 off by one, as a number", 9007199254740993, boxed("9007199254740992"), 0.0),
        ("B051 integer gold", 42, boxed("42"), 1.0),
        ("B051 float gold", 0.1, boxed("1/10"), 1.0),
        ("B048 no think tag", 4, r"The answer is \boxed{4}", 1.0),
        ("a third is not 0.33", "1/3", boxed("0.33"), 0.0),
        ("by a cue", "1234", "The answer is 1,234.", 1.0),
    ],
    ids=lambda value: value if isinstance(value, str) and value[:2] in ("B0", "a ", "by") else "",
)
def test_the_verdict(case, gold, text, expected):
    assert NumberMatch().grade(gold, text) == (expected, "ok")


def test_numbers_of_more_digits_than_python_reads():
    assert NumberMatch().grade(10**5000, boxed("1" + "0" * 5000)) == (1.0, "ok")
    assert NumberMatch().grade(10**5000, boxed("9" * 5000)) == (0.0, "ok")


def test_statuses():
    texts = [boxed("7"), "7 hens", boxed("seven"), boxed("7"), boxed("7"), boxed("7"), boxed("7")]
    golds = ["7", "7", "7", "seven", None, True, math.nan]
    component = NumberMatch(column="gold")(tiny.with_texts(texts, gold=golds), Signals({}))
    assert component.values.tolist()[:3] == [1.0, 0.0, 0.0]
    assert component.values[3:].isnan().all()
    assert component.statuses == ("ok", "no_answer", "no_number", *["unparsed_gold"] * 4)


def test_golds_that_are_no_numbers_are_reported_before_the_run():
    reward = NumberMatch(column="gold")
    assert reward.columns == ("gold",)
    faults = reward.row_faults({"gold": ["1", "one", 2, None, "", [1], "9" * 30_000], "other": ["x"] * 7})
    assert list(faults) == [1, 3, 4, 5, 6]
    assert faults[1] == "column 'gold': 'one' is no number"
    assert len(faults[6]) < 120


def test_tolerances():
    assert NumberMatch(absolute=0.01).grade("3.14", boxed("3.15")) == (1.0, "ok")
    assert NumberMatch(absolute=0.01).grade("3.14", boxed("3.1501")) == (0.0, "ok")
    assert NumberMatch(relative=0.01).grade("200", boxed("202")) == (1.0, "ok")
    assert NumberMatch(relative=0.01).grade("200", boxed("202.1")) == (0.0, "ok")


def test_percent_units_strict_and_pattern():
    assert NumberMatch().grade("0.5", boxed("50%")) == (1.0, "ok")
    assert NumberMatch(percent="ignore").grade("50", boxed(r"50\%")) == (1.0, "ok")
    assert NumberMatch().grade("18", boxed("18 dollars")) == (1.0, "ok")
    assert NumberMatch().grade("25%", boxed("1/4")) == (1.0, "ok")
    assert NumberMatch(strict=True).grade("4", "The answer is 4.") == (0.0, "no_answer")
    assert NumberMatch(pattern=r"####\s*(.+)").grade("4", r"#### 4 \boxed{5}") == (0.0, "no_number")
    assert NumberMatch(pattern=r"####\s*(\S+)").grade("4", r"#### 4 \boxed{5}") == (1.0, "ok")


def test_a_number_that_is_too_long_to_write_out_takes_no_time():
    assert NumberMatch().grade("1", boxed("1e999999999")) == (0.0, "ok")
    assert NumberMatch(absolute=1.0).grade("1", boxed("1e999999999")) == (0.0, "ok")
    assert NumberMatch(relative=0.01).grade("5", boxed("1e99999999999999999999")) == (0.0, "ok")
    assert NumberMatch(relative=0.01).grade("5", boxed("0." + "1" * 4000)) == (0.0, "ok")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strict": True, "pattern": "(a)"}, "does nothing with a pattern"),
        ({"absolute": -1.0}, "absolute"),
        ({"relative": math.inf}, "relative"),
        ({"percent": "half"}, "percent"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        NumberMatch(**settings)
