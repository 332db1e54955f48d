"""Kinds of other packages: tests/third_party is built, installed and used; broken ones say what is wrong."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from grpo_kit import RecipeError, read_recipe
from grpo_kit.advantages import ADVANTAGES
from grpo_kit.parts import as_table
from grpo_kit.rewards import REWARDS

PACKAGE = Path(__file__).parent / "third_party"
RECIPE = str(PACKAGE / "recipe.toml")
ADVANTAGE = "learners.small.terms.policy.advantage"


@pytest.fixture(scope="session")
def acme(tmp_path_factory):
    """The folder where acme-rewards is installed: built here, without a network."""
    folder = tmp_path_factory.mktemp("site")
    offline = [
        "--isolated",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
        "--quiet",
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *offline, "--target", str(folder), str(PACKAGE)],
        check=True,
        timeout=300,
    )
    return folder


@pytest.fixture
def found(acme, monkeypatch):
    """acme-rewards on the path of this process."""
    monkeypatch.syspath_prepend(acme)


def mistakes_of(*settings, recipe=RECIPE):
    with pytest.raises(RecipeError) as caught:
        read_recipe(recipe, settings=settings)
    return list(caught.value.mistakes)


@pytest.mark.slow
def test_a_recipe_trains_with_the_kinds_of_a_package(acme, tmp_path, monkeypatch):
    command = [str(Path(sys.executable).with_name("grpo-kit")), "run", RECIPE, "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(acme), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)  # no --allow-code
    assert run.returncode == 0, run.stderr
    steps = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    (first,) = [line for line in steps if line["step"] == 1]
    assert [line["step"] for line in steps][-1] == 2
    rows = [row for row in rows if row["step"] == 1]
    assert len(rows) == 16

    keys = [(row["group"], row["completion"][:8]) for row in rows]
    count = Counter(keys)
    novelty = [1 / count[key] for key in keys]
    assert [row["rewards"]["novelty"] for row in rows] == pytest.approx(novelty)
    assert first["reward/small/novelty"] == pytest.approx(sum(novelty) / 16)
    totals = [row["rewards"]["correctness"] + 0.2 * one for row, one in zip(rows, novelty, strict=True)]
    assert first["reward/small/total"] == pytest.approx(sum(totals) / 16)
    assert len(set(totals)) > 2

    def rank(row):
        others = [totals[i] for i in range(16) if rows[i]["group"] == rows[row]["group"]]
        return 0.5 * sum((totals[row] > other) - (totals[row] < other) for other in others) / 7

    lengths = [len(row["tokens"]) for row in rows]
    size = sum(abs(rank(row)) * length for row, length in enumerate(lengths)) / sum(lengths)
    assert first["learner/small/policy/advantage_abs"] == pytest.approx(size)

    monkeypatch.syspath_prepend(acme)
    assert as_table(read_recipe(str(tmp_path / "out" / "recipe.resolved.toml"))) == as_table(read_recipe(RECIPE))


def test_without_the_package_its_kinds_are_named():
    rewards, advantage = mistakes_of()
    assert rewards.startswith("rewards.novelty: unknown kind 'novelty'. Known: correctness, ")
    assert advantage.startswith(f"{ADVANTAGE}: unknown kind 'rank'. Known: ema_baseline, ")


@pytest.mark.usefixtures("found")
def test_the_kinds_of_a_package_are_parts_like_any_other(tmp_path):
    recipe = read_recipe(RECIPE)
    novelty, rank = recipe.rewards["novelty"], recipe.learners["small"].terms["policy"].advantage
    assert as_table(novelty) == {"kind": "novelty", "characters": 8}
    assert REWARDS.read(as_table(novelty)) == novelty
    assert ADVANTAGES.read(as_table(rank)) == rank
    assert "novelty" in REWARDS.kinds
    assert "rank" in ADVANTAGES.kinds
    rewards, groups = torch.tensor([1.0, 0.0, 0.0, torch.nan, 3.0]), torch.tensor([0, 0, 0, 0, 1])
    assert rank(rewards, groups).tolist() == [0.5, -0.25, -0.25, 0.0, 0.0]


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize(
    ("setting", "mistake"),
    [
        ("rewards.novelty.charcters=3", "unknown key 'charcters'. Did you mean 'characters'? Known: characters."),
        ("rewards.novelty.characters=0", "should be greater than or equal to 1, got 0 (int)."),
        ("rewards.novelty.characters=true", "should be a valid integer, got True (bool)."),
        (f"{ADVANTAGE}.span=-1", "should be greater than 0, got -1 (int)."),
        (f"{ADVANTAGE}.span=inf", "should be a finite number, got inf (float)."),
    ],
)
def test_wrong_settings_are_the_same_mistakes(setting, mistake):
    assert mistakes_of(setting) == [f"{setting.partition('=')[0]}: {mistake}"]


@pytest.mark.usefixtures("found")
def test_a_kind_of_a_package_is_guessed_and_listed():
    (mistake,) = mistakes_of(f"{ADVANTAGE}={{kind='rnak'}}")
    assert mistake.startswith(f"{ADVANTAGE}: unknown kind 'rnak'. Did you mean 'rank'? Known: ema_baseline, ")
    assert ", rank, " in mistake


@pytest.mark.usefixtures("found")
def test_what_a_part_says_of_itself_is_heard():
    (mistake,) = mistakes_of("sampler.samples=1", "rewards.novelty.characters=1")
    assert mistake.startswith(f"{ADVANTAGE}: compares the rows of a group, and sampler.samples = 1")


PARTS = """
from pydantic.dataclasses import dataclass
from grpo_kit.parts import part

