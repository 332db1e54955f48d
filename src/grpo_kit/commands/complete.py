"""What the shell may offer for an argument; nothing heavy is imported, so that the TAB key answers at once."""

import ast
import os
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from grpo_kit.commands.samples import runs
from grpo_kit.shipped import shipped_recipe, shipped_recipes

PACKAGE = Path(__file__).parents[1]


def recipes(incomplete: str) -> list[str]:
    """Shipped recipes, and recipe files from here on."""
    return _starting(incomplete, [*shipped_recipes(), *_files(incomplete, ".toml")])


def shipped(incomplete: str) -> list[str]:
    """Shipped recipes."""
    return _starting(incomplete, shipped_recipes())


def run_folders(incomplete: str) -> list[str]:
    """Run folders under `runs/`, and folders from here on."""
    return _starting(incomplete, dict.fromkeys([*runs(), *_files(incomplete, "/")]))


def question_sets(incomplete: str) -> list[str]:
    """Named sets of questions, and files of questions from here on."""
    from grpo_kit.evaluation.sets import NAMED

    files = [file for ending in (".jsonl", ".json", ".csv", ".parquet") for file in _files(incomplete, ending)]
    return _starting(incomplete, dict.fromkeys([*NAMED, *files]))


def roles(incomplete: str) -> list[str]:
    """Roles, and `recipes`."""
    return _starting(incomplete, [*_kinds(), "recipes"])


def kinds(incomplete: str) -> list[str]:
    """`ROLE.KIND` of every part, those of installed packages too."""
    return _starting(incomplete, [f"{role}.{kind}" for role, own in _kinds().items() for kind in own])


def settings(recipe: str | None, incomplete: str) -> list[str]:
    """`a.b=` for every key that a recipe file has; without a name, that of the line being typed."""
    name = recipe or _typed_recipe() or ""
    file = Path(name) if Path(name).is_file() else shipped_recipe(name) or Path(name)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return _starting(incomplete, [f"{key}=" for key in _keys(table, "")])


def _typed_recipe() -> str | None:
    """The recipe in the line that the shell hands over: the first word behind the command that is no option."""
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
    return next((word for word in words[2:] if not word.startswith("-")), None)


def _keys(table: Mapping[str, Any], place: str) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{place}{key}.")
        else:
            yield place + key


def _files(incomplete: str, ending: str) -> Iterator[str]:
    """Files of an ending (folders for `/`) and the folders on the way, beside what was typed so far."""
    typed = Path(incomplete)
    parent = typed if incomplete.endswith("/") else typed.parent
    for path in sorted(parent.glob("*")):
        if path.is_dir() and not path.name.startswith("."):
            yield f"{path}/"
        elif path.suffix == ending:
            yield str(path)


def _kinds() -> dict[str, list[str]]:
    """The kinds of each role, read from the source of its table: its modules would load torch."""
    found: dict[str, list[str]] = {}
    for file in sorted(PACKAGE.glob("*/__init__.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Role"), args=[ast.Constant(value=str(role)), _, ast.Dict(keys=keys)]):
                    found[role] = [str(key.value) for key in keys if isinstance(key, ast.Constant)]
                case ast.AugAssign(
                    target=ast.Attribute(value=ast.Name(id=table), attr="built_in"), value=ast.Dict(keys=keys)
                ):
                    found[table.lower()] = [str(key.value) for key in keys if isinstance(key, ast.Constant)]
    for entry in (entry for distribution in distributions() for entry in distribution.entry_points):
        package, _, role = entry.group.partition(".")
        if package == "grpo_kit" and role in found and entry.name not in found[role]:
            found[role].append(entry.name)
    return found


def _starting(incomplete: str, known: Any) -> list[str]:
    return [name for name in known if name.startswith(incomplete)]
