"""Reading a recipe file: TOML to the typed tree, every mistake on a line of its own with its dotted path."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import date, time
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from grpo_kit.checks import cross_checks
from grpo_kit.parts import did_you_mean
from grpo_kit.recipe import Recipe

Loc = tuple[int | str, ...]


class RecipeError(ValueError):
    """A recipe that cannot be run; `mistakes` has a line for each thing to mend."""

    def __init__(self, mistakes: Sequence[str], source: str = "recipe") -> None:
        """Collect the mistakes found in a source."""
        self.mistakes = tuple(dict.fromkeys(mistakes))
        count = f"{len(self.mistakes)} mistake{'s' if len(self.mistakes) != 1 else ''}"
        super().__init__(f"{source}: {count}\n" + "\n".join(f"  {mistake}" for mistake in self.mistakes))


def find_recipe(name: str) -> Path:
    """The recipe file of that name: in the working folder, else shipped with the package as `recipes/NAME.toml`."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = Path(str(files("grpo_kit"))) / "recipes"
    if path.parent in (Path("."), Path("recipes")) and (shipped / path.name).with_suffix(".toml").is_file():
        return (shipped / path.name).with_suffix(".toml")
    known = sorted(file.stem for file in shipped.glob("*.toml"))
    raise RecipeError(
        [f"no such file. {did_you_mean(path.stem, known)} Shipped: {', '.join(known)}.".replace("  ", " ")], name
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """What a recipe file says: the recipe (None when too little can be read), its mistakes, what they took out."""

    recipe: Recipe | None
    mistakes: list[str]
    removed: Mapping[str, Any]


def read_recipe(name: str, *, settings: Sequence[str] = (), allow_code: bool = False) -> Recipe:
    """Read a recipe file with `a.b=c` settings put over it; RecipeError lists all its mistakes at once."""
    examined = examine(name, settings=settings, allow_code=allow_code)
    if examined.mistakes or examined.recipe is None:
        raise RecipeError(examined.mistakes, name)
    return examined.recipe


def examine(name: str, *, settings: Sequence[str] = (), allow_code: bool = False) -> Examined:
    """Read a recipe file as far as it can be read; RecipeError only when there is no TOML file."""
    path = find_recipe(name)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError([f"not TOML: {error}"], name) from error
    mistakes = [mistake for setting in settings if (mistake := _apply(raw, setting))]
    mistakes += _dates(raw, ())
    recipe, found, removed = parse_recipe(raw)
    # A mistake in [data] is one of evaluation.data too, which is read over it; it is to be mended in one place.
    mistakes += [
        line for line in found if not (line.startswith("evaluation.data") and line[len("evaluation.") :] in found)
    ]
    if recipe is not None:
        mistakes += cross_checks(recipe, allow_code=allow_code, removed=removed)
    return Examined(recipe=recipe, mistakes=mistakes, removed=removed)


def parse_recipe(raw: Mapping[str, Any]) -> tuple[Recipe | None, list[str], dict[str, Any]]:
    """The recipe a table describes, its mistakes, and the places that had to be taken out to read the rest.

    With mistakes the recipe is the table without the faulty keys, so that mistakes between parts can be found in the
    same go; None when too little is left.
    """
    mistakes: list[str] = []
    removed: dict[str, Any] = {}
    table = json.loads(json.dumps(raw, default=str))
    _evaluation_data(table)
    for _ in range(100):
        try:
            return TypeAdapter(Recipe).validate_json(json.dumps(table)), mistakes, removed
        except ValidationError as error:
            flat = list(_flatten(error.errors(include_url=False), (), Recipe))
            mistakes += [line for loc, line in flat if line not in mistakes and not _our_doing(loc, line, removed)]
            gone: dict[str, Any] = {}
            for loc, _ in flat:
                inside = any(_dotted(loc).startswith(f"{place}.") for place in gone)  # went with its table already
                if not inside and (place := _remove(table, loc)):
                    gone |= dict([place])
            if not gone:
                return None, mistakes, removed
            removed |= gone
    return None, mistakes, removed


def _our_doing(loc: Loc, line: str, removed: Mapping[str, Any]) -> bool:
    """Whether a mistake only follows from keys taken out in an earlier round: one is missing, a table is empty now."""
    place = _dotted(loc)
    emptied = line.startswith(f"{place}: there is none") and any(gone.startswith(f"{place}.") for gone in removed)
    return place in removed or emptied


def _evaluation_data(table: dict[str, Any]) -> None:
    """Read `evaluation.data` without a kind of its own as keys put over `[data]`."""
    data, evaluation = table.get("data"), table.get("evaluation")
    if isinstance(evaluation, dict):
        own = evaluation.get("data", {})
        if isinstance(own, dict) and "kind" not in own:
            evaluation["data"] = {**data, **own} if isinstance(data, dict) else PLACEHOLDERS["data"]


def _dates(value: Any, loc: Loc) -> Iterator[str]:
    """A mistake for every date or time, which TOML allows and no key of a recipe means."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _dates(item, (*loc, key))
    elif isinstance(value, date | time):
        yield f"{_dotted(loc)}: {value} is a date or time. Write it in quotes if a text is meant."


def _apply(raw: dict[str, Any], setting: str) -> str | None:
    """Put one `a.b=c` over the table; the value is TOML, or a bare word taken as text. Returns a mistake or None."""
    path, equals, text = setting.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        return f"--set {setting}: write it as a.b=c"
    if "\n" in text.strip():
        return f"--set {path}: one value a --set, on one line"
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = raw
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            return f"--set {setting}: '{key}' is a value, not a table"
    table[keys[-1]] = value
    return None


def _flatten(errors: Sequence[Any], prefix: Loc, root: type) -> Iterator[tuple[Loc, str]]:
    for error in errors:
        loc: Loc = prefix + tuple(error["loc"])
        if error["type"] == "nested":
            yield from _flatten(error["ctx"]["errors"], loc, error["ctx"]["part"])
            continue
        yield loc, f"{_dotted(loc)}: {_message(error, _class_at(root, tuple(error['loc'])[:-1]))}"


def _message(error: Any, owner: type | None) -> str:
    kind, given, ctx = error["type"], error.get("input"), error.get("ctx", {})
    key = str(error["loc"][-1]) if error["loc"] else ""
    if kind == "unexpected_keyword_argument":
        known = sorted(get_type_hints(owner)) if owner else []
        return f"unknown key '{key}'.{did_you_mean(key, known)} Known: {', '.join(known)}."
    if kind in ("missing", "missing_argument"):
        return "missing; it has no default."
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in ctx["expected"].replace(" or ", ",").split(",")]
        return f"unknown choice {given!r}.{did_you_mean(str(given), choices)} Known: {', '.join(choices)}."
    if kind == "too_short":
        return "there is none; give at least one."
    if kind == "value_error":
        return f"{ctx['error']}."
    if kind in ("kind", "part"):
        return error["msg"]
    rule = re.sub("^[A-Z][a-z]+ should", "should", error["msg"]).replace("an object", "a table")
    return f"{rule}, got {given!r} ({type(given).__name__})."


def _class_at(root: type, loc: Loc) -> type | None:
    """The table class that stands at a place below `root`, following fields, mappings and optional values."""
    here: Any = root
    for key in loc:
        here = _plain(here)
        if is_dataclass(here):
            here = get_type_hints(here, include_extras=True).get(str(key))
        elif get_origin(here) is not None and get_args(here):
            here = get_args(here)[-1]
    here = _plain(here)
    return here if is_dataclass(here) and isinstance(here, type) else None


def _plain(annotation: Any) -> Any:
    """An annotation without Annotated and without `| None`."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    options = [option for option in get_args(annotation) if option is not type(None)]
    if type(None) in get_args(annotation) and len(options) == 1:
        return _plain(options[0])
    return annotation


def _dotted(loc: Loc) -> str:
    return ".".join(str(key) for key in loc) or "recipe"


PLACEHOLDERS = {"name": "recipe", "steps": 1, "prompts_per_step": 1, "data": {"kind": "arithmetic"}}
"""What stands in for a required key with a mistake, so that the rest of the recipe can still be checked."""


def _remove(table: Any, loc: Loc) -> tuple[str, Any] | None:
    """Take the innermost key that is there out of the table; its place and value, or None when there is none."""
    if len(loc) == 1 and loc[0] in PLACEHOLDERS and table.get(loc[0]) != PLACEHOLDERS[str(loc[0])]:
        value, table[loc[0]] = table.get(loc[0]), PLACEHOLDERS[str(loc[0])]
        return str(loc[0]), value
    for end in range(len(loc), 0, -1):
        here = table
        for key in loc[: end - 1]:
            here = here.get(key) if isinstance(here, dict) else None
        if isinstance(here, dict) and loc[end - 1] in here:
            return _dotted(loc[:end]), here.pop(loc[end - 1])
    return None
