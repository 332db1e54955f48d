"""The plans of examples/experiments: read as they are, and run in miniature."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

from grpo_kit.cli import app
from grpo_kit.compare.reading import read_plan
from grpo_kit.compare.ready import make_ready

FOLDER = Path(__file__).parents[2] / "examples" / "experiments"
PLANS = sorted(FOLDER.glob("*.toml"))
SHORT = [
    "steps=20", "prompts_per_step=2", "data.rows=40", "evaluation.questions=8", "evaluation.samples=2",
    "evaluation.every=10", "log_samples=1",
]  # fmt: skip
ARMS = 3  # of a plan, the first ones


def name_of(path):
    return path.stem


def with_shipped_models(path, settings):
    """The plan as tables, with the tiny pair for models that have to be made first, settings, and few questions."""
    made = re.compile(r"runs/(pairs/pair-\{seed\}/(\w+)|teachers/\w+)")
    raw = tomllib.loads(made.sub(lambda found: f"tiny:{found[2] or 'large'}", path.read_text()))
    for arm in raw["arms"].values():
        if (path.parent / arm["recipe"]).is_file():
            arm["recipe"] = str(path.parent / arm["recipe"])
    return raw | {"set": [*raw["set"], *settings], "held_out": {"questions": 12, "samples": 2}}


def written(raw, tmp_path):
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(raw))
    return str(tmp_path / "plan.toml")


@pytest.mark.parametrize("path", PLANS, ids=name_of)
def test_a_plan_says_what_is_expected_and_gives_every_arm_the_same_budget(path, tmp_path):
    plan = read_plan(str(path))
    assert plan.hypotheses
    few = with_shipped_models(path, ["data.rows=64", "evaluation.questions=8"])
    ready = make_ready(read_plan(written(few, tmp_path)), allow_code=False)
    budgets = {(own.steps, own.prompts_per_step, own.data) for own in ready.recipes.values()}
    assert len(budgets) == 1
    assert plan.held_out.questions >= (16 if plan.name == "cost" else 2000)
    tuned = {name: len(arm.points) for name, arm in plan.tuned.items() if arm.train}
    assert len(set(tuned.values())) <= 1, "as many learning rates for every arm"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "large", "distillation"])
def test_a_plan_runs_in_miniature(name, tmp_path):
    """Two seeds and twenty steps of the first arms, on the shipped pair."""
    out, raw = tmp_path / "out", with_shipped_models(FOLDER / f"{name}.toml", SHORT)
    del raw["tuning"]
    raw |= {"seeds": raw["seeds"][:2], "arms": dict(list(raw["arms"].items())[:ARMS])}
    for arm in raw["arms"].values():
        arm["grid"] = {key: values[:1] for key, values in arm["grid"].items()}
        arm.pop("against", None)
    command = ["compare", "--plan", written(raw, tmp_path), "--workers", "2", "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    summary = json.loads((out / "summary.json").read_text())
    assert not summary["failures"]
    rows = {row["arm"]: row for rows in summary["metrics"].values() for row in rows}
    assert len(rows) == ARMS
    assert all(len(row["values"]) == 2 for row in rows.values())
    assert any(row["differences"] for row in rows.values())