def centered(rewards, groups):
    return rewards - rewards.mean()

@part("other")
class Misnamed:
    def __call__(self, rewards, groups):
        return rewards

@part("callless")
class Callless:
    pass

class Plain:
    def __call__(self, rewards, groups):
        return rewards

number = 3
"""
BROKEN = {
    "gone": (
        "gone_module:Part",
        "cannot be loaded (gone_module:Part: ModuleNotFoundError: No module named 'gone_module'). {end}",
    ),
    "absent": (
        "{module}:Absent",
        "cannot be loaded ({module}:Absent: AttributeError: module '{module}' has no attribute 'Absent'). {end}",
    ),
    "leaves": ("{module}_exits:Part", "cannot be loaded ({module}_exits:Part: SystemExit: 3). {end}"),
    "misnamed": (
        "{module}:Misnamed",
        "calls itself 'other'. Give the entry point and @part of {module}:Misnamed one name.",
    ),
    "callless": (
        "{module}:Callless",
        "is no part of grpo_kit.advantages: {module}:Callless has no __call__; see Advantage there.",
    ),
    "plain": ("{module}:Plain", "is no part: put @part('plain') over the class {module}:Plain."),
    "number": ("{module}:number", "is no part: {module}:number is of type int, neither class nor function."),
}
"""Kind: what its entry point names, and the mistake."""


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Register advantages under the name of a package that is only its metadata and a module."""

    def registered(package, **entries):
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(PARTS)
        (tmp_path / f"{module}_exits.py").write_text("raise SystemExit(3)")
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{kind} = {value.format(module=module)}\n" for kind, value in entries.items()]
        (info / "entry_points.txt").write_text("[grpo_kit.advantages]\n" + "".join(lines))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / package)])  # a path not seen before
        return module

    return registered


@pytest.mark.parametrize("kind", BROKEN)
def test_an_entry_point_that_gives_no_part_is_a_mistake_of_the_recipe_that_uses_it(kind, register):
    value, problem = BROKEN[kind]
    module = register(f"broken-{kind}", **{kind: value})
    problem = problem.format(module=module, end="Mend or uninstall the package.")
    assert mistakes_of(f"{ADVANTAGE}={{kind='{kind}'}}", recipe="grpo") == [
        f"{ADVANTAGE}: kind '{kind}' of broken-{kind} 1.0 {problem}"
    ]
    read_recipe("grpo")  # which does not use it


def test_a_function_behind_an_entry_point_is_a_kind_without_settings(register):
    module = register("plain-function", centered="{module}:centered")
    setting = f"{ADVANTAGE}={{kind='centered'}}"
    recipe = read_recipe("grpo", settings=[setting])
    part = recipe.learners["small"].terms["policy"].advantage
    assert part(torch.tensor([1.0, 0.0]), torch.tensor([0, 0])).tolist() == [0.5, -0.5]
    assert part.function.__module__ == module
    assert as_table(part) == {"kind": "centered"}
    assert read_recipe("grpo", settings=[setting]) == recipe
    assert mistakes_of(f"{ADVANTAGE}={{kind='centered', scale=2}}", recipe="grpo") == [
        f"{ADVANTAGE}: kind 'centered' is a function and has no settings; remove scale."
    ]


def test_a_kind_that_is_built_in_cannot_be_replaced(register):
    register("greedy-one", group_mean="{module}:centered")
    assert mistakes_of(recipe="grpo") == [
        f"{ADVANTAGE}: kind 'group_mean' is given by grpo_kit itself and by greedy_one:centered of greedy-one 1.0. "
        "Rename it in the package's entry points, or uninstall the package."
    ]
    read_recipe("grpo", settings=[f"{ADVANTAGE}={{kind='leave_one_out'}}"])


def test_two_packages_cannot_give_one_kind(register):
    register("first-one", centered="{module}:centered")
    register("second-one", centered="{module}:centered")
    (mistake,) = mistakes_of(f"{ADVANTAGE}={{kind='centered'}}", recipe="grpo")
    assert mistake.startswith(f"{ADVANTAGE}: kind 'centered' is given by ")
    assert "first_one:centered of first-one 1.0" in mistake
    assert "second_one:centered of second-one 1.0" in mistake
