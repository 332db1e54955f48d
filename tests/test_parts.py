"""Every part prints, compares, hashes and pickles, and cannot be changed."""

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from grpo_kit.parts import as_table
from laws.table import PARTS, ROLES

ALL = [pytest.param(part, id=kind) for parts in PARTS.values() for kind, part in parts.items()]


@pytest.mark.parametrize("part", ALL)
def test_a_part_is_data(part):
    again = pickle.loads(pickle.dumps(part))
    assert again == part
    assert again is not part
    assert hash(again) == hash(part)
    assert repr(part).startswith(type(part).__name__ + "(")
    assert replace(part) == part
    field = next(iter(type(part).__dataclass_fields__), None)
    if field:
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(part, field, None)
    assert not hasattr(part, "__dict__")


READABLE = [
    pytest.param(ROLES[role], part, id=kind)
    for role, parts in PARTS.items()
    for kind, part in parts.items()
    if kind != "python"  # its function is code, named in a recipe
]


@pytest.mark.parametrize(("role", "part"), READABLE)
def test_a_part_comes_back_from_its_table(role, part):
    assert role.read(as_table(part)) == part


def test_parts_that_differ_compare_unequal():
    for parts in PARTS.values():
        values = list(parts.values())
        assert all(a != b for i, a in enumerate(values) for b in values[i + 1 :])
