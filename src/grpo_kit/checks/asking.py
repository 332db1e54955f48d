"""Parts that ask for what nobody gives them, or remember where nobody keeps it."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from inspect import Parameter, signature
from typing import Any, get_args

from grpo_kit.advantages.live import LiveAdvantage, is_live
from grpo_kit.checks.findings import Finding
from grpo_kit.offers import AT_UPDATE, OFFERS, asks, parameters
from grpo_kit.parts import Role, did_you_mean
from grpo_kit.recipe import Recipe

BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def of_asking(recipe: Recipe) -> Iterator[Finding]:
    """Calls that would end the run with a TypeError, and memory that would be lost, at any depth of the recipe."""
    for place, role, part in parts_of(recipe):
        if role.name in OFFERS:
            offers = AT_UPDATE.get(role.name, ()) if getattr(part, "at_update", False) else OFFERS[role.name]
            what = role.interface.__name__.lower()
            call = (LiveAdvantage if role.name == "advantages" and is_live(part) else role.interface).__call__
            plain = [p.name for p in signature(call).parameters.values() if p.kind in BY_POSITION][1:]
            for fault in (*_inputs(part, what, plain, offers), *_asked(part, what, len(plain), offers)):
                yield f"{place}: {fault}", place
            for fault in _memory(part, what, offers):
                yield f"{place}: {fault}", place


def _inputs(part: object, what: str, plain: list[str], offers: tuple[str, ...]) -> Iterator[str]:
    """Plain inputs come first and by position, under any name but that of an offer."""
    first = [p.name for p in parameters(part) if p.kind in BY_POSITION][: len(plain)]
    fewer = len(first) < len(plain) and not any(p.kind is Parameter.VAR_POSITIONAL for p in parameters(part))
    if fewer or any(name in offers for name in first):
        yield (
            f"begins with the parameters ({', '.join(first)}); the first of every {what} are ({', '.join(plain)}), "
            "under any names. Put those before what it asks for."
        )


def _asked(part: object, what: str, plain: int, offers: tuple[str, ...]) -> Iterator[str]:
    """Every other parameter without a default is an offer."""
    by_position = [p for p in parameters(part) if p.kind in BY_POSITION]
    by_name = [p for p in parameters(part) if p.kind is Parameter.KEYWORD_ONLY]
    for parameter in (*by_position[plain:], *by_name):
        name = parameter.name
        if parameter.default is Parameter.empty and name not in offers and name != "state":
            can = f"It can ask for {', '.join(offers) or 'nothing'}; other parameters need a default."
            yield f"asks for '{name}', which no {what} gets.{did_you_mean(name, offers)} {can}"


def _memory(part: object, what: str, offers: tuple[str, ...]) -> Iterator[str]:
    """A part with memory has `init` and asks for `state`, where the loop keeps one for it."""
    asked, remembers = asks(part), hasattr(part, "init")
    needs = any(p.name == "state" and p.default is Parameter.empty for p in parameters(part))
    if (remembers or needs) and "state" not in offers:
        having = ", ".join(role for role, own in OFFERS.items() if "state" in own)
        named = "has `init`" if remembers else "asks for 'state'"
        yield f"{named}, and nothing keeps the state of a {what}. Parts with memory: {having}."
    elif remembers and not asked & {"state", "**"}:
        yield "has `init` and does not ask for `state`. Name it, and return (value, state); or remove `init`."
    elif needs and not remembers:
        yield "asks for `state` and has no `init` that makes the first one. Give it one, or remove `state`."


def parts_of(recipe: Recipe) -> Iterator[tuple[str, Role, object]]:
    """Every part of a recipe with its place and role, those inside others too."""
    return _parts("", recipe, None)


def _parts(place: str, value: Any, role: Role | None) -> Iterator[tuple[str, Role, object]]:
    if isinstance(value, Mapping | tuple | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _parts(f"{place}.{key}", item, role)
        return
    if role is not None and callable(value):
        yield place, role, value
    if is_dataclass(value):
        for key, field in getattr(value, "__pydantic_fields__", {}).items():
            inner = _role_in((*field.metadata, field.annotation))
            yield from _parts(f"{place}.{key}".lstrip("."), getattr(value, key), inner)


def _role_in(annotation: tuple[Any, ...]) -> Role | None:
    """The role that an annotation names at any depth."""
    found = (piece if isinstance(piece, Role) else _role_in(get_args(piece)) for piece in annotation)
    return next((role for role in found if role is not None), None)
