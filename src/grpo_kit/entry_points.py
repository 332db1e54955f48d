"""Kinds that installed packages add to a role, through entry points of the group `grpo_kit.<role>`."""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic.dataclasses import is_pydantic_dataclass


def installed(role: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a role by kind, not loaded; more than one where packages clash."""
    return _by_role(tuple(sys.path)).get(role, {})


@cache
def _by_role(path: tuple[str, ...]) -> dict[str, dict[str, list[EntryPoint]]]:
    """All entry points on a search path that are ours; to list them takes longer than to read a recipe."""
    found: dict[str, dict[str, list[EntryPoint]]] = defaultdict(dict)
    everything = entry_points()
    for group in everything.groups:
        if group.startswith("grpo_kit."):
            for entry in everything.select(group=group):
                found[group.removeprefix("grpo_kit.")].setdefault(entry.name, []).append(entry)
    return found


def clash(kind: str, built_in: Mapping[str, object], entries: list[EntryPoint]) -> str | None:
    """What is wrong where more than one part has a kind, or None."""
    if len(entries) + (kind in built_in) < 2:
        return None
    owners = [*(["grpo_kit itself"] if kind in built_in else []), *(f"{e.value} of {package(e)}" for e in entries)]
    given = " and by ".join(owners)
    return f"kind '{kind}' is given by {given}. Rename it in the package's entry points, or uninstall the package."


def load(entry: EntryPoint, interface: type) -> Any:
    """The part (or function) behind an entry point; ValueError says what is wrong with the package."""
    where = f"kind '{entry.name}' of {package(entry)}"
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # whatever the package does when it is imported
        problem = f"{type(error).__name__}: {error}".rstrip(".")
        raise ValueError(
            f"{where} cannot be loaded ({entry.value}: {problem}). Mend or uninstall the package."
        ) from error
    if isinstance(found, type):
        if not is_pydantic_dataclass(found):
            raise ValueError(f"{where} is no part: put @part('{entry.name}') over the class {entry.value}.")
        if absent := [name for name in _members(interface) if not any(name in vars(base) for base in found.__mro__)]:
            role = interface.__module__.removesuffix(".role")
            raise ValueError(
                f"{where} is no part of {role}: {entry.value} has no {', '.join(absent)}; "
                f"see {interface.__name__} there."
            )
        if (own := getattr(found, "kind", None)) != entry.name:
            raise ValueError(f"{where} calls itself '{own}'. Give the entry point and @part of {entry.value} one name.")
        return found
    if not callable(found):
        raise ValueError(
            f"{where} is no part: {entry.value} is of type {type(found).__name__}, neither class nor function."
        )
    return InstalledFunction(kind=entry.name, function=found)


def _members(interface: type) -> list[str]:
    """What a Protocol asks for."""
    return [name for name in vars(interface) if name == "__call__" or not name.startswith("_")]


def package(entry: EntryPoint) -> str:
    """Name and version of the package that registers an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"


@dataclass(frozen=True, kw_only=True)
class InstalledFunction:
    """A plain function behind an entry point: a part without settings, which a recipe names by its kind."""

    kind: str
    function: Callable[..., Any]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **keywords)
