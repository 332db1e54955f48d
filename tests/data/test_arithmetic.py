"""The arithmetic task: its questions, its splits, its noisy worked answers."""

import math
from itertools import product
from random import Random

import pytest
from pydantic import ValidationError

from grpo_kit.data.arithmetic import SLIPS, TERMS, Arithmetic, draw_question, gold, split_of, terms_of, worked_answer
from grpo_kit.grading.extract import last_boxed


@pytest.mark.parametrize("task", ["plain", "sparse"])
def test_splits_never_meet(task):
    splits = ("train", "eval", "warm_up")
    questions = {split: set(Arithmetic(task=task, split=split, rows=500)()["prompt"]) for split in splits}
    assert sum(map(len, questions.values())) == len(set.union(*questions.values())) == 1500
    assert all(split_of(question) == split for split in questions for question in questions[split])


def test_split_shares_are_as_documented():
    random = Random(0)
    splits = [split_of(draw_question(8, random)) for _ in range(10_000)]
    for split, share in {"warm_up": 0.4, "train": 0.4, "eval": 0.2}.items():
        # Five standard deviations of a share of 10000 draws.
        assert splits.count(split) / 10_000 == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 10_000))


def test_there_are_as_many_rows_as_asked_for_by_default_4096():
    assert Arithmetic().rows == 4096
    assert len(Arithmetic(rows=100)()) == 100


def test_the_seed_decides_the_rows():
    first, again, other = (Arithmetic(rows=64, seed=seed)() for seed in (3, 3, 4))
    assert first["prompt"][:] == again["prompt"][:] != other["prompt"][:]
    assert Arithmetic(rows=32, seed=3)()["prompt"][:] == first["prompt"][:32]


@pytest.mark.parametrize("task", ["plain", "sparse"])
def test_rows_are_distinct_and_their_lengths_take_turns(task):
    questions = Arithmetic(task=task, rows=300)()["prompt"][:]
    assert len(set(questions)) == 300
    lengths = [len(terms_of(question)) for question in questions]
    assert [lengths.count(terms) for terms in TERMS[task]] == [100, 100, 100]


def test_longer_questions_fill_the_place_of_short_ones_that_ran_out():
    questions = Arithmetic(split="eval", rows=4000)()["prompt"][:]
    lengths = [len(terms_of(question)) for question in questions]
    digits = "0123456789"
    short = sum(split_of("".join(parts) + "=") == "eval" for parts in product(digits, "+-", digits, "+-", digits))
    assert len(set(questions)) == 4000
    assert lengths.count(3) == short < 4000 / 3
    assert abs(lengths.count(4) - lengths.count(5)) <= 1


@pytest.mark.parametrize("task", ["plain", "sparse"])
def test_gold_is_the_value_of_the_question(task):
    for row in Arithmetic(task=task, rows=200)():
        assert row["answer"] == str(eval(row["prompt"].removesuffix("=")))


@pytest.mark.parametrize("task", ["plain", "sparse"])
def test_completions_are_worked_answers_without_an_error(task):
    rows = Arithmetic(task=task, rows=60)()
    assert rows.column_names == ["prompt", "answer", "completion"]
    for row in rows:
        *lines, box = row["completion"].split("\n")
        total, *terms = terms_of(row["prompt"])
        for line, term in zip(lines, terms, strict=True):
            assert line == f"{total}{term}={int(total) + int(term)}"
            total = str(int(total) + int(term))
        assert box == f"\\boxed{{{row['answer']}}}"


@pytest.mark.parametrize("given", [{"rows": 0}, {"rows": 100_001}, {"task": "hard"}, {"split": "test"}, {"row": 3}])
def test_mistakes_are_refused(given):
    with pytest.raises(ValidationError):
        Arithmetic(**given)


def test_a_worked_answer_without_errors_is_right():
    random = Random(0)
    for _ in range(200):
        question = draw_question(random.randint(3, 8), random)
        *lines, _ = (answer := worked_answer(question, 0.0, random)).split("\n")
        assert last_boxed(answer) == str(gold(question))
        assert all(eval(left) == int(right) for left, right in (line.split("=") for line in lines))
    assert worked_answer("4-9-0=", 0.0, random) == "4-9=-5\n-5-0=-5\n\\boxed{-5}"


def test_a_worked_answer_errs_as_often_as_told_and_goes_on_from_its_error():
    random, slips = Random(0), []
    for _ in range(2000):
        question = draw_question(5, random)
        *lines, box = worked_answer(question, 0.4, random).split("\n")
        total, *terms = terms_of(question)
        for line, term in zip(lines, terms, strict=True):
            left, right = line.split("=")
            assert left == f"{total}{term}"
            slips.append(int(right) - eval(left))
            total = right
        assert box == f"\\boxed{{{total}}}"
    # 8000 steps. Five standard deviations of a share around 0.4, and of one around 0.4 / 18.
    assert 1 - slips.count(0) / 8000 == pytest.approx(0.4, abs=5 * math.sqrt(0.4 * 0.6 / 8000))
    assert set(slips) == {0, *SLIPS}
    assert all(
        slips.count(slip) / 8000 == pytest.approx(0.0222, abs=5 * math.sqrt(0.0222 * 0.9778 / 8000)) for slip in SLIPS
    )
