"""Plans: from a file or from recipes on the command line, and every mistake of them and of their recipes at once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from grpo_kit.compare.plan import HeldOut, Plan, mistakes_of, settings_of
from grpo_kit.config import RecipeError, find_recipe, mistakes_in, read_recipe, read_tables
from grpo_kit.parts import as_table
from grpo_kit.recipe import Recipe
from grpo_kit.run.setup import open_recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """A plan whose recipes can be run.

    Attributes:
        plan: what is compared.
        sources: the text of each arm's recipe file.
        matched: values of the keys that all arms share.
        recipes: each arm's recipe with the first seed, read.
        notes: what could not be matched, a line each.
    """

    plan: Plan
    sources: Mapping[str, str]
    matched: Mapping[str, Any]
    recipes: Mapping[str, Recipe]
    notes: tuple[str, ...]


def read_plan(path: str) -> Plan:
    """The plan of a TOML file; RecipeError lists its mistakes."""
    raw = read_tables(Path(path), path)
    for arm in raw.get("arms", {}).values() if isinstance(raw.get("arms"), dict) else ():
        if isinstance(arm, dict) and isinstance(arm.get("recipe"), str):
            beside = Path(path).parent / arm["recipe"]
            arm["recipe"] = str(beside) if beside.is_file() else arm["recipe"]
    try:
        plan = TypeAdapter(Plan).validate_json(json.dumps(raw, default=str))
    except ValidationError as error:
        raise RecipeError(mistakes_in(error, Plan), path) from None
    if found := list(mistakes_of(plan)):
        raise RecipeError(found, path)
    return plan


def plan_of(
    recipes: Sequence[str],
    *,
    seeds: int,
    first_seed: int = 0,
    settings: Sequence[str] = (),
    match: bool = True,
    held_out: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of recipes side by side; an arm is called by its recipe's name, or as `NAME=RECIPE` says."""
    named = [name.partition("=")[::2] if "=" in name else (Path(name).stem, name) for name in recipes]
    if twice := sorted({name for name, _ in named if [own for own, _ in named].count(name) > 1}):
        raise RecipeError([f"two recipes are called {name}. Write NAME={name}." for name in twice], "compare")
    raw = {
        "name": "-".join(name for name, _ in named),
        "seeds": list(range(first_seed, first_seed + seeds)),
        "arms": {name: {"recipe": recipe} for name, recipe in named},
        "set": list(settings),
        "held_out": dict(held_out or {}),
    } | ({} if match else {"match": []})
    try:
        plan = TypeAdapter(Plan).validate_json(json.dumps(raw))
    except ValidationError as error:
        raise RecipeError(mistakes_in(error, Plan), "compare") from None
    if found := list(mistakes_of(plan)):
        raise RecipeError(found, "compare")
    return plan


def make_ready(plan: Plan, *, allow_code: bool) -> Ready:
    """Read every arm's recipe with every point of its grid, its data too; RecipeError lists all that is wrong."""
    mistakes: list[str] = []
    sources: dict[str, str] = {}
    recipes: dict[str, Recipe] = {}
    matched: dict[str, Any] = {}
    for name, arm in plan.arms.items():
        try:
            sources[name] = find_recipe(arm.recipe).read_text(encoding="utf-8")
            for number, point in enumerate(arm.points):
                settings = settings_of(plan, arm, matched, point, plan.seeds[0])
                if number:
                    read_recipe(arm.recipe, settings=settings, allow_code=allow_code)
                    continue
                recipes[name], inputs = open_recipe(arm.recipe, settings=settings, allow_code=allow_code)
                if recipes[name].evaluation is None:
                    mistakes.append(
                        f"arms.{name}: no [evaluation], by whose reward and data arms are compared. Add one."
                    )
                if not matched:
                    matched = _values(plan.match, recipes[name], mistakes)
                if inputs.questions is not None:
                    held_out_questions(arm.recipe, settings, plan.held_out, inputs.questions.ids, allow_code=allow_code)
        except RecipeError as error:
            mistakes += [f"arms.{name}: {line}" for line in error.mistakes]
        except ValueError as error:
            mistakes.append(f"arms.{name}: {error}")
    for place, metric in _metrics(plan).items():
        policy = metric.partition("/")[0]
        arms = [name for name in recipes if place in (f"arms.{name}", f"equivalence.{metric}")]
        if arms and not any(policy in recipes[name].learners for name in arms):
            mistakes.append(f"{place}: {metric}, and no learner there is called {policy}.")
    if mistakes:
        raise RecipeError(mistakes, plan.name)
    return Ready(plan=plan, sources=sources, matched=matched, recipes=recipes, notes=tuple(unmatched(recipes)))


def held_out_questions(
    recipe: str, settings: Sequence[str], held_out: HeldOut, asked: Sequence[Any], *, allow_code: bool
) -> Any:
    """The held-out questions of a recipe: the first so many of its evaluation data that the run does not ask.

    ValueError where there are too few.
    """
    wanted = [*settings, *held_out.set, f"evaluation.questions={held_out.questions + len(asked)}"]
    inputs = open_recipe(recipe, settings=wanted, allow_code=allow_code)[1]
    assert inputs.questions is not None
    found, known = inputs.questions, set(asked)
    rows = [row for row, ids in enumerate(found.ids) if ids not in known][: held_out.questions]
    if len(rows) < held_out.questions:
        raise ValueError(
            f"held_out.questions: {held_out.questions}, and the evaluation data has {len(rows)} that the run does not "
            "ask itself. Lower it, or give other data by held_out.set"
        )
    return found.only(rows)


def unmatched(recipes: Mapping[str, Recipe]) -> list[str]:
    """In what the arms differ from the first that decides how much each sees and learns, a line each."""
    (first, base), *others = recipes.items()
    return [
        f"{name} has {key} = {_shown(value)}, and {first} {_shown(_amounts(base)[key])}"
        for name, recipe in others
        for key, value in _amounts(recipe).items()
        if key in _amounts(base) and value != _amounts(base)[key]
    ]


def _amounts(recipe: Recipe) -> dict[str, Any]:
    """What decides how much a run sees and how often it learns."""
    sampler, selection = recipe.sampler, recipe.selection
    found: dict[str, Any] = {
        "steps": recipe.steps,
        "prompts_per_step": recipe.prompts_per_step,
        "sampler.samples": getattr(sampler, "samples", None),
        "sampler.max_new_tokens": getattr(sampler, "max_new_tokens", None),
        "selection.rule.keep": getattr(selection.rule, "keep", None) if selection else None,
        "data": as_table(recipe.data),
    }
    for name, own in recipe.learners.items():
        found[f"learners.{name}: optimizer steps a batch"] = own.epochs * own.mini_batches
    return found


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, default=str)


def _values(keys: Sequence[str], recipe: Recipe, mistakes: list[str]) -> dict[str, Any]:
    """The first arm's values of the keys to match."""
    found: dict[str, Any] = {}
    for key in keys:
        value: Any = as_table(recipe)
        for piece in key.split("."):
            value = value.get(piece) if isinstance(value, Mapping) else None
        if value is None:
            mistakes.append(f"match: the first arm's recipe has no {key}. Remove it.")
        else:
            found[key] = value
    return found


def _metrics(plan: Plan) -> dict[str, str]:
    """The metrics that a plan names, by their places."""
    found = {f"arms.{name}": plan.metric_of(name) for name in plan.tuned} if plan.tuning else {}
    return found | {f"equivalence.{metric}": metric for metric in plan.equivalence}
