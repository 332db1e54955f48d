"""What is made of the files of runs: costs, areas, paired differences, tables."""

import json
from dataclasses import replace

import pytest

from grpo_kit.compare.command import choose
from grpo_kit.compare.jobs import FAILURE, RESULT, Job
from grpo_kit.compare.plan import Arm, HeldOut, Plan, Tuning
from grpo_kit.compare.statistics import difference
from grpo_kit.compare.summary import areas, cost, summarize
from grpo_kit.compare.tables import document, markdown, tables_of

PLAN = Plan(
    name="made",
    seeds=(0, 1, 2),
    arms={"one": Arm(recipe="grpo"), "two": Arm(recipe="grpo"), "three": Arm(recipe="grpo")},
    equivalence={"small/accuracy": 0.05},
    hypotheses=("two is better",),
)
LINES = [
    {"step": 0, "eval/small/accuracy": 0.25},
    {
        "step": 1, "time/step": 2.0, "time/sample": 0.5, "time/update/small": 1.5, "time/tokens_per_second": 100.0,
        "sampler/tokens": 40.0, "learner/small/tokens": 30.0, "learner/small/version": 2.0,
        "flops/small/sample": 10.0, "flops/small/update": 60.0,
    },
    {
        "step": 2, "time/step": 4.0, "time/sample": 1.0, "time/update/small": 3.0, "time/tokens_per_second": 100.0,
        "sampler/tokens": 100.0, "learner/small/tokens": 100.0, "learner/small/version": 4.0,
        "flops/small/sample": 20.0, "flops/small/update": 120.0, "eval/small/accuracy": 0.75,
    },
]  # fmt: skip
PLAIN = {"held_out": {}, "seconds": {"fill": 0.0}, "flops": {}, "tokens_filled": 0}


def job(folder, **result):
    made = Job(folder=folder, recipe="x", settings=(), held_out=HeldOut(), train=True, allow_code=False, steps=2)
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    if result:
        (folder / RESULT).write_text(json.dumps(PLAIN | result))
    return made


def made(tmp_path):
    """Accuracies of three arms at three seeds; one run of the third failed."""
    found = []
    values = {"one": (0.5, 0.6, 0.7), "two": (0.6, 0.72, 0.78), "three": (0.51, 0.6, None)}
    for arm, accuracies in values.items():
        for seed, accuracy in enumerate(accuracies):
            folder = tmp_path / arm / f"seed-{seed}"
            own = job(folder, **({} if accuracy is None else {"held_out": {"small/accuracy": accuracy}}))
            if accuracy is None:
                (folder / FAILURE).write_text(json.dumps({"reason": "no more memory", "exit_code": 1}))
            found.append((arm, seed, own))
    return found


def test_the_area_is_of_the_curve_of_the_run():
    assert areas(LINES) == {"small/area": 0.5}


def test_costs_by_hand():
    assert cost(LINES, PLAIN) == {
        "seconds/total": 6.0,
        "seconds/sample": 1.5,
        "seconds/update/small": 4.5,
        "tokens/sampled": 0.5 * 100 + 1.0 * 100,
        "tokens/trained/small": 130.0,
        "flops/small/sample": 30.0,
        "flops/small/update": 180.0,
        "updates/small": 4.0,
    }


def test_the_filling_of_a_buffer_is_a_part_of_the_cost():
    result = PLAIN | {"seconds": {"fill": 3.0}, "flops": {"small/sample": 5.0}, "tokens_filled": 70}
    found = cost(LINES, result)
    assert (found["seconds/fill"], found["seconds/total"]) == (3.0, 9.0)
    assert found["tokens/sampled"] == 70
    assert found["flops/small/sample"] == 35.0
    again = [line | {"sampler/tokens_renewed": 30.0, "flops/small/renew": 2.0} for line in LINES if "time/step" in line]
    found = cost(again, result)
    assert (found["tokens/sampled"], found["flops/small/renew"]) == (70 + 30.0 * len(again), 2.0 * len(again))


