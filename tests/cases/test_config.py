"""Faults of other trainers' configuration, by the id of the report: every key and every table, not only those named."""

import tomllib
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
import tomli_w

from grpo_kit import RecipeError, read_recipe
from grpo_kit.advantages import ADVANTAGES
from grpo_kit.commands.snippet import example
from grpo_kit.config import find_recipe
from grpo_kit.explain.options import toml
from grpo_kit.parts import as_table

RECIPES = {path.stem: path for path in sorted(Path(str(files("grpo_kit"))).glob("recipes/*.toml"))}
ADVANTAGE = "learners.small.terms.policy.advantage"


def read(table, tmp_path, *settings):
    """The recipe of a table, through a file."""
    file = tmp_path / "recipe.toml"
    file.write_text(table if isinstance(table, str) else tomli_w.dumps(table))
    return read_recipe(str(file), settings=settings)


def mistakes_of(table, tmp_path, *settings):
    with pytest.raises(RecipeError) as caught:
        read(table, tmp_path, *settings)
    return list(caught.value.mistakes)


def resolved(name):
    """A shipped recipe with every default written out."""
    return deepcopy(_resolved(name))


@cache
def _resolved(name):
    return as_table(read_recipe(name))


def walk(table, place=()):
    """Every key of a recipe and of its tables: place and value."""
    for key, value in table.items():
        yield (*place, key), value
        if isinstance(value, dict):
            yield from walk(value, (*place, key))


def parts(value, place=()):
    """Every table of a recipe that has keys of its own, not names that the user gives."""
    if is_dataclass(value):
        yield place, value
        for field in fields(value):
            yield from parts(getattr(value, field.name), (*place, field.name))
    elif isinstance(value, dict) or hasattr(value, "items"):
        for name, item in value.items():
            yield from parts(item, (*place, name))


def at(table, place):
    for key in place:
        table = table[key]
    return table


@pytest.mark.parametrize("name", RECIPES)
def test_b134_an_unknown_key_is_an_error_in_every_table(name, tmp_path):
    places = [place for place, _ in parts(read_recipe(name))]
    assert len(places) > 8
    for place in places:
        table = resolved(name)
        known = sorted(set(at(table, place)) - {"kind"})
        at(table, place)["temprature"] = 0.7
        (mistake,) = mistakes_of(table, tmp_path)
        assert mistake.startswith(f"{'.'.join((*place, 'temprature'))}: unknown key 'temprature'.")
        assert ("Did you mean 'temperature'?" in mistake) == ("temperature" in known)
        assert all(key in mistake for key in known)
        assert known or mistake.endswith("Beside 'kind' it has none.")


OTHERS_SLOW = [pytest.param(name, marks=[] if name == "codistill" else pytest.mark.slow) for name in RECIPES]


@pytest.mark.parametrize("name", OTHERS_SLOW)
def test_b134_a_key_under_the_wrong_table_is_an_error(name, tmp_path):
    """Every value of a recipe in turn is moved one table up, wherever that has no key of the name itself."""
    moved = 0
    for place, value in walk(resolved(name)):
        table, above, key = resolved(name), place[:-2], place[-1]
        if len(place) < 2 or isinstance(value, dict) or key in at(table, above) or key == "name":
            continue
        at(table, above)[key] = at(table, place[:-1]).pop(key)
        wrong = ".".join((*above, key))
        assert any(line.startswith((f"{wrong}: ", f"{wrong}.")) for line in mistakes_of(table, tmp_path)), place
        moved += 1
    assert moved > 20


@pytest.mark.parametrize("text", ["", "\n", "# only a remark\n", "\ufeff"], ids=repr)
def test_b135_an_empty_file_is_one_clear_error(text, tmp_path):
    assert mistakes_of(text, tmp_path) == [
        "there is nothing in the file. Copy a shipped recipe to start from: grpo-kit init."
    ]


