"""What a part asks for beyond its plain inputs: the keywords that its call names are the offers it gets."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import Parameter, signature
from typing import Any

from grpo_kit.entry_points import InstalledFunction

OFFERS: dict[str, tuple[str, ...]] = {
    "samplers": ("details", "epoch"),
    "engines": (),
    "rewards": ("state",),
    "selections": ("generator", "state"),
    "advantages": ("mask", "token_rewards", "components", "weights", "greedy_rewards", "state"),
    "ratios": (),
    "surrogates": ("mask", "logprobs"),
    "corrections": ("groups", "advantages"),
    "divergences": (),
    "weightings": (),
}
"""What the parts of a role can ask for, by name; `state` where they may have memory. Other roles are not asked."""
AT_UPDATE = {"corrections": ("advantages",)}
"""What a part can ask for that is decided at every update."""


def parameters(part: object) -> tuple[Parameter, ...]:
    """The parameters of a part's call, without `self`; `*inputs` for a built-in function that does not say."""
    function = part.function if isinstance(part, InstalledFunction) else part
    return _parameters(type(function).__call__)[1:] if is_dataclass(function) else _parameters(function)


def asks(part: object) -> frozenset[str]:
    """The names of all parameters of a part's call that can be given by keyword, `**` for any."""
    unnamed = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)
    return frozenset(
        "**" if p.kind is Parameter.VAR_KEYWORD else p.name for p in parameters(part) if p.kind not in unnamed
    )


def call_with(part: Any, *inputs: Any, **offers: Any) -> Any:
    """Call a part with its plain inputs and with those of the offers that its call names; `**` takes them all."""
    asked = asks(part)
    return part(*inputs, **(offers if "**" in asked else {name: offers[name] for name in offers if name in asked}))


def inside(part: object) -> Iterator[object]:
    """A part, then the parts and functions among its fields, theirs, and so on."""
    yield part
    values: list[object] = [getattr(part, f.name) for f in fields(part)] if is_dataclass(part) else []
    while values:
        value = values.pop(0)
        if isinstance(value, Mapping):
            values += value.values()
        elif isinstance(value, tuple | list):
            values += value
        elif not isinstance(value, type) and (is_dataclass(value) or callable(value)):
            yield from inside(value)


@cache
def _parameters(function: Any) -> tuple[Parameter, ...]:
    try:
        return tuple(signature(function).parameters.values())
    except (TypeError, ValueError):  # built in, without a signature
        return (Parameter("inputs", Parameter.VAR_POSITIONAL),)
