"""The form of a completion."""

import pytest
from pydantic import ValidationError

import tiny
from grpo_kit import Format, Signals

NO_SIGNALS = Signals({})


def test_one_pattern_is_there_or_not_over_line_ends():
    component = Format(pattern="<a>.*</a>")(tiny.with_texts(["<a>\n</a>", "<a>", "</a><a>"]), NO_SIGNALS)
    assert component.values.tolist() == [1.0, 0.0, 0.0]
    assert component.statuses == ("ok",) * 3


def test_the_default_asks_for_a_box_with_something_in_it():
    assert Format().matches(r"x \boxed{1}")
    assert not Format().matches(r"\boxed{}")


def test_several_patterns_give_the_share_of_those_found():
    both = Format(pattern=("</think>", "</answer>", "zzz", "^"))
    rows = tiny.with_texts(["<think></think><answer></answer>", "</think>", "", "zzz</answer></think>"])
    assert both(rows, NO_SIGNALS).values.tolist() == [0.75, 0.5, 0.25, 1.0]
    assert both.matches("zzz</answer></think>")
    assert not both.matches("</think>")


@pytest.mark.parametrize("pattern", ["(", ("fine", "[a")])
def test_what_is_no_regular_expression_is_refused(pattern):
    with pytest.raises(ValidationError, match="is not a regular expression"):
        Format(pattern=pattern)


def test_an_empty_list_of_patterns_is_refused():
    with pytest.raises(ValidationError, match="at least 1 item"):
        Format(pattern=())
