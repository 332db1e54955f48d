"""The documentation says what the code does: names, tables, code that runs."""

import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import grpo_kit
import tiny
from grpo_kit import Signals
from grpo_kit.config import parse_recipe
from grpo_kit.data import Data
from grpo_kit.offers import AT_UPDATE, OFFERS
from grpo_kit.parts import Role

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROLES = {
    value.name: (module, value)
    for info in pkgutil.iter_modules(grpo_kit.__path__)
    if info.ispkg and info.name not in ("run", "recipes")
    for module in [importlib.import_module(f"grpo_kit.{info.name}")]
    for value in vars(module).values()
    if isinstance(value, Role) and info.name == value.name
}


def documented():
    """Every name that the pages give to mkdocstrings."""
    return {
        name for page in DOCS.rglob("*.md") for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE)
    }


def is_documented(value, name):
    """Whether an object has a page entry, itself or with its whole module."""
    home = getattr(value, "__module__", "")
    given = documented()
    return f"{home}.{name}" in given or home in given


def public_names():
    yield from ((grpo_kit, name) for name in grpo_kit.__all__)
    for module, _ in ROLES.values():
        yield from ((module, name) for name in module.__all__)


def test_every_role_is_found():
    assert len(ROLES) == 12


@pytest.mark.parametrize(
    ("module", "name"), [*dict.fromkeys(public_names())], ids=lambda value: getattr(value, "__name__", value)
)
def test_every_public_name_is_in_the_documentation(module, name):
    value = getattr(module, name)
    if isinstance(value, Role):
        assert f"`{module.__name__}.{name}`" in (DOCS / "roles" / f"{value.name}.md").read_text()
        return
    # mkdocstrings leaves out, without a word, what has no docstring.
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}(")
    assert is_documented(value, name), f"add `::: {value.__module__}.{name}` to a page of docs/"


def test_every_directive_names_something_that_exists():
    for name in documented():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize("role", ROLES)
def test_the_tables_of_kinds_are_the_roles_own(role):
    module, table = ROLES[role]
    page = (DOCS / "roles" / f"{role}.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| \[", page, re.MULTILINE) == list(table.built_in)
    (row,) = re.findall(rf"^\| {role} \|[^|]*\|(.*)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == list(table.built_in)
    assert all(part.__name__ in module.__all__ for part in table.built_in.values())


def code_blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)


def test_the_example_of_the_readme_runs(capsys):
    (code,) = code_blocks(ROOT / "README.md", "python")
    assert len(code.splitlines()) <= 16
    exec(code, {})
    # Row 0 is 0.5 above its group's mean, row 1 below; 4 rows x 2 tokens: 0.5 / 8 = 0.0625.
    rows = ["[-0.0625, -0.0625]", "[ 0.0625, 0.0000]", "[ 0.0000, 0.0000]", "[ 0.0000, 0.0000]"]
    assert " ".join(capsys.readouterr().out.split()) == f"tensor([{', '.join(rows)}])"


def test_the_code_of_extending_runs(capsys):
    function, term, part, asking, reward, source = code_blocks(DOCS / "extending.md", "python")
    exec(function, names := {})
    assert names["brevity"](["four"], answer=["1"]) == [-0.04]
    exec(term, {})
    assert capsys.readouterr().out.strip() == "tensor([ 0., -1.])"
    exec(part, names := {})
    assert names["Above"](threshold=2.0).kind == "above"
    exec(asking, {})
    assert capsys.readouterr().out.strip() == "tensor([-0.0100,  0.0100])"  # -0.03 and -0.01 around their mean
    exec(reward, names := {})
    keyword = names["Keyword"]()
    assert keyword.row_faults({"word": ["tree", "4"]}) == {1: "'4' is no word"}
    rows = tiny.with_texts(["a tree", "a house"], word=["tree", "tree"])
    assert keyword(rows, Signals({})).values.tolist() == [1.0, 0.0]
    exec(source, names := {})
    assert names["Squares"](count=3)()["answer"] == ["0", "1", "4"]
    assert isinstance(names["Squares"](), Data)


def test_the_table_of_extending_says_what_a_part_is_given():
    page = (DOCS / "extending.md").read_text()
    rows = re.findall(r"^\| (\w+) \|([^|]*)\|([^|]*)\|([^|]*)\|$", page, re.MULTILINE)
    found = {role: (*(re.findall(r"`(\w+)`", cell) for cell in cells[:2]), cells[2]) for role, *cells in rows}
    for role, (_, table) in ROLES.items():
        plain, asked, remembers = found[role]
        parameters = inspect.signature(table.interface.__call__).parameters
        assert plain == [name for name in parameters if name not in ("self", "args", "asked")]
        offers = OFFERS.get(role, ())
        assert {*asked} - {"at_update"} == {*offers} - {"state"}
        assert remembers.strip().startswith("yes") == ("state" in offers)
    assert found["corrections"][1][-2:] == ["at_update", *AT_UPDATE["corrections"]]


def test_the_recipe_keys_named_by_the_pages_exist():
    for path in sorted((DOCS / "recipes").glob("*.md")):
        if path.stem == "index":
            continue
        raw = tomllib.loads((ROOT / "src/grpo_kit/recipes" / f"{path.stem}.toml").read_text())
        recipe, mistakes, _ = parse_recipe(raw)
        assert mistakes == []
        for key in re.findall(r"`((?:sampler|learners|rewards|selection|data|policies)\.[\w.]+)`", path.read_text()):
            value = recipe
            for name in key.split("."):
                value = value[name] if isinstance(value, dict) else getattr(value, name)


def test_every_recipe_has_a_page():
    recipes = {path.stem for path in (ROOT / "src/grpo_kit/recipes").glob("*.toml")}
    assert {path.stem for path in (DOCS / "recipes").glob("*.md")} - {"index"} == recipes


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        assert f" {page.relative_to(DOCS)}\n" in nav


def test_the_changelog_has_the_version():
    assert f"## {grpo_kit.__version__}" in (ROOT / "CHANGELOG.md").read_text()
