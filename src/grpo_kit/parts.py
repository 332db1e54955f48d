"""What a part is (frozen data to print, compare, hash and pickle, plus one call), and how a role finds its kinds."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import PydanticCustomError, core_schema

from grpo_kit.entry_points import InstalledFunction, clash, installed, load

T = TypeVar("T")
STRICT = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
"""What a recipe may call a policy, a reward, a term: it becomes part of metric keys and of a folder's name."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def table(cls: type[T]) -> type[T]:
    """Make a class one table of a recipe: frozen, keyword-only, strict, unknown keys forbidden."""
    return pydantic_dataclass(cls, frozen=True, slots=True, kw_only=True, config=STRICT)  # pyright: ignore


@dataclass_transform(frozen_default=True, kw_only_default=True)
def part(kind: str) -> Callable[[type[T]], type[T]]:
    """Make a class a part: a `table` whose fields are its hyper-parameters, known to recipes as `kind`."""

    def decorate(cls: type[T]) -> type[T]:
        made = table(cls)
        made.kind = kind  # pyright: ignore[reportAttributeAccessIssue]
        return made

    return decorate


class Role:
    """One role of the composition: its name, its interface, and the table of kinds that fill it.

    Used as `Annotated[Protocol, ROLE]` on a recipe field: a TOML table is looked up by its `kind` and checked as that
    part; any other value that fits the interface (a part, a plain function) passes through unchanged. Packages add
    kinds through entry points of the group `grpo_kit.<name>`; a built-in kind cannot be replaced, and two packages
    cannot give the same one: a recipe that uses such a kind is refused.
    """

    def __init__(self, name: str, interface: type, kinds: Mapping[str, type]) -> None:
        """Name the role, its one-method Protocol and its built-in kinds."""
        self.name, self.interface, self.built_in = name, interface, dict(kinds)

    @property
    def kinds(self) -> dict[str, Any]:
        """Every known kind, the built-in ones first; those of other packages as entry points, not yet loaded."""
        others = {kind: entries[0] for kind, entries in installed(self.name).items() if kind not in self.built_in}
        return self.built_in | others

    def load(self, kind: str) -> Any:
        """The class (or function) of a known kind; ValueError says what is wrong with a package that gives it."""
        entries = installed(self.name).get(kind, [])
        if problem := clash(kind, self.built_in, entries):
            raise ValueError(problem)
        return self.built_in[kind] if kind in self.built_in else load(entries[0], self.interface)

    def read(self, value: object) -> object:
        """Turn a table with a `kind` into the part it describes; pass a ready part or function through."""
        if not isinstance(value, Mapping):
            if callable(value) and not isinstance(value, type):
                return value
            raise PydanticCustomError(
                "part",
                "expected a table with a 'kind', got {given}. Known: {known}.",
                {"given": repr(value), "known": ", ".join(sorted(self.kinds))},
            )
        settings, kinds = dict(value), self.kinds
        kind = settings.pop("kind", None)
        if not isinstance(kind, str) or kind not in kinds:
            problem = "has no 'kind'" if kind is None else f"unknown kind {kind!r}"
            raise PydanticCustomError(
                "kind",
                "{problem}.{guess} Known: {known}.",
                {"problem": problem, "guess": did_you_mean(str(kind), kinds), "known": ", ".join(sorted(kinds))},
            )
        try:
            part = self.load(kind)
        except ValueError as error:
            raise PydanticCustomError("part", "{problem}", {"problem": str(error)}) from None
        if isinstance(part, InstalledFunction):
            if settings:
                raise PydanticCustomError(
                    "part",
                    "kind '{kind}' is a function and has no settings; remove {keys}.",
                    {"kind": kind, "keys": ", ".join(settings)},
                )
            return part
        try:
            return TypeAdapter(part).validate_json(json.dumps(settings))
        except ValidationError as error:
            # Carried as data, so that the reader of the recipe can list each mistake under its own dotted path.
            mistakes = error.errors(include_url=False)
            raise PydanticCustomError(
                "nested", "{count} mistakes", {"count": len(mistakes), "errors": mistakes, "part": part}
            ) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Let pydantic read a field of this role."""
        return core_schema.no_info_plain_validator_function(self.read)


def did_you_mean(given: str, known: object) -> str:
    """The sentence ` Did you mean 'x'?`, or nothing; the longest `_`-separated piece is tried too."""
    names = [str(name) for name in known]  # pyright: ignore[reportGeneralTypeIssues]
    close = get_close_matches(given, names, n=1, cutoff=0.6)
    for piece in sorted(given.split("_"), key=len, reverse=True):
        if close:
            break
        close = (
            get_close_matches(piece, names, n=1, cutoff=0.6)
            or [name for name in names if len(piece) > 2 and piece in name][:1]
        )
    return f" Did you mean '{close[0]}'?" if close else ""


def as_table(value: object) -> Any:
    """A part, a table or a plain value as TOML data: missing (None) keys left out, parts with their `kind` first."""
    if isinstance(value, InstalledFunction):
        return {"kind": value.kind}
    if is_dataclass(value) and not isinstance(value, type):
        kind = getattr(value, "kind", None)
        head = {"kind": kind} if isinstance(kind, str) else {}
        return head | {f.name: as_table(item) for f in fields(value) if (item := getattr(value, f.name)) is not None}
    if isinstance(value, Mapping):
        return {str(key): as_table(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_table(item) for item in value]
    if callable(value):
        return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    return value
