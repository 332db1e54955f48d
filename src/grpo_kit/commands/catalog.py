"""`grpo-kit list`: the roles, their kinds, and the shipped recipes."""

import inspect
from collections.abc import Iterator
from importlib import import_module

from grpo_kit.entry_points import InstalledFunction, installed, package
from grpo_kit.formula import plain_text
from grpo_kit.parts import Role, did_you_mean
from grpo_kit.roles import ROLES
from grpo_kit.shipped import about, shipped_recipes


def catalog(role: str | None) -> str:
    """The kinds of one role, of all without one, or the recipes; ValueError for a role that nobody knows."""
    if role is None:
        return "\n\n".join([*("\n".join(_role(own)) for own in ROLES.values()), "\n".join(_recipes())])
    return "\n".join(_recipes() if role == "recipes" else _role(find_role(role)))


def find_role(name: str) -> Role:
    """The role of that name; its singular will do."""
    found = ROLES.get(name) or ROLES.get(f"{name}s")
    if found is None and name in ("recipe", "recipes"):
        raise ValueError("a recipe is no kind of part. `grpo-kit explain RECIPE` says what it does.")
    if found is None:
        known = [*ROLES, "recipes"]
        raise ValueError(f"there is no role '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}.")
    return found


def summary(thing: object) -> str:
    """The first sentence of a docstring, its formulas as plain text."""
    head = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
    return plain_text(head) if not head.startswith(f"{getattr(thing, '__name__', '')}(") else ""


def _role(role: Role) -> Iterator[str]:
    package_of_role = import_module(f"grpo_kit.{role.name}")
    yield f"{role.name}: {summary(package_of_role).partition(': ')[2]}"
    width = max(map(len, role.kinds))
    for kind in role.kinds:
        yield f"  {kind:<{width}}  {_about_kind(role, kind)}"


def _about_kind(role: Role, kind: str) -> str:
    """What a kind is; one of another package with the package's name, or with what is wrong with it."""
    entries = installed(role.name).get(kind, [])
    try:
        part = role.load(kind)
    except ValueError as error:
        return f"(cannot be used: {error})"
    said = summary(part.function if isinstance(part, InstalledFunction) else part)
    return f"{said} (from {package(entries[0])})".strip() if entries else said


def _recipes() -> Iterator[str]:
    yield "recipes: what is shipped; run one by its name, or copy it with grpo-kit init."
    known = shipped_recipes()
    width = max(map(len, known))
    for name, file in known.items():
        yield f"  {name:<{width}}  {about(file)}"