@pytest.mark.parametrize("text", ["[1, 2]\n", '[{"steps": 3}]\n', "- steps: 3\n", '{"steps": 3}\n', "steps: 3\n"])
def test_b135_a_list_at_the_root_or_another_format_is_one_clear_error(text, tmp_path):
    (mistake,) = mistakes_of(text, tmp_path)
    assert mistake.startswith("not TOML: ")
    assert "line 1" in mistake


@pytest.mark.parametrize("key", ["policies", "learners", "rewards", "data", "sampler", "evaluation"])
def test_b135_a_list_of_tables_is_no_table(key, tmp_path):
    table = resolved("codistill")
    table[key] = [table[key]]
    (mistake,) = mistakes_of(table, tmp_path)
    assert mistake.startswith(f"{key}: ")
    assert " got [{" in mistake


def test_b135_a_file_that_is_no_text_or_no_file_is_one_clear_error(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_bytes(b"steps = 3\nname = '\xff'\n")
    with pytest.raises(RecipeError, match=r"1 mistake\n  not UTF-8 text \(byte 19\). Save the file as UTF-8.$"):
        read_recipe(str(file))
    file.write_text("steps = 3", encoding="utf-16")
    with pytest.raises(RecipeError, match=r"1 mistake\n  not UTF-8 text \(byte 1\). Save the file as UTF-8.$"):
        read_recipe(str(file))
    with pytest.raises(RecipeError, match=r"1 mistake\n  is a folder. Give a file: recipe.toml.$"):
        read_recipe(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError, match=r"1 mistake\n  is a folder. Give a file: there is no .toml file in it.$"):
        read_recipe(str(tmp_path / "empty"))
    with pytest.raises(RecipeError, match=r"1 mistake\n  cannot be read: File name too long.$"):
        read_recipe("x" * 5000)


def test_b135_a_key_given_twice_is_one_clear_error(tmp_path):
    (mistake,) = mistakes_of("steps = 3\nsteps = 4\n", tmp_path)
    assert mistake.startswith("not TOML: Cannot overwrite a value (at ")
    (mistake,) = mistakes_of("[data]\nkind = 'arithmetic'\n[data]\nsplit = 'eval'\n", tmp_path)
    assert mistake.startswith("not TOML: Cannot declare ('data',) twice (at line 3")


@pytest.mark.parametrize("name", ["grpo.yaml", "recipes/grpo.v2", "grpo.toml.bak"])
def test_b139_no_other_file_is_read_for_one_that_is_not_there(name):
    with pytest.raises(RecipeError, match="no such file"):
        find_recipe(name)


def switches():
    found = {
        (place[-1], name, ".".join(place))
        for name in RECIPES
        for place, value in walk(resolved(name))
        if isinstance(value, bool) and "chat_options" not in place  # a chat template's own, of any type
    }
    return {key: (name, place) for key, name, place in sorted(found)}


SWITCHES = switches()
"""Every key of a recipe that is true or false: a shipped recipe that has it, and where."""
ALONGSIDE = {
    "stream": ["data.rows=10", "evaluation.data.rows=20"],
    "importance": ["learners.small.terms.teacher.divergence={kind='sampled_kl', estimator='k3'}"],
}
"""Settings without which a switch cannot be turned on."""


def test_there_are_switches():
    assert SWITCHES.keys() >= {"mask_truncated", "trust_remote_code"}


@pytest.mark.parametrize("key", [key for key in SWITCHES if key != "greedy"])  # the advantage decides that one
@pytest.mark.parametrize("in_file", [True, False])
def test_b137_b138_b139_what_is_said_last_of_a_switch_holds(key, in_file, tmp_path):
    """B139: the file's value holds; B137, B138: `false` on the command line is False, whatever the file says."""
    (name, place), more = SWITCHES[key], ALONGSIDE.get(key, [])
    keys, table = place.split("."), resolved(name)
    at(table, keys[:-1])[keys[-1]] = in_file
    assert value_of(table, tmp_path, keys, *more) is in_file
    assert value_of(table, tmp_path, keys, *more, f"{place}=true") is True
    assert value_of(table, tmp_path, keys, *more, f"{place}=false") is False


def value_of(table, tmp_path, keys, *settings):
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(table))
    return at(as_table(read_recipe(str(tmp_path / "recipe.toml"), settings=settings, allow_code=True)), keys)