def test_differences_are_paired_and_corrected(tmp_path):
    summary = summarize(PLAN, made(tmp_path), {}, ["steps"])
    one, two, three = summary.metrics["small/accuracy"]
    assert not one.differences
    to_two, to_three = two.differences["one"], three.differences["one"]
    assert to_two.of.mean == pytest.approx((0.1 + 0.12 + 0.08) / 3)
    assert to_two.p_holm == pytest.approx(2 * to_two.p)
    assert to_three.of.count == 2, "the failed seed is left out of the pair, not counted as 0"
    alone = difference(one.values, three.values, 0.05).p_equivalent
    assert to_three.p_equivalent == pytest.approx(2 * alone), "Holm's over both, of which it is the smaller"
    assert to_three.p_equivalent < to_two.p_equivalent
    assert summary.failures == [("three", 2, "no more memory")]
    assert set(summary.metrics) == {"small/accuracy", "small/area"}


def test_a_run_that_nobody_began_is_no_result(tmp_path):
    found = made(tmp_path)
    (found[-1][2].folder / FAILURE).unlink()
    assert summarize(PLAN, found, {}, []).failures == [("three", 2, "not run")]


def test_amounts_that_differ_are_said(tmp_path):
    found = made(tmp_path)
    file = found[3][2].folder / "run" / "metrics.jsonl"
    file.write_text(file.read_text().replace('"learner/small/tokens": 100.0', '"learner/small/tokens": 490.0'))
    notes = summarize(PLAN, found, {}, []).notes
    assert notes == ["not matched: two: tokens/trained/small is 2.00 times that of one"], "(520 + 130 + 130) / 390"


def test_the_tables_say_it_all(tmp_path):
    summary = summarize(PLAN, made(tmp_path), {}, ["not matched: steps differ"])
    text = markdown(summary)
    assert "- two is better" in text
    assert "| two | 0.7 ± 0.23 |" in text
    assert "| two | one | accuracy | +0.1000 | +0.0503 to +0.1497 |" in text
    assert "no result: three seed 2: no more memory" in text
    assert "not matched: steps differ" in text
    assert "| three | one | accuracy | +0.0050 | -0.0585 to +0.0685 | 0.5000 | 2 |" in text
    headings = [heading for heading, _, _ in tables_of(summary)]
    assert headings == [
        "small: mean and half of the 95 % interval",
        "small: differences",
        "seconds a run, by stage",
        "tokens and optimizer steps a run",
        "model FLOPs a run, by policy and stage",
    ]
    whole = json.loads(document(summary))
    assert whole["metrics"]["small/accuracy"][0]["values"] == {"0": 0.5, "1": 0.6, "2": 0.7}
    assert whole["metrics"]["small/accuracy"][0]["differences"] == {}
    assert whole["metrics"]["small/accuracy"][1]["differences"]["one"]["p_equivalent"] > 0.05


def test_tuning_takes_the_highest_mean_and_no_failed_point(tmp_path):
    plan = Plan(
        name="t",
        seeds=(5,),
        arms={"one": Arm(recipe="grpo", grid={"steps": (1, 2, 3)})},
        tuning=Tuning(seeds=(0, 1), metric="small/accuracy"),
    )
    found = []
    for number, accuracies in enumerate([(0.5, 0.5), (0.9, None), (0.7, 0.6)]):
        for seed, accuracy in enumerate(accuracies):
            own = job(tmp_path / f"{number}-{seed}", **({} if accuracy is None else {"held_out": {"x/y": 1.0}}))
            file = own.folder / "run" / "metrics.jsonl"
            file.write_text(file.read_text().replace("0.75", str(accuracy)))
            found.append(("one", number, own))
    chosen = choose(plan, found)["one"]
    assert (chosen["number"], chosen["point"]) == (2, {"steps": 3})
    assert chosen["scores"] == [[{"steps": 1}, 0.5], [{"steps": 2}, None], [{"steps": 3}, pytest.approx(0.65)]]
    assert choose(plan, found[2:4]) == {}, "an arm without a point left is not chosen for"


def test_differences_are_to_the_arm_that_is_named(tmp_path):
    plan = replace(PLAN, arms={**PLAN.arms, "two": Arm(recipe="grpo", against=("three", "one"))})
    summary = summarize(plan, made(tmp_path), {}, [])
    one, two, three = summary.metrics["small/accuracy"]
    assert not one.differences
    assert not three.differences
    assert list(two.differences) == ["three", "one"]
    assert two.differences["three"].of.mean == pytest.approx((0.09 + 0.12) / 2)
    assert two.differences["three"].of.count == 2
    assert "| two | three | accuracy | +0.1050 |" in markdown(summary)
