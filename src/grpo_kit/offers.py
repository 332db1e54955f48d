"""What a part asks for beyond its plain inputs: the keywords that its call names are the offers it gets."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import Parameter, signature
from typing import Any

from grpo_kit.entry_points import InstalledFunction


def asks(part: object) -> frozenset[str]:
    """The names of all parameters of a part's call that can be given by keyword."""
    function = part.function if isinstance(part, InstalledFunction) else part
    return _keywords(type(function).__call__ if is_dataclass(function) else function)


def call_with(part: Any, *inputs: Any, **offers: Any) -> Any:
    """Call a part with its plain inputs and with those of the offers that its call names; `**` takes them all."""
    asked = asks(part)
    return part(*inputs, **(offers if "**" in asked else {name: offers[name] for name in offers if name in asked}))


def inside(part: object) -> Iterator[object]:
    """A part, then the parts among its fields, theirs, and so on."""
    yield part
    values: list[object] = [getattr(part, f.name) for f in fields(part)] if is_dataclass(part) else []
    while values:
        value = values.pop(0)
        if is_dataclass(value) and not isinstance(value, type):
            yield from inside(value)
        elif isinstance(value, Mapping):
            values += value.values()
        elif isinstance(value, tuple | list):
            values += value


@cache
def _keywords(function: Any) -> frozenset[str]:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # built in, without a signature
        return frozenset()
    named = {p.name for p in parameters if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)}
    return frozenset(named | ({"**"} if any(p.kind is Parameter.VAR_KEYWORD for p in parameters) else set()))
