"""`grpo-kit show ROLE.KIND`: what a part does, its keys, and a table to paste into a recipe."""

from collections.abc import Iterator
from textwrap import fill, indent

from pydantic_core import PydanticCustomError

from grpo_kit.commands.attributes import split_docstring
from grpo_kit.commands.catalog import find_role
from grpo_kit.commands.keys import Key, keys_of
from grpo_kit.commands.snippet import example, snippet
from grpo_kit.entry_points import InstalledFunction, installed, package
from grpo_kit.explain.page import WIDTH
from grpo_kit.formula import plain, plain_text
from grpo_kit.parts import Role, did_you_mean
from grpo_kit.roles import ROLES


def describe(name: str) -> str:
    """The page about `ROLE.KIND`; ValueError where there is none, with a guess."""
    role, kind = _find(name)
    return "\n".join(_page(role, kind)) + "\n"


def _find(name: str) -> tuple[Role, str]:
    role_name, _, kind = name.partition(".")
    if not kind and role_name not in ROLES:
        homes = [f"{role.name}.{role_name}" for role in ROLES.values() if role_name in role.kinds]
        if len(homes) == 1:  # a kind alone that only one role has
            role_name, kind = homes[0].split(".")
        elif homes:
            raise ValueError(f"'{name}' is in more than one role: {', '.join(homes)}. Give one of them.")
        else:
            known = [own for role in ROLES.values() for own in role.kinds]
            raise ValueError(
                f"there is no kind '{name}'.{did_you_mean(name, [*known, *ROLES])} Write ROLE.KIND; `grpo-kit list` "
                "has them all."
            )
    role = find_role(role_name)
    if not kind:
        raise ValueError(
            f"'{name}' is a role. Give one of its kinds, for example {role.name}.{next(iter(role.kinds))}."
        )
    if kind not in role.kinds:
        raise ValueError(
            f"there is no kind '{kind}' of {role.name}.{did_you_mean(kind, role.kinds)} Known: {', '.join(role.kinds)}."
        )
    return role, kind


def _page(role: Role, kind: str) -> Iterator[str]:
    part = role.load(kind)
    thing = part.function if isinstance(part, InstalledFunction) else part
    by = [f", from {package(entry)}" for entry in installed(role.name).get(kind, [])]
    yield f"{role.name}.{kind}: {thing.__module__}.{thing.__qualname__}{''.join(by)}"
    prose, _ = split_docstring(thing)
    if prose:
        yield f"\n{plain_text(prose)}"
    if formula := _formula(role, kind):
        yield f"\nFormula, with the settings below: {plain(formula)}"
    keys = keys_of(part) if isinstance(part, type) else ()
    yield "\nKeys:" if keys else "\nIt has no keys but kind."
    for key in keys:
        yield f"  {key.name}: {key.type}; {_default(key)}"
        if key.about:
            yield fill(key.about, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    yield f"\nIn a recipe:\n\n{indent(snippet(role, kind), '    ')}"


def _formula(role: Role, kind: str) -> str | None:
    try:
        return getattr(example(role, kind), "formula", None)
    except PydanticCustomError:
        return None


def _default(key: Key) -> str:
    if key.default is None:
        return "must be given"
    return f"{key.default} by default" if key.default else "off by default"
