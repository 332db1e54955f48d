"""The majority's answer: by cases made by hand."""

import math

import pytest

from grpo_kit.evaluation.votes import Ballot, majority

RIGHT, WRONG, UNKNOWN = 1.0, 0.0, None


def ballots(*pairs):
    return [Ballot(answer=answer, verdict=verdict) for answer, verdict in pairs]


def as_numbers(pairs):
    """A grader that knows fractions with / only."""
    return [value(one) == value(other) for one, other in pairs]


def value(text):
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1) if top.replace(".", "").isdigit() else text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("2", RIGHT), ("2", RIGHT), ("3", WRONG)], 1),
        ([("2", RIGHT), ("3", WRONG), ("3", WRONG)], 0),
        # The right ones are one answer, however written.
        ([("1/2", RIGHT), ("0.5", RIGHT), ("7", WRONG), ("8", WRONG)], 1),
        # Wrong ones are one answer when the grader says so: 3 against 2.
        ([("2", RIGHT), ("2", RIGHT), ("1/2", WRONG), ("0.5", WRONG), ("2/4", WRONG)], 0),
        ([("2", RIGHT), ("2", RIGHT), ("x", WRONG), ("y", WRONG), ("z", WRONG)], 1),
        # Spaces do not make another answer.
        ([("2", RIGHT), ("x  y", WRONG), ("x y", WRONG)], 0),
        # Ties are shared.
        ([("2", RIGHT), ("3", WRONG)], 1 / 2),
        ([("2", RIGHT), ("3", WRONG), ("4", WRONG)], 1 / 3),
        ([("2", RIGHT), ("2", RIGHT), ("3", WRONG), ("3", WRONG), ("4", WRONG)], 1 / 2),
        # No answer is no vote, and none at all is wrong.
        ([("2", RIGHT), (None, WRONG), (None, WRONG)], 1),
        ([(None, WRONG), (None, WRONG)], 0),
        # A majority without a verdict has none; a minority without one does no harm.
        ([("2", RIGHT), ("q", UNKNOWN), ("q", UNKNOWN)], math.nan),
        ([("2", RIGHT), ("q", UNKNOWN)], math.nan),
        ([("2", RIGHT), ("2", RIGHT), ("q", UNKNOWN)], 1),
        # A text that was judged once is judged: a timeout on the same text is the same answer.
        ([("2", RIGHT), ("2", UNKNOWN), ("3", WRONG)], 1),
        ([("3", WRONG), ("3", UNKNOWN), ("2", RIGHT)], 0),
    ],
)
def test_the_verdict_is_that_of_the_most_frequent_answer(given, expected):
    assert majority([ballots(*given)], as_numbers) == [pytest.approx(expected, nan_ok=True)]


def test_the_grader_sees_each_pair_of_wrong_answers_of_a_question_in_one_call():
    calls = []

    def same(pairs):
        calls.append(list(pairs))
        return [False for _ in pairs]

    first = ballots(("1", RIGHT), ("2", WRONG), ("3", WRONG), ("2", WRONG), ("q", UNKNOWN), (None, WRONG))
    second = ballots(("4", WRONG), ("5", WRONG), ("6", WRONG))
    assert majority([first, second], same) == [0, pytest.approx(0)]
    assert calls == [[("2", "3"), ("4", "5"), ("4", "6"), ("5", "6")]]


def test_the_grader_is_not_called_for_nothing():
    def same(pairs):
        raise AssertionError

    assert majority([ballots(("1", RIGHT), ("2", WRONG), ("1", RIGHT))], same) == [1]