@pytest.mark.parametrize("key", SWITCHES)
@pytest.mark.parametrize("given", ["maybe", "False", "no", "0", "1", '"false"', "''", ""])
def test_b137_anything_else_said_of_a_switch_is_an_error(key, given):
    name, place = SWITCHES[key]
    with pytest.raises(RecipeError) as caught:
        read_recipe(name, settings=[f"{place}={given}"])
    (mistake,) = caught.value.mistakes
    assert mistake.startswith(f"{place}: should be true or false, got ")


OTHER = {
    "steps": 7,
    "seed": 3,
    "max_prompt_tokens": 77,
    "log_samples": 0,
    "policies.small.dtype": "bfloat16",
    "policies.small.micro_batch_tokens": 99,
    "sampler.temperature": 0.5,
    "sampler.samples": 5,
    "learners.small.epochs": 3,
    "learners.small.mini_batches": 2,
    "learners.small.optimizer.lr": 1.0,
    "learners.small.optimizer.weight_decay": 0.1,
    "learners.small.optimizer.betas": [0.8, 0.9],
    "learners.small.rewards": {"correctness": -1.0},
    f"{ADVANTAGE}.scale": "batch",
    "learners.small.terms.policy.surrogate.low": 0.0,
    "data.seed": 5,
    "evaluation.samples": 1,
}


@pytest.mark.parametrize("place", OTHER)
def test_b138_b139_the_file_goes_before_the_default_and_the_command_line_before_the_file(place, tmp_path):
    keys, table = place.split("."), resolved("grpo")
    default = at(table, keys)
    assert default != OTHER[place]
    at(table, keys[:-1])[keys[-1]] = OTHER[place]
    assert value_of(table, tmp_path, keys) == OTHER[place]
    # As TOML in one line: a table as `{ a = 1 }`, anything else as `x = ...` writes it.
    text = tomli_w.dumps({"x": [default] if isinstance(default, dict) else default}).partition("=")[2]
    text = " ".join(text.split())
    text = text.removeprefix("[").removesuffix("]").strip().removesuffix(",") if isinstance(default, dict) else text
    assert value_of(table, tmp_path, keys, f"{place}={text}") == default


@pytest.mark.parametrize("name", RECIPES)
def test_b139_every_value_of_a_shipped_recipe_is_the_one_in_its_file(name):
    table = resolved(name)
    for place, value in walk(tomllib.loads(RECIPES[name].read_text())):
        if not isinstance(value, dict):
            assert_holds(at(table, place), value)


def assert_holds(found, given):
    """What is given is there; tables in a list may have more, their defaults."""
    if isinstance(given, list):
        assert len(found) == len(given)
        for one, own in zip(found, given, strict=True):
            assert_holds(one, own)
    elif isinstance(given, dict):
        for key, own in given.items():
            assert_holds(found[key], own)
    else:
        assert found == given


COMPARING = {kind: example(ADVANTAGES, kind) for kind in ADVANTAGES.built_in}


@pytest.mark.parametrize("kind", [kind for kind, part in COMPARING.items() if getattr(part, "compares_rows", False)])
def test_b141_groups_of_one_are_refused_with_the_number_that_is_needed(kind):
    advantage = f"{ADVANTAGE}={toml(as_table(COMPARING[kind]))}"
    with pytest.raises(RecipeError) as caught:
        read_recipe("grpo", settings=["sampler.samples=1", "prompts_per_step=1", advantage])
    assert caught.value.mistakes == (
        f"{ADVANTAGE}: compares the rows of a group, and sampler.samples = 1 gives groups of one: every advantage "
        "would be 0. Set sampler.samples to 2 or more.",
    )
    read_recipe("grpo", settings=["sampler.samples=2", "prompts_per_step=1", advantage])
