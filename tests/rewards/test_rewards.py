"""What rewards of all kinds have in common: a value and a status a row, weighted sums, metrics of each."""

import math
import re
import tomllib
from pathlib import Path

import pytest
import torch

import tiny
from grpo_kit import (
    Component,
    Correctness,
    CosineLength,
    EqualRows,
    Experience,
    NumberMatch,
    PolicyGradient,
    Python,
    Repetition,
    Rewards,
    Signals,
    SoftOverlong,
    diagnostics,
)
from grpo_kit.config import parse_recipe
from grpo_kit.formula import plain
from grpo_kit.learner import Learner
from grpo_kit.rewards import REWARDS
from laws.row import CLIPPED
from laws.splits import OPTIMIZER

NO_SIGNALS = Signals({})
ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", (ROOT / "docs/roles/rewards.md").read_text(), re.MULTILINE | re.DOTALL)


def test_correctness_grades_every_row_with_its_status():
    texts = [r"\boxed{7}", r"\boxed{8}", "7", r"\boxed{\frac{14}{2}}"]
    component = Correctness(column="gold")(tiny.with_texts(texts, gold=["7"] * 4), NO_SIGNALS)
    assert component.values.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert component.statuses == ("ok", "ok", "no_answer", "ok")
    assert Correctness(column="gold").columns == ("gold",)


def component(values, *statuses):
    return Component(values=torch.tensor(values), statuses=statuses)


def test_a_sum_is_missing_where_a_part_is_and_leaves_out_what_abstains():
    rewards = Rewards(
        {
            "math": component([1.0, math.nan, math.nan, math.nan, 0.5], "ok", "none", "timeout", "none", "none"),
            "code": component([1.0, 1.0, 1.0, math.nan, 2.0], "ok", "ok", "ok", "none", "ok"),
        }
    )
    total = rewards.total({"math": 2.0, "code": 0.5})
    assert total[[0, 1, 4]].tolist() == [2.5, 0.5, 2.0]
    assert total[[2, 3]].isnan().all()


def test_two_functions_for_two_tasks_train_together_as_in_trl():
    """Each says None to the other's rows; with NaN in the sum no row at all would have a reward."""
    rows = tiny.with_texts(["1", "2", "a", "b"], task=["math", "math", "code", "code"])

    def scorer(own):
        return Python(
            function=lambda completions, task, **columns: [
                float(text in "1a") if kind == own else None for text, kind in zip(completions, task, strict=True)
            ]
        )

    rewards = Rewards({own: scorer(own)(rows, NO_SIGNALS) for own in ("math", "code")})
    assert rewards.total({"math": 1.0, "code": 1.0}).tolist() == [1.0, 0.0, 1.0, 0.0]


def test_every_component_is_logged_a_learner_and_b054_its_mean_leaves_abstentions_out():
    rows = tiny.with_texts([r"\boxed{7}", "7", r"\boxed{8}"], answer=["7", "7", "?"])
    own = component([0.5, math.nan, 0.7], "ok", "none", "ok")
    rewards = Rewards({"match": NumberMatch()(rows, NO_SIGNALS), "own": own})
    learner = Learner(
        rewards={"match": 1.0, "own": 0.1},
        terms={"policy": PolicyGradient(**CLIPPED)},
        weighting=EqualRows(),
        optimizer=OPTIMIZER,
    )
    experience = Experience(rollouts=rows, signals=NO_SIGNALS, rewards=rewards)
    report = diagnostics.of_rewards("small", learner, experience, torch.ones(3, dtype=torch.bool))
    assert report["reward/small/own"] == pytest.approx(0.6)
    assert report["reward/small/own_none"] == pytest.approx(1 / 3)
    assert report["reward/small/match"] == pytest.approx(0.5)
    assert report["reward/small/match_no_answer"] == pytest.approx(1 / 3)
    assert report["reward/small/match_unparsed_gold"] == pytest.approx(1 / 3)
    assert report["reward/small/total"] == pytest.approx((1.05 + 0.0) / 2)
    assert report["reward/small/missing"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("kind", REWARDS.built_in)
def test_every_reward_says_which_columns_it_reads(kind):
    part = REWARDS.built_in[kind]
    reads_columns = kind in ("correctness", "number_match", "string_match", "reasoning_gym", "cosine_length", "python")
    assert hasattr(part, "columns") == reads_columns
    assert hasattr(part, "row_faults") == (reads_columns and kind != "python")


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_of_the_page_are_recipes(example):
    recipe, table = tomllib.loads((ROOT / "src/grpo_kit/recipes/grpo.toml").read_text()), tomllib.loads(example)
    own = table.pop("learners", {"small": {"rewards": dict.fromkeys(table["rewards"], 1.0)}})
    recipe["learners"]["small"] |= own["small"]
    recipe |= table
    del recipe["evaluation"]
    assert parse_recipe(recipe)[1] == []


def test_the_page_has_an_example_of_each_kind_that_is_not_obvious():
    named = " ".join(EXAMPLES)
    assert all(f'"{kind}"' in named for kind in REWARDS.built_in if kind not in ("string_match", "on_policy_kd"))


@pytest.mark.parametrize(
    ("reward", "formula"),
    [
        (SoftOverlong(max_length=512, cache=128), "-min(1, max(0, (|o_i| - 384) / 128))"),
        (Repetition(max_penalty=0.5), "-0.5 · (1 - distinct / all)"),
        (
            CosineLength(max_length=9, grading=NumberMatch()),
            "0.5 + 0.25 · (1 + cos(π|o_i| / 9)) if right, -0.5 - 0.25 · (1 + cos(π|o_i| / 9)) if wrong, "
            "-1 from |o_i| = 9",
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_formulas_with_their_settings(reward, formula):
    assert plain(reward.formula) == formula
