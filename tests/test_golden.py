"""A short whole run of every recipe against its stored numbers. Rewrite them by `make golden`; review the diff."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from rich.console import Console

from grpo_kit import Reinforce, Replay, read_recipe, train
from grpo_kit.run.buffering import fill_buffer
from grpo_kit.run.interrupt import Interrupt
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream
from grpo_kit.shipped import shipped_recipes

sys.path.insert(0, str(Path(__file__).parent))  # when run as a program

import tolerances

GOLDEN = Path(__file__).parent / "golden"
OF_ONES_OWN = {"gsm8k", "semi_opd_real", "grpo_qwen", "codistill_qwen", "opd_qwen"}
"""They need models that are not shipped."""
RECIPES = tuple(sorted(set(shipped_recipes()) - OF_ONES_OWN))
SETTINGS = ("prompts_per_step=4", "data.rows=64", "evaluation.questions=1")
STEPS = 3
CLOCK = "time/"
"""Metrics that no two runs share."""


def of_learner(name, learner):
    """A rate that moves weights in three steps; several updates a batch where a clip would see no ratio but 1."""
    settings = {"optimizer.warmup_steps": 0, "optimizer.lr": 1e-3}
    has_ratio = any(
        not isinstance(getattr(term, "surrogate", Reinforce()), Reinforce) for term in learner.terms.values()
    )
    if has_ratio and learner.mini_batches == 1:
        settings["mini_batches"] = 4
    return [f"learners.{name}.{key}={value}" for key, value in settings.items()]


def short_run(name):
    """The metrics of the first steps of a recipe, six digits each."""
    learners = read_recipe(name).learners.items()
    settings = [setting for key, learner in learners for setting in of_learner(key, learner)]
    recipe = read_recipe(name, settings=[*SETTINGS, *settings, f"steps={STEPS}"])
    with TemporaryDirectory() as folder:
        if isinstance(recipe.sampler, Replay):
            recipe = replace(recipe, sampler=replace(recipe.sampler, buffer=folder))
        policies, inputs = load_policies(recipe), load_inputs(recipe)
        if isinstance(recipe.sampler, Replay):
            fill_buffer(recipe, inputs, policies, console=Console(quiet=True), interrupt=Interrupt())
        reports = train(recipe, policies, prompt_stream(recipe, inputs))
        return [
            {key: float(f"{value:.6g}") for key, value in report.metrics.items() if not key.startswith(CLOCK)}
            for report in reports
        ]


@pytest.mark.parametrize("name", RECIPES)
def test_a_short_run_gives_its_stored_numbers(name):
    stored = json.loads((GOLDEN / f"{name}.json").read_text())
    found = short_run(name)
    assert len(found) == len(stored) == STEPS
    for line, golden in zip(found, stored, strict=True):
        assert line.keys() == golden.keys()
        off = {
            key: (value, golden[key])
            for key, value in line.items()
            if value != pytest.approx(golden[key], nan_ok=True, **tolerances.GOLDEN)
        }
        assert not off, f"step {int(line['step'])}: {off}"


def test_stored_numbers_belong_to_a_recipe():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(RECIPES)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for recipe_name in RECIPES:
        text = json.dumps(short_run(recipe_name), indent=1) + "\n"
        (GOLDEN / f"{recipe_name}.json").write_text(text)
        print(f"tests/golden/{recipe_name}.json written")
