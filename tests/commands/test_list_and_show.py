"""`list` and `show`: every kind, its keys, and a table that a recipe takes."""

import importlib
import pkgutil
import tomllib
from copy import deepcopy
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import grpo_kit
from grpo_kit.cli import app
from grpo_kit.commands.attributes import split_docstring
from grpo_kit.commands.catalog import catalog
from grpo_kit.commands.describe import describe
from grpo_kit.commands.keys import keys_of
from grpo_kit.commands.snippet import PLACES, example, snippet
from grpo_kit.config import parse_recipe
from grpo_kit.parts import Role, part
from grpo_kit.roles import ROLES
from grpo_kit.shipped import shipped_recipes

KINDS = [(role.name, kind) for role in ROLES.values() for kind in role.built_in]
by_kind = pytest.mark.parametrize(("role", "kind"), KINDS, ids=[f"{role}.{kind}" for role, kind in KINDS])


def grpo_kit_says(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_all_roles_are_listed():
    modules = [info.name for info in pkgutil.iter_modules(grpo_kit.__path__) if info.ispkg]
    found = {
        value.name
        for name in modules
        for value in vars(importlib.import_module(f"grpo_kit.{name}")).values()
        if isinstance(value, Role)
    }
    assert found == set(ROLES) == set(PLACES)


def test_the_list_has_every_kind_with_a_line_and_every_recipe():
    listed = catalog(None)
    for role in ROLES.values():
        assert f"\n{role.name}: " in f"\n{listed}"
        for kind in role.built_in:
            (line,) = [line for line in catalog(role.name).splitlines() if line.split()[0] == kind]
            assert len(line.split()) > 3
            assert line in listed
    for name in shipped_recipes():
        assert f"\n  {name} " in listed
    assert "\\frac" not in listed
    assert "$" not in listed


def test_a_role_goes_by_its_singular_too():
    assert catalog("advantage") == catalog("advantages")
    assert catalog("recipes").splitlines()[1].split()[0] == min(shipped_recipes())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "advantges"], "there is no role 'advantges'. Did you mean 'advantages'? Known: data, "),
        (["show", "advantages.grop_mean"], "there is no kind 'grop_mean' of advantages. Did you mean 'group_mean'? "),
        (["show", "grup_mean"], "there is no kind 'grup_mean'. Did you mean 'group_mean'? Write ROLE.KIND; "),
        (["show", "rewards"], "'rewards' is a role. Give one of its kinds, for example rewards.correctness."),
    ],
)
def test_a_name_that_nobody_knows(arguments, said):
    result = grpo_kit_says(*arguments)
    assert result.exit_code == 1
    assert result.output.startswith(said)
    assert len(result.output.splitlines()) == 1


@part("median")
class Median:
    """Center rewards on their group's median.

    Attributes:
        eps: added.
    """

    eps: float = 0.5

    def __call__(self, rewards, groups):
        return rewards


@pytest.fixture
def foreign(monkeypatch):
    """An installed package that adds an advantage."""
    entry = EntryPoint(name="median", value="my_package:Median", group="grpo_kit.advantages")
    entry = entry._for(SimpleNamespace(name="my-package", version="1.2"))
    monkeypatch.setattr(EntryPoint, "load", lambda self: Median)
    for module in ("grpo_kit.parts", "grpo_kit.commands.catalog", "grpo_kit.commands.describe"):
        monkeypatch.setattr(f"{module}.installed", lambda role: {"median": [entry]} if role == "advantages" else {})


def test_a_kind_of_another_package_is_marked(foreign):
    listed = " ".join(catalog("advantages").split())
    assert "median Center rewards on their group's median. (from my-package 1.2)" in listed
    page = describe("advantages.median")
    assert page.startswith("advantages.median: ")
    assert ", from my-package 1.2\n" in page
    assert "  eps: number; 0.5 by default\n      added.\n" in page


@by_kind
def test_every_key_is_described_with_type_and_default(role, kind):
    page = describe(f"{role}.{kind}")
    for key in keys_of(ROLES[role].built_in[kind]):
        assert f"\n  {key.name}: {key.type}; " in page
        assert key.about, f"{role}.{kind}: the docstring has no entry for {key.name} under Attributes"
        assert "typing" not in key.type
        assert "Annotated" not in key.type


def test_ranges_choices_and_formula_of_a_part():
    page = describe("advantages.group_mean")
    assert '  scale: "none" or "group" or "batch"; "none" by default\n' in page
    assert "  eps: number, at least 0; 1e-06 by default\n" in page
    assert "Formula, with the settings below: r_i - mean(r_g)\n" in page
    page = describe("terms.policy_gradient")
    assert "  advantage: a part of advantages; must be given\n" in page
    assert "  correction: a part of corrections; off by default\n" in page
    assert "  low: number, at least 0, below 1; 0.2 by default\n" in describe("clip")
    assert "  stop: list of text, length at least 1; [] by default\n" in describe("samplers.transformers")


@by_kind
def test_the_snippet_is_read_as_the_kind(role, kind):
    part = ROLES[role].built_in[kind]
    assert isinstance(example(ROLES[role], kind), part)


@by_kind
def test_the_snippet_fits_into_a_recipe(role, kind):
    recipe = tomllib.loads(shipped_recipes()["codistill"].read_text(encoding="utf-8"))
    recipe["learners"]["small"]["terms"]["kl"] = {"kind": "divergence", "to": "large", "weight": 0.1}
    recipe["learners"]["small"]["terms"]["kl"]["divergence"] = {"kind": "sampled_kl"}
    recipe["learners"]["small"]["terms"]["policy"]["surrogate"] = {"kind": "clip"}
    pasted = tomllib.loads(snippet(ROLES[role], kind))
    place = PLACES[role].format(kind=kind).split(".")
    here, there = recipe, pasted
    for key in place[:-1]:
        here, there = here[key], there[key]
    here[place[-1]] = deepcopy(there[place[-1]])
    if role == "engines":
        recipe["sampler"]["kind"] = "vllm"
    if kind == "reinforce":
        recipe["learners"]["small"]["terms"]["policy"].pop("ratio", None)
    read, mistakes, _ = parse_recipe(recipe)
    assert mistakes == []
    value = read
    for key in place:
        value = value[key] if isinstance(value, dict) else getattr(value, key)
    assert value.kind == kind


def test_the_commented_defaults_of_a_snippet_are_valid_too():
    text = snippet(ROLES["advantages"], "group_mean").replace("# ", "").replace('"none"', '"group"')
    table = tomllib.loads(text)["learners"]["small"]["terms"]["policy"]["advantage"]
    assert ROLES["advantages"].read(table).scale == "group"


def test_attributes_are_read_over_their_lines():
    prose, said = split_docstring(ROLES["advantages"].built_in["group_mean"])
    assert prose.startswith("Center rewards on their group")
    assert "Example" not in prose
    assert said["scale"].endswith("weighs easy and hard questions up.")
