"""The numbers of a result: what a missing verdict does to each, and how they are shown."""

import json
import math

import pytest
from rich.console import Console

from grpo_kit.evaluation.measure import Completion
from grpo_kit.evaluation.report import show, write
from grpo_kit.evaluation.result import conclude
from grpo_kit.evaluation.verdicts import Verdict

NOTHING = [Verdict(None, "timeout"), Verdict(None, "unparsed_gold")]


def completions(verdicts, samples):
    return [
        Completion(
            question=row // samples,
            sample=row % samples,
            gold="7",
            text=f"text {row} " + "x" * 400,
            answer=None if verdict.status == "no_answer" else "7",
            verdict=verdict,
            tokens=10 + row,
            stop_reason="length" if row % 4 == 3 else "eos",
        )
        for row, verdict in enumerate(verdicts)
    ]


def result_of(verdicts, samples, voted=()):
    return conclude(
        completions(verdicts, samples),
        voted=voted,
        samples=samples,
        policy="small",
        data="sums",
        skipped=["line 3: no prompt"],
        max_new_tokens=64,
        sampling_seconds=2.0,
        grading_seconds=0.5,
    )


def ok(*values):
    return [Verdict(float(value), "ok") for value in values]


def test_a_missing_verdict_is_neither_right_nor_wrong():
    # Questions: 1 of 2 right; 1 of 1 right, one missing; both missing.
    result = result_of([*ok(1, 0), *ok(1), NOTHING[0], *NOTHING], 2, voted=[0.5, 1.0, math.nan])
    assert result.accuracy == pytest.approx((1 / 2 + 1) / 2)
    assert result.missing == 3
    assert result.bounds == (pytest.approx(2 / 6), pytest.approx(5 / 6))
    assert result.pass_at == {1: pytest.approx(0.75), 2: 1.0}
    assert (result.majority, result.majority_missing) == (0.75, 1)
    assert result.statuses == {"ok": 3, "timeout": 2, "unparsed_gold": 1}


def test_lengths_and_speed_are_over_all_completions():
    result = result_of(ok(1, 0, 1, 0, 0, 1), 1)
    assert result.length == pytest.approx((10 + 15) / 2)
    assert result.truncated == pytest.approx(1 / 6)
    assert result.tokens_per_second == pytest.approx(75 / 2)
    assert math.isnan(result.majority)


def test_the_first_examples_of_each_status_are_kept():
    result = result_of([Verdict(0.0, "no_answer")] * 5 + [NOTHING[0]] + ok(1), 1)
    assert [(example["status"], example["question"]) for example in result.examples] == [
        *[("no_answer", row) for row in range(3)],
        ("timeout", 5),
    ]
    assert all(len(example["end"]) == 300 for example in result.examples)


def test_missing_verdicts_are_shown_with_their_bounds(tmp_path):
    with (tmp_path / "log").open("w") as file:
        show([result_of([*ok(1, 0, 1), NOTHING[0]], 1), result_of(ok(1), 1)], Console(file=file, width=100))
    lines = (tmp_path / "log").read_text().splitlines()
    assert "  if missing wrong / right: 0.500 / 0.750" in lines
    assert "  status timeout: 1 of 4" in lines
    assert "small on sums: 1 completions have no verdict and count neither as right nor as wrong" in lines
    assert len([line for line in lines if "if missing" in line]) == 1


def test_a_number_that_does_not_exist_is_null(tmp_path):
    write(tmp_path / "r.json", {"model": "m"}, {"torch": "2"}, [result_of([NOTHING[0]], 1)], [{"chat": False}])
    report = json.loads((tmp_path / "r.json").read_text())
    (result,) = report["results"]
    assert result["accuracy"] is None
    assert result["interval"] == [None, None]
    assert result["asked"] == {"chat": False}
    assert (report["settings"], report["versions"]) == ({"model": "m"}, {"torch": "2"})
