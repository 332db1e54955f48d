"""The table law x part is complete, and every entry of it is true."""

from importlib import import_module
from inspect import isfunction
from pkgutil import walk_packages

import pytest

import grpo_kit
from grpo_kit.parts import Role
from laws import signatures
from laws.check import breaks, holds
from laws.table import ELSEWHERE, NOT_ABOUT, NUMBERS, PARTS, ROLES, TABLE

pytestmark = pytest.mark.usefixtures("float64")
HOLDS = [pytest.param(row, kind, id=f"{row.name}-{kind}") for row in TABLE for kind in row.holds]
WHY_NOT = [pytest.param(row, kind, id=f"{row.name}-{kind}") for row in TABLE for kind in row.why_not]


def all_roles() -> dict[str, Role]:
    """Every Role object of the package, wherever it is."""
    modules = [import_module(found.name) for found in walk_packages(grpo_kit.__path__, "grpo_kit.")]
    return {value.name: value for module in modules for value in vars(module).values() if isinstance(value, Role)}


def test_every_role_is_in_the_table_or_named_as_tested_elsewhere():
    assert set(all_roles()) == set(ROLES) | set(ELSEWHERE)


@pytest.mark.parametrize("role", ROLES)
def test_every_kind_of_a_role_is_in_the_table(role):
    assert {kind.split("/")[0] for kind in PARTS[role]} == set(ROLES[role].built_in)
    for kind, part in PARTS[role].items():
        assert type(part) is ROLES[role].built_in[kind.split("/")[0]]
        assert isinstance(part, ROLES[role].interface)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_part_of_the_role_has_one_entry(row):
    entries = [*row.holds, *row.why_not]
    assert sorted(entries) == sorted(PARTS[row.role])


def test_every_law_is_about_a_role_or_says_why_not():
    about = {(row.number, row.role) for row in TABLE}
    assert about | set(NOT_ABOUT) == {(number, role) for number in NUMBERS for role in ROLES}
    assert not about & set(NOT_ABOUT)


@pytest.mark.parametrize(("row", "kind"), HOLDS)
def test_the_law_holds(row, kind):
    holds(row.law, PARTS[row.role][kind], row.share)


@pytest.mark.parametrize(("row", "kind"), WHY_NOT)
def test_the_reason_why_not_is_shown_by_a_counter_example(row, kind):
    entry = row.why_not[kind]
    assert entry.reason
    if entry.shown:
        assert breaks(row.law, PARTS[row.role][kind])


@pytest.mark.parametrize(
    ("role", "kind"), [(r, k) for r in ROLES if r not in ("rewards", "terms") for k in ROLES[r].built_in]
)
def test_a_wrong_shape_raises(role, kind):
    part = next(part for name, part in PARTS[role].items() if name.split("/")[0] == kind)
    signatures.a_wrong_shape_raises(ROLES[role], part)


ANY_SHAPE = {
    "grpo_kit.joining.widen": "pads any tensor",
    "grpo_kit.diagnostics.mean": "the mean of any tensor",
    "grpo_kit.policies.lora.whole_weights": "weights of any shape",
    "grpo_kit.checkpoints.state.moving": "the same",
    "grpo_kit.policies.policy.Policy.whole_weights": "the same",
    "grpo_kit.policies.tiny.warm_up.batches": "inner batches of a script, whose axes its loop names",
}


def test_every_public_function_states_its_shapes():
    bare = {}
    for found in walk_packages(grpo_kit.__path__, "grpo_kit."):
        module = import_module(found.name)
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", "") != found.name:
                continue
            methods = vars(value) if isinstance(value, type) else {}
            public = {key: own for key, own in methods.items() if not key.startswith("_") or key == "__call__"}
            for key, function in {"": value, **public}.items():
                if isfunction(function) and (wrong := signatures.bare_tensors(function)):
                    bare[f"{found.name}.{name}.{key}".rstrip(".")] = wrong
    assert set(bare) == set(ANY_SHAPE), bare
