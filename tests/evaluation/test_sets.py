"""The named sets, and what a value of --data may be."""

import json
import re
from pathlib import Path

import pytest

from grpo_kit.evaluation.sets import NAMED, Place, locate

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"


def test_the_sets_asked_for_are_there():
    assert list(NAMED) == ["math500", "gsm8k", "aime24", "aime25", "amc23", "minerva", "olympiadbench"]


def test_the_page_has_the_table_of_the_code():
    rows = re.findall(
        r"^\| `(\w+)` \| `([^`]+)` \| (.+?) \| `(\w+)` \| `(\w+)` \| `(\w+)` \| (\d+) \|$", PAGE.read_text(), re.M
    )
    expected = [
        (name, s.path, f"`{s.config}`" if s.config else "-", s.split, s.prompt, s.answer, str(s.questions))
        for name, s in NAMED.items()
    ]
    assert rows == expected


def test_a_pattern_of_a_gold_answer_has_one_group():
    for named in NAMED.values():
        assert not named.extract or re.compile(named.extract).groups == 1
        assert r"\boxed{}" in named.instruction
        assert named.path.count("/") == 1


@pytest.mark.parametrize(
    ("given", "gold"),
    [("She sells 3.\n#### 18", "18"), ("#### 1,000\n", "1,000"), ("18", "18"), ("a #### b\n#### -5", "-5")],
)
def test_the_gold_answer_of_gsm8k_stands_behind_the_last_mark(given, gold):
    found = re.fullmatch(NAMED["gsm8k"].extract, given, re.DOTALL)
    assert found[1].strip() == gold


def test_a_place_is_a_name_a_file_or_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text(json.dumps({"problem": "1+1=", "answer": "2"}) + "\n")
    assert locate("math500") == Place(name="math500", named=NAMED["math500"])
    assert locate("mine.jsonl") == Place(name="mine", file=Path("mine.jsonl"))
    assert locate("aime24=mine.jsonl") == Place(name="aime24", named=NAMED["aime24"], file=Path("mine.jsonl"))
    (tmp_path / "a=b.jsonl").write_text("{}")
    assert locate("a=b.jsonl") == Place(name="a=b", file=Path("a=b.jsonl"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mth500", "'mth500' is no file here and no named set. Did you mean 'math500'? Named sets: math500, gsm8k, "),
        ("nowhere.jsonl", "'nowhere.jsonl' is no file here and no named set. Named sets: "),
        ("gsm8k=nowhere.jsonl", "there is no file 'nowhere.jsonl' for 'gsm8k' (looked from "),
        ("gsm=x.jsonl", "'gsm' in 'gsm=x.jsonl' is no named set. Did you mean 'gsm8k'?"),
    ],
)
def test_a_place_that_is_none_is_named(given, message):
    with pytest.raises(ValueError, match="is no") as caught:
        locate(given)
    assert message in str(caught.value)
