"""Whatever stands in a recipe file or behind --set: a recipe, or lines that say what is wrong."""

import copy
import tomllib

import pytest
import tomli_w
from hypothesis import assume, example, given, strategies as st

from fuzz.fuzzing import FUZZ, damaged, places_in
from grpo_kit import Recipe, read_recipe
from grpo_kit.config import RecipeError
from grpo_kit.shipped import shipped_recipes

SHIPPED = {name: path.read_bytes() for name, path in shipped_recipes().items()}
NAMES = st.sampled_from(sorted(SHIPPED))
VALUES = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.sampled_from(["small", "large", "grpo", "clip", "group_mean", "tiny:small", "replay", "dataset", "python"]),
    lambda own: st.lists(own, max_size=3) | st.dictionaries(st.text(max_size=8), own, max_size=3),
    max_leaves=6,
)
TABLES = {name: tomllib.loads(content.decode()) for name, content in SHIPPED.items()}
KEYS = sorted({place[-1] for table in TABLES.values() for place in places_in(table) if isinstance(place[-1], str)})


def check(path, content, settings=()):
    """A recipe, or a RecipeError with a line for each mistake; whether it is a recipe."""
    path.write_bytes(content)
    try:
        recipe = read_recipe(str(path), settings=settings)
    except RecipeError as error:
        mistakes = error.mistakes
    else:
        assert isinstance(recipe, Recipe)
        return True
    assert mistakes
    assert all(mistake.strip() and len(mistake.splitlines()) == 1 for mistake in mistakes), mistakes
    return False


@FUZZ
@given(st.binary() | st.text().map(str.encode))
@example(b"steps = " + b"9" * 5000)
@example(b"steps = 0x" + b"f" * 5000)
@example(b"a = " + b"[" * 5000)
@example(b"a = " + b"[" * 250 + b"]" * 250)
@example(b"a" + b".a" * 3000 + b" = 1")
@example(b'"a\\nb" = 1')
def test_any_bytes(tmp_path, content):
    assert not check(tmp_path / "r.toml", content)


@FUZZ
@given(NAMES.flatmap(lambda name: damaged(SHIPPED[name])))
def test_a_shipped_recipe_with_its_text_damaged(tmp_path, content):
    check(tmp_path / "r.toml", content)


@st.composite
def mutated(draw):
    """The table of a shipped recipe with keys gone, under other names, or of other values."""
    table = copy.deepcopy(TABLES[draw(NAMES)])
    for _ in range(draw(st.integers(1, 4))):
        places = list(places_in(table))
        assume(places)
        *above, key = draw(st.sampled_from(places))
        here = table
        for step in above:
            here = here[step]
        change = draw(st.sampled_from(["remove", "rename", "replace"]))
        if change == "replace":
            here[key] = draw(VALUES)
        else:
            value = here.pop(key)
            if change == "rename" and isinstance(here, dict):
                here[draw(st.sampled_from(KEYS) | st.text(max_size=8))] = value
    return table


@FUZZ
@given(mutated())
def test_a_shipped_recipe_with_its_keys_changed(tmp_path, table):
    check(tmp_path / "r.toml", tomli_w.dumps(table).encode())


PLACES = st.sampled_from(sorted({".".join(map(str, place)) for table in TABLES.values() for place in places_in(table)}))
VALUE_TEXTS = (
    st.text(st.characters(), max_size=12)
    | VALUES.map(lambda value: tomli_w.dumps({"value": value}).partition(" = ")[2].rstrip("\n"))
    | st.sampled_from(["[" * 5000, "9" * 5000, "0x" + "f" * 5000, "true", "{", '"', "'''"])
)


@FUZZ
@given(NAMES, st.lists(st.text(st.characters()) | st.builds("{}={}".format, PLACES, VALUE_TEXTS), max_size=3))
@example("grpo", ["steps=" + "9" * 5000])
@example("grpo", ["steps=0x" + "f" * 5000])
@example("grpo", ["steps=" + "[" * 5000])
@example("grpo", ["a" + ".a" * 3000 + "=1"])
@example("grpo", ["name=\ud800"])
@example("grpo", ["a\nb=1", "a\nb"])
@example("grpo", ["steps.x=1"])
@example("gsm8k", ["data.few_shot=[{prompt=1}, 2]"])
def test_any_settings(tmp_path, name, settings):
    check(tmp_path / "r.toml", SHIPPED[name], settings)


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_recipe_as_it_is_reads(tmp_path, name):
    assert check(tmp_path / "r.toml", SHIPPED[name])
