"""The first rows of each status that is not ok, and how many there were."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

import tiny
from grpo_kit import Component, Rewards, read_recipe
from grpo_kit.config import find_recipe
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs
from grpo_kit.run.statuses import KEPT, Statuses, example

FILES = Path(__file__).parents[2] / "docs" / "files.md"


def batch(**components):
    """An experience of rows that only have texts and rewards; a component is given as its statuses."""
    count = len(next(iter(components.values())))
    found = tiny.experience(tiny.with_texts(["x"] * count, answer=["7"] * count), {}, [])
    rewards = {
        name: Component(values=torch.tensor([math.nan] * count), statuses=tuple(statuses))
        for name, statuses in components.items()
    }
    return type(found)(rollouts=found.rollouts, signals=found.signals, rewards=Rewards(rewards))


def test_the_first_rows_of_each_component_and_status_are_kept_over_the_run():
    statuses = Statuses()
    first = statuses.add(batch(a=["ok", "timeout", "ok", "error"], b=["ok", "ok", "timeout", "ok"]))
    assert first == [("a", "timeout", 1), ("a", "error", 3), ("b", "timeout", 2)]
    later = statuses.add(batch(a=["timeout"] * 9, b=["ok"] * 9))
    assert later == [("a", "timeout", row) for row in range(KEPT - 1)]
    assert statuses.add(batch(a=["timeout"], b=["timeout"])) == [("b", "timeout", 0)]
    assert statuses.counts["a", "timeout"] == 11


def test_the_summary_has_shares_of_each_components_rows():
    statuses = Statuses()
    assert statuses.summary() is None
    statuses.add(batch(a=["ok"] * 4, b=["ok"] * 4))
    assert statuses.summary() is None
    statuses.add(batch(a=["no_answer"] * 3 + ["timeout"]))
    assert statuses.summary() == "a no_answer 3 (37.5%), a timeout 1 (12.5%)"


def test_a_reward_that_is_missing_is_null():
    rows = batch(a=["timeout", "timeout"])
    assert example(rows, "a", "timeout", 1, "prompt")["reward"] is None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two steps of a run whose completions are cut before their answer, so that no row has one."""
    folder = tmp_path_factory.mktemp("statuses")
    settings = ["data.rows=64", "steps=2", "prompts_per_step=2", "evaluation.questions=2", "evaluation.samples=2"]
    recipe = read_recipe("grpo", settings=[*settings, "sampler.max_new_tokens=3"])
    with (folder / "log").open("w") as log:
        console = Console(file=log, width=200)
        session = start(
            recipe, load_inputs(recipe), find_recipe("grpo").read_text(), out=folder / "out", console=console
        )
        assert session.run() == 0
    return session, (folder / "log").read_text()


def test_a_run_keeps_examples_and_says_how_many_there_were(run):
    session, log = run
    lines = [json.loads(line) for line in (session.folder.path / "statuses.jsonl").read_text().splitlines()]
    assert len(lines) == KEPT
    rows = session.recipe.prompts_per_step * session.recipe.sampler.samples
    assert rows > KEPT
    for line in lines:
        assert (line["step"], line["component"], line["status"]) == (1, "correctness", "no_answer")
        assert (line["reward"], line["stop_reason"]) == (0.0, "length")
        assert line["prompt"].endswith("=")
        assert line["columns"]["answer"].lstrip("-").isdigit()
        assert "boxed" not in line["completion"]
    expected = (
        f"rewards that are not ok: correctness no_answer {2 * rows} (100.0%); the first of each are in statuses.jsonl"
    )
    assert expected in log.splitlines()


def test_every_key_is_described(run):
    session, _ = run
    line = json.loads((session.folder.path / "statuses.jsonl").read_text().splitlines()[0])
    section = FILES.read_text().split("## A line of `statuses.jsonl`")[1].split("\n## ")[0]
    assert list(line) == re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
