"""Plans: from a file or from recipes on the command line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from grpo_kit.compare.plan import Plan, mistakes_of
from grpo_kit.config import RecipeError, mistakes_in, read_tables


def read_plan(path: str) -> Plan:
    """The plan of a TOML file; RecipeError lists its mistakes."""
    raw = read_tables(Path(path), path)
    for arm in raw.get("arms", {}).values() if isinstance(raw.get("arms"), dict) else ():
        if isinstance(arm, dict) and isinstance(arm.get("recipe"), str):
            beside = Path(path).parent / arm["recipe"]
            arm["recipe"] = str(beside) if beside.is_file() else arm["recipe"]
    return _checked(raw, path)


def plan_of(
    recipes: Sequence[str],
    *,
    seeds: int,
    first_seed: int = 0,
    settings: Sequence[str] = (),
    match: bool = True,
    held_out: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of recipes side by side; an arm is called by its recipe's name, or as `NAME=RECIPE` says."""
    named = [name.partition("=")[::2] if "=" in name else (Path(name).stem, name) for name in recipes]
    if twice := sorted({name for name, _ in named if [own for own, _ in named].count(name) > 1}):
        raise RecipeError([f"two recipes are called {name}. Write NAME={name}." for name in twice], "compare")
    raw = {
        "name": "-".join(name for name, _ in named),
        "seeds": list(range(first_seed, first_seed + seeds)),
        "arms": {name: {"recipe": recipe} for name, recipe in named},
        "set": list(settings),
        "held_out": dict(held_out or {}),
    } | ({} if match else {"match": []})
    return _checked(raw, "compare")


def _checked(raw: Mapping[str, Any], name: str) -> Plan:
    """Tables as a plan; RecipeError under a name."""
    try:
        plan = TypeAdapter(Plan).validate_json(json.dumps(raw, default=str))
    except ValidationError as error:
        raise RecipeError(mistakes_in(error, Plan), name) from None
    if found := list(mistakes_of(plan)):
        raise RecipeError(found, name)
    return plan
