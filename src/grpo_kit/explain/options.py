"""Every option of a recipe's parts: those that are set, and those left at their default."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any

from grpo_kit.parts import as_table
from grpo_kit.recipe import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The options of one part or table of a recipe.

    Attributes:
        place: dotted path in the recipe.
        kind: of a part; empty for a plain table.
        active: key and value, as in TOML, of what has no default or differs from it.
        default: the same of what is at its default; a key without a value is off.
    """

    place: str
    kind: str
    active: tuple[tuple[str, str], ...]
    default: tuple[tuple[str, str], ...]


def options(recipe: Recipe) -> tuple[Options, ...]:
    """The options of every table and part, in the order of the recipe."""
    return tuple(_walk(recipe, ""))


def kind_of(part: object) -> str:
    """What a recipe calls a part; a plain function goes by its own name."""
    kind = getattr(part, "kind", None)
    return kind if isinstance(kind, str) else str(as_table(part))


def described(part: object) -> str:
    """A part in one line: its kind and the options that are set."""
    if not is_dataclass(part):
        return kind_of(part)
    active, _ = _sorted_out(part)
    settings = ", ".join(f"{key} = {value}" for key, value in active)
    return f"{kind_of(part)} ({settings})" if settings else kind_of(part)


def toml(value: Any) -> str:
    """A value as it stands in a recipe file."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | float) else str(value)


def _walk(value: Any, place: str) -> Iterator[Options]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{place}.{key}")
    elif is_dataclass(value):
        active, default = _sorted_out(value)
        yield Options(place=place or "recipe", kind=getattr(value, "kind", ""), active=active, default=default)
        for field in fields(value):
            if _is_nested(item := getattr(value, field.name)):
                yield from _walk(item, f"{place}.{field.name}".removeprefix("."))
    elif callable(value):
        yield Options(place=place, kind=kind_of(value), active=(), default=())


def _sorted_out(part: Any) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    active: list[tuple[str, str]] = []
    default: list[tuple[str, str]] = []
    for field in fields(part):
        value = getattr(part, field.name)
        if not _is_nested(value):
            shown = "" if value is None else toml(as_table(value))
            (default if value == default_of(field) else active).append((field.name, shown))
    return tuple(active), tuple(default)


def _is_nested(value: Any) -> bool:
    """Whether a value has a line of its own: a part, a table, or a table of them."""
    if isinstance(value, Mapping):
        return any(_is_nested(item) for item in value.values())
    return is_dataclass(value) or callable(value)


def default_of(field: "Field[Any]") -> Any:
    """The default of a field as pydantic keeps it; MISSING where there is none."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    given = field.default  # pydantic keeps its own record of a field with a rule
    if hasattr(given, "default_factory"):
        return given.get_default(call_default_factory=True)  # pyright: ignore
    return given
