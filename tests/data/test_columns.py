"""Columns under our names: what is said where one is missing, and which one is guessed."""

import pytest

from grpo_kit.data.columns import guess, map_columns, missing_columns
from grpo_kit.data.rows import Fault, Rows


def rows(**columns):
    return Rows(columns=columns, places=["row 0"], source="data file 'x.csv' (split train)")


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("prompt", {"id": ["1"], "Question": ["why"]}, "Question"),
        ("prompt", {"query": ["why"], "problem": ["how"]}, "problem"),
        ("prompt", {"a": ["short"], "b": ["the longest text of them"], "c": [3]}, "b"),
        ("prompt", {"c": [3]}, None),
        ("answer", {"b": ["the longest text"], "solution": ["x"], "target": ["1"]}, "target"),
        ("answer", {"b": ["text"]}, None),
        ("level", {"Level": ["5"]}, "Level"),
    ],
)
def test_a_missing_column_is_guessed(name, columns, expected):
    assert guess(name, rows(**columns)) == expected


def test_all_missing_columns_are_named_with_those_who_read_them():
    table = rows(problem=["why"], gold=["1"])
    said = missing_columns(table, {"prompt": "prompt", "answer": "answer"}, {"answer": "rewards.right"})
    assert said == (
        "data file 'x.csv' (split train) has no column 'prompt'. And no column 'answer', which rewards.right reads. It "
        'has: problem, gold. Map them, for example columns = { prompt = "problem", answer = "gold" }.'
    )


def test_a_mapped_column_that_is_missing_gets_the_nearest_name():
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        map_columns(rows(question=["why"]), {"prompt": "qestion"}, {})
    assert str(caught.value) == (
        "data file 'x.csv' (split train) has no column 'qestion' (columns.prompt). Did you mean 'question'? It has: "
        "question."
    )


def test_a_table_of_faults_alone_names_the_first():
    fault = Fault(place="line 1", kind="malformed", reason="not JSON")
    table = Rows(columns={}, places=[], faults=(fault, fault), source="data file 'x.jsonl'")
    assert missing_columns(table, {"prompt": "prompt"}) == (
        "data file 'x.jsonl': 0 of 2 rows can be read (2 malformed). line 1: not JSON"
    )
