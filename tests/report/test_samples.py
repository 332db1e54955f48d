"""Which completions a page holds, and that the file they are in is never held whole."""

import json
import time
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from grpo_kit.report.runs import read_runs
from grpo_kit.report.samples import Place, lines_at, places, thinned
from grpo_kit.report.tokens import token_rows
from report.made import lines_of, run_folder, sample

STEPS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)), min_size=1, max_size=40)


def rows_of(pairs):
    """Places of rows, given as steps and numbers of tokens."""
    return [Place(number, 1, step, tokens) for number, (step, tokens) in enumerate(pairs)]


def steps_of(rows):
    return [row.step for row in rows]


def test_every_second_step_is_left_out_but_the_first_and_the_last():
    rows = rows_of((step, 10) for step in range(1, 11) for _ in range(2))
    assert thinned(rows, 200) == rows
    assert steps_of(thinned(rows, 199)) == [1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 10, 10]
    assert steps_of(thinned(rows, 60)) == [1, 1, 9, 9, 10, 10]
    assert steps_of(thinned(rows, 35)) == [1, 10, 10]
    assert steps_of(thinned(rows, 0)) == [1, 10]
    assert thinned([], 0) == []


def test_the_last_two_steps_give_rows_away_in_turn():
    rows = rows_of((step, 100) for step in (1, 2, 3) for _ in range(16))
    assert steps_of(thinned(rows, 1000)) == [1] * 5 + [3] * 5
    uneven = rows_of([(1, 100)] * 2 + [(2, 100)] * 8)
    assert steps_of(thinned(uneven, 500)) == [1] + [2] * 4


@given(STEPS, st.integers(0, 400))
def test_what_stays_has_the_first_step_and_the_last_and_fits_or_is_a_row_a_step(pairs, most):
    rows = rows_of(pairs)
    kept = thinned(rows, most)
    steps = sorted(set(steps_of(rows)))
    assert {steps[0], steps[-1]} <= set(steps_of(kept)) <= set(steps)
    assert kept == [row for row in rows if row in kept]
    fits = sum(row.tokens for row in kept) <= most
    assert fits or (len(kept) == len({*steps_of(kept)}) <= 2)
    assert kept == rows or sum(row.tokens for row in rows) > most


def test_many_rows_are_thinned_in_no_time():
    many = 30_000
    begin = time.process_time()
    assert len(thinned(rows_of((step, 1) for step in range(many)), 2)) == 2
    assert len(thinned(rows_of((1, 1) for _ in range(many)), 2)) == 2
    assert time.process_time() - begin < 2  # seconds; with a sum or a set for each row it is minutes


def test_only_what_is_shown_is_held(tmp_path):
    lines = lines_of([sample(step, pieces=("word " * 1000,) * 4) for step in range(100)])
    run = run_folder(tmp_path / "run")
    (run / "samples.jsonl").write_text(lines)
    tracemalloc.start()
    rows, _ = token_rows(read_runs([run])[0], most=8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [row["step"] for row in rows[0]["rows"]] == [0, 99]
    assert peak < len(lines) / 4


def test_places_lead_back_to_the_lines(tmp_path):
    file = tmp_path / "samples.jsonl"
    rows = [sample(1, prompt="é\u2028"), sample(2, pieces=()), sample(3)]
    texts = [json.dumps(row, ensure_ascii=False) for row in rows]
    file.write_text("\n\n".join([texts[0], "{", texts[1], '{"step": 4}', texts[2]]), encoding="utf-8")
    found, damaged = places(file)
    assert [(place.step, place.tokens) for place in found] == [(1, 3), (2, 0), (4, None), (3, 3)]
    assert damaged == [3]
    assert list(lines_at(file, [found[0], found[1], found[3]])) == rows


def test_a_page_says_what_it_leaves_out(tmp_path):
    runs = read_runs([run_folder(tmp_path / "run", samples=[sample(step) for step in (1, 2, 3)])])[0]
    found, notes = token_rows(runs, most=6)
    assert [row["step"] for row in found[0]["rows"]] == [1, 3]
    assert "2 of 3 completions (2 of 3 steps) are in the token view, since a page holds 6 tokens" in notes[0]
    assert token_rows(read_runs([run_folder(tmp_path / "none")])[0]) == ([], [])


def test_a_file_that_is_written_anew_meanwhile(tmp_path):
    run = run_folder(tmp_path / "run", samples=[sample(step) for step in (1, 2)])
    runs, _ = read_runs([run])
    (run / "samples.jsonl").write_text(lines_of([sample(1), sample(3)]))
    found, notes = token_rows(runs)
    assert [row["step"] for row in found[0]["rows"]] == [1]
    assert notes == [f"{run / 'samples.jsonl'}: 1 completions left out that changed while they were read"]
    (run / "samples.jsonl").unlink()
    with pytest.raises(ValueError, match=r"samples\.jsonl cannot be read: No such file"):
        token_rows(runs)
