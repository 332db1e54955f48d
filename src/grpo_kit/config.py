"""Reading a recipe file: TOML to the typed tree, every mistake on a line of its own with its dotted path."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from grpo_kit.checks import cross_checks
from grpo_kit.parts import did_you_mean
from grpo_kit.placeholders import PLACEHOLDERS, Loc, dotted, take_out
from grpo_kit.recipe import Recipe
from grpo_kit.shipped import shipped_recipe, shipped_recipes
from grpo_kit.terminal import one_line

TOO_DEEP = "it is nested too deeply"
DEEPEST = 50
"""Tables in tables that a setting may name."""
SHOWN = 200
"""Characters of a wrong value that are shown."""


class RecipeError(ValueError):
    """A recipe that cannot be run; `mistakes` has a line for each thing to mend."""

    def __init__(self, mistakes: Sequence[str], source: str = "recipe") -> None:
        """Collect the mistakes found in a source."""
        self.mistakes = tuple(dict.fromkeys(map(one_line, mistakes)))
        count = f"{len(self.mistakes)} mistake{'s' if len(self.mistakes) != 1 else ''}"
        super().__init__(f"{one_line(source)}: {count}\n" + "\n".join(f"  {mistake}" for mistake in self.mistakes))


def find_recipe(name: str) -> Path:
    """The recipe file of that name: in the working folder, else shipped with the package as `recipes/NAME.toml`."""
    path = Path(name)
    try:
        if path.is_file():
            return path
        folder = path.is_dir()
    except OSError as error:
        raise RecipeError([f"cannot be read: {error.strerror or error}."], name) from error
    if folder and name:
        inside = sorted(file.name for file in path.glob("*.toml"))
        raise RecipeError([f"is a folder. Give a file: {', '.join(inside) or 'there is no .toml file in it'}."], name)
    if (found := shipped_recipe(name)) is not None:
        return found
    known = list(shipped_recipes())
    raise RecipeError([f"no such file.{did_you_mean(path.stem, known)} Shipped: {', '.join(known)}."], name)


def read_tables(path: Path, name: str) -> dict[str, Any]:
    """The tables of a file; RecipeError when it cannot be read, is empty or is not TOML."""
    try:
        raw = _toml(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise RecipeError([f"not UTF-8 text (byte {error.start + 1}). Save the file as UTF-8."], name) from error
    except ValueError as error:
        raise RecipeError([f"not TOML: {error}"], name) from error
    except OSError as error:
        raise RecipeError([f"cannot be read: {error.strerror or error}."], name) from error
    if not raw:
        raise RecipeError(["there is nothing in the file. Copy a shipped recipe to start from: grpo-kit init."], name)
    return raw


def _toml(text: str) -> dict[str, Any]:
    """The tables of a text; ValueError where it is not TOML, or holds what JSON, through which it goes, cannot."""
    try:
        table = tomllib.loads(text)
        written = json.dumps(table, default=str)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise ValueError("a number in it has thousands of digits") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    try:
        from_json(written)
    except ValueError:
        raise ValueError(TOO_DEEP) from None
    return table


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
    raw = read_tables(find_recipe(name), name)
    mistakes = [mistake for setting in settings if (mistake := _apply(raw, setting))]
    mistakes += _dates(raw, ())
    recipe, found, removed = parse_recipe(raw)
    # A mistake in [data] is one of evaluation.data too, which is read over it; it is to be mended in one place.
    mistakes += [
        line for line in found if not (line.startswith("evaluation.data") and line[len("evaluation.") :] in found)
    ]
    if recipe is not None:
        mistakes += cross_checks(recipe, allow_code=allow_code, removed=removed)
    # Without policies there is no tokenizer to read the data with.
    recipe = recipe if "policies" not in removed else None
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
            mistakes += [line for loc, line in flat if line not in mistakes and not _our_doing(loc, removed, mistakes)]
            gone: dict[str, Any] = {}
            for loc, _ in flat:
                inside = any(dotted(loc).startswith(f"{place}.") for place in gone)  # went with its table already
                if not inside and (place := take_out(table, loc)):
                    gone |= dict([place])
            if not gone:
                return None, mistakes, removed
            removed |= gone
    return None, mistakes, removed


def mistakes_in(error: ValidationError, root: type) -> list[str]:
    """What pydantic says of tables read as `root`, a line each with its dotted path."""
    return [line for _, line in _flatten(error.errors(include_url=False), (), root)]


def _our_doing(loc: Loc, removed: Mapping[str, Any], mistakes: Sequence[str]) -> bool:
    """Whether a mistake only follows from keys taken out in an earlier round: one is missing, a table lacks one."""
    place = dotted(loc)
    unknown = {mistake.partition(": unknown key")[0] for mistake in mistakes}
    return place in removed or any(gone.rpartition(".")[0] == place for gone in removed.keys() - unknown)


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
        yield f"{dotted(loc)}: {value} is a date or time. Write it in quotes if a text is meant."


def _apply(raw: dict[str, Any], setting: str) -> str | None:
    """Put one `a.b=c` over the table; the value is TOML, or a bare word taken as text. Returns a mistake or None."""
    path, equals, text = setting.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys) or len(keys) > DEEPEST:
        return f"--set {_cut(setting)}: write it as a.b=c"
    if re.search("[\ud800-\udfff]", setting):
        return f"--set {_cut(setting)}: not UTF-8 text"
    if "\n" in text.strip():
        return f"--set {path}: one value a --set, on one line"
    try:
        value = _toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except ValueError as error:
        return f"--set {path}: {error}"
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
        if error["type"] == "too_short" and any(_lies_below(other["loc"], error["loc"]) for other in errors):
            continue  # what is missing are items with mistakes of their own
        if error["type"] == "nested":
            yield from _flatten(error["ctx"]["errors"], loc, error["ctx"]["part"])
            continue
        yield loc, f"{dotted(loc)}: {_message(error, _class_at(root, tuple(error['loc'])[:-1]))}"


def _lies_below(loc: Loc, above: Loc) -> bool:
    return len(loc) > len(above) and loc[: len(above)] == above


def _message(error: Any, owner: type | None) -> str:
    kind, given, ctx = error["type"], error.get("input"), error.get("ctx", {})
    key = str(error["loc"][-1]) if error["loc"] else ""
    if kind == "unexpected_keyword_argument":
        known = sorted(field.name for field in fields(owner)) if owner else []
        allowed = f"Known: {', '.join(known)}." if known else "Beside 'kind' it has none."
        return f"unknown key '{key}'.{did_you_mean(key, known)} {allowed}"
    if kind in ("missing", "missing_argument"):
        return "missing; it has no default."
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in ctx["expected"].replace(" or ", ",").split(",")]
        return f"unknown choice {_cut(repr(given))}.{did_you_mean(str(given), choices)} Known: {', '.join(choices)}."
    if kind == "bool_type":
        return f"should be true or false, got {_cut(repr(given))} ({type(given).__name__})."
    if kind == "too_short":
        return "there is none; give at least one."
    if kind == "value_error":
        return f"{ctx['error']}."
    if kind in ("kind", "part"):
        return error["msg"]
    rule = re.sub("^[A-Z][a-z]+ should", "should", error["msg"]).replace("an object", "a table")
    return f"{rule}, got {_cut(repr(given))} ({type(given).__name__})."


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


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
