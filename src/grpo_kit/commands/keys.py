"""The keys of a part or table: type, default and range, read from its annotations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from grpo_kit.commands.attributes import split_docstring
from grpo_kit.explain.options import default_of, toml
from grpo_kit.formula import plain_text
from grpo_kit.parts import Role, as_table

WORDS = {int: "integer", float: "number", str: "text", bool: "true or false", NoneType: "nothing"}
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One key of a recipe's table.

    Attributes:
        name: as in a recipe.
        type: in words, with the range and the known choices.
        default: as in TOML; empty for a key that is off when it is left out; None for one that must be given.
        about: its description.
        role: of a key that holds a part.
    """

    name: str
    type: str
    default: str | None
    about: str
    role: Role | None


def keys_of(part: type) -> tuple[Key, ...]:
    """All keys of a part, in their order."""
    hints = get_type_hints(part, include_extras=True)
    _, said = split_docstring(part)
    return tuple(
        Key(
            name=field.name,
            type=in_words(hints[field.name]),
            default=_default(field),
            about=plain_text(said.get(field.name, "")),
            role=role_of(hints[field.name]),
        )
        for field in fields(part)
    )


def role_of(annotation: Any) -> Role | None:
    """The role of an annotated key, optional or not."""
    if get_origin(annotation) is Annotated:
        inner, *rules = get_args(annotation)
        return next((rule for rule in rules if isinstance(rule, Role)), None) or role_of(inner)
    options = [option for option in get_args(annotation) if option is not NoneType]
    return role_of(options[0]) if NoneType in get_args(annotation) and len(options) == 1 else None


def in_words(annotation: Any) -> str:
    """A type with its rules as a user reads it."""
    if get_origin(annotation) is Annotated:
        inner, *rules = get_args(annotation)
        role = next((rule for rule in rules if isinstance(rule, Role)), None)
        if role is not None:
            return f"a part of {role.name}"
        bounds = [said for rule in rules for said in _bounds(rule)]
        return ", ".join([in_words(inner), *bounds])
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(toml(choice) for choice in inside)
    if NoneType in inside:
        return " or ".join(in_words(option) for option in inside if option is not NoneType)
    if origin is Callable:
        return "a function"
    if origin in (Mapping, dict):
        return f"table of {in_words(inside[-1])}"
    if origin in (tuple, list, Sequence):
        several = [each for each in inside if each is not Ellipsis]
        if origin is tuple and Ellipsis not in inside:
            return "list of " + " and ".join(in_words(each) for each in several)
        return f"list of {in_words(several[0])}" if several else "list"
    if origin is not None and inside:
        return " or ".join(in_words(option) for option in inside)
    return WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _bounds(rule: Any) -> list[str]:
    """A rule of pydantic's `Field` in words."""
    found = []
    for one in [rule, *getattr(rule, "metadata", ())]:
        found += [f"{said} {getattr(one, name):g}" for name, said in BOUNDS.items() if hasattr(one, name)]
        if getattr(one, "min_length", None):
            found.append(f"length at least {one.min_length}")
        if getattr(one, "pattern", None):
            found.append(f"matching {one.pattern}")
    return list(dict.fromkeys(found))


def _default(field: Any) -> str | None:
    value = default_of(field)
    if value is MISSING:
        return None
    return "" if value is None else toml(as_table(value))
