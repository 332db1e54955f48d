"""Where rewards find the answer, and what they take for a gold value."""

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from grpo_kit.grading.grade import plain_gold
from grpo_kit.patterns import OneGroup
from grpo_kit.rewards.answers import find_answer


@pytest.mark.parametrize(
    ("text", "pattern", "answer"),
    [
        ("<answer>3</answer> no: <answer> 4\n</answer>", "<answer>(.*?)</answer>", "4"),
        ("#### 12", r"####\s*(.+)", "12"),
        ("all\nof it ", r"\A(.*)\Z", "all\nof it"),
        (r"\boxed{4}", "<answer>(.*?)</answer>", None),
        ("<answer> </answer>", "<answer>(.*?)</answer>", None),
        (r"first \boxed{3}, then \boxed{4}", None, "4"),
        ("The answer is 4.", None, "4"),
        ("4", None, None),
    ],
)
def test_the_answer_is_found(text, pattern, answer):
    assert find_answer(text, strict=False, pattern=pattern) == answer


def test_strict_asks_for_a_box():
    assert find_answer("The answer is 4.", strict=True, pattern=None) is None


@pytest.mark.parametrize(
    ("pattern", "message"), [("(", "is not a regular expression"), ("a", "has 0 groups"), ("(a)(b)", "has 2 groups")]
)
def test_a_pattern_needs_one_group(pattern, message):
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(OneGroup).validate_python(pattern)


GOLDS = [("a ", "a "), (7, "7"), (0.1, "0.1"), (1e22, "1e+22"), (True, None), ("", None), ("\n", None), (None, None)]
GOLDS += [(math.inf, None), (math.nan, None), ([1], None), ({}, None)]


@pytest.mark.parametrize(("gold", "text"), GOLDS)
def test_gold_values_as_text(gold, text):
    assert plain_gold(gold) == text


def test_a_whole_number_may_have_more_digits_than_python_writes():
    assert plain_gold(-(10**5000)) == "-1" + 5000 * "0"
