"""Whether the runs of a plan can be made: every mistake of its recipes, data, metrics and questions at once."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from grpo_kit.compare.plan import Arm, HeldOut, Plan, held_out_of, settings_of
from grpo_kit.compare.summary import better_when_higher, compared
from grpo_kit.config import RecipeError, find_recipe, read_recipe
from grpo_kit.data import PromptSet
from grpo_kit.parts import as_table
from grpo_kit.recipe import Recipe
from grpo_kit.run.evaluation import answers_of
from grpo_kit.run.setup import open_recipe, open_tokenizers


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What an arm is asked, and how it is judged: arms that differ in it cannot be paired.

    Attributes:
        held_out: token ids of the questions that arms are compared on.
        in_run: those of the run's own evaluation.
        reward: judges both.
        max_new_tokens: an answer's.
        stop: texts that end one.
    """

    held_out: tuple[tuple[int, ...], ...]
    in_run: tuple[tuple[int, ...], ...]
    reward: Any
    max_new_tokens: int
    stop: tuple[str, ...]


def make_ready(plan: Plan, *, allow_code: bool) -> Ready:
    """Read every arm's recipe as each of its runs will, and its data; RecipeError lists all that is wrong."""
    mistakes: list[str] = []
    sources: dict[str, str] = {}
    recipes: dict[str, Recipe] = {}
    asked: dict[str, Any] = {}
    matched: dict[str, Any] = {}
    for name, arm in plan.arms.items():
        found: list[str] = []
        try:
            sources[name] = find_recipe(arm.recipe).read_text(encoding="utf-8")
            settings = settings_of(plan, arm, matched, arm.points[0], plan.seeds[0])
            recipes[name], inputs = open_recipe(arm.recipe, settings=settings, allow_code=allow_code)
            if not matched:
                matched = _values(plan.match, recipes[name], found)
            if inputs.questions is None:
                found.append("no [evaluation], by whose reward and data arms are compared. Add one.")
            else:
                asked[name] = _asked(plan, arm, recipes[name], inputs.questions, settings, allow_code=allow_code)
            found += _mistakes_of_runs(plan, name, matched, allow_code=allow_code)
            found += _mistakes_of_tuning(plan, name, matched, asked.get(name), allow_code=allow_code)
        except RecipeError as error:
            found += error.mistakes
        except ValueError as error:
            found.append(str(error))
        mistakes += [f"arms.{name}: {line}" for line in dict.fromkeys(found)]
    mistakes += [*_mistakes_of_metrics(plan, recipes), *_mistakes_of_questions(asked)]
    if mistakes:
        raise RecipeError(mistakes, plan.name)
    return Ready(plan=plan, sources=sources, matched=matched, recipes=recipes, notes=tuple(unmatched(recipes)))


def _mistakes_of_runs(plan: Plan, name: str, matched: Mapping[str, Any], *, allow_code: bool) -> Iterator[str]:
    """Of an arm's recipe and its models with every other point, and with every other seed."""
    arm = plan.arms[name]
    runs = [(point, plan.seeds[0], False) for point in arm.points[1:]]
    runs += [(arm.points[0], seed, False) for seed in plan.seeds[1:]]
    if plan.tuning is not None and name in plan.tuned:
        runs += [(arm.points[0], seed, True) for seed in plan.tuning.seeds]
    for point, seed, tuning in runs:
        settings = settings_of(plan, arm, matched, point, seed, tuning=tuning)
        try:
            yield from open_tokenizers(read_recipe(arm.recipe, settings=settings, allow_code=allow_code))[1]
        except RecipeError as error:
            yield from error.mistakes


def _mistakes_of_tuning(
    plan: Plan, name: str, matched: Mapping[str, Any], asked: Asked | None, *, allow_code: bool
) -> Iterator[str]:
    """Held-out questions by which a point would be chosen; only settings of the tuning alone can bring them in."""
    arm = plan.arms[name]
    if plan.tuning is None or not plan.tuning.set or name not in plan.tuned or asked is None:
        return
    settings = settings_of(plan, arm, matched, arm.points[0], plan.tuning.seeds[0], tuning=True)
    questions = open_recipe(arm.recipe, settings=settings, allow_code=allow_code)[1].questions
    if questions is not None and (both := len({*questions.ids} & {*asked.held_out})):
        yield f"tuning.set: its evaluation asks {both} of the held-out questions. A choice may not see them."


def _asked(
    plan: Plan, arm: Arm, recipe: Recipe, questions: PromptSet, settings: Sequence[str], *, allow_code: bool
) -> Asked:
    assert recipe.evaluation is not None
    own = held_out_of(plan, arm.points[0], plan.seeds[0])
    held_out = held_out_questions(arm.recipe, settings, own, questions.ids, allow_code=allow_code)
    answers = answers_of(recipe, next(iter(recipe.learners)))
    return Asked(
        held_out=held_out.ids,
        in_run=questions.ids,
        reward=recipe.rewards[recipe.evaluation.reward],
        max_new_tokens=answers.max_new_tokens,
        stop=answers.stop,
    )


def _mistakes_of_questions(asked: Mapping[str, Asked]) -> Iterator[str]:
    """Arms that are not asked what the first one is."""
    first = next(iter(asked), "")
    for name, own in asked.items():
        differ = [key.name for key in fields(Asked) if getattr(own, key.name) != getattr(asked[first], key.name)]
        if differ:
            yield (
                f"arms.{name}: its evaluation differs from that of {first} in {', '.join(differ)}, so that their "
                "answers cannot be paired. Give both the same [evaluation], by `set` for example."
            )


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
    (first, base), *others = [(name, _amounts(recipe)) for name, recipe in recipes.items()]
    return [
        f"not matched: {name} has {key} = {_shown(value)}, and {first} {_shown(base[key])}"
        for name, amounts in others
        for key, value in amounts.items()
        if key in base and value != base[key]
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


def _mistakes_of_metrics(plan: Plan, recipes: Mapping[str, Recipe]) -> Iterator[str]:
    """Metrics that a plan names and no arm there will have."""
    for name in plan.tuned if plan.tuning else ():
        if (own := recipes.get(name)) is not None and own.evaluation is not None:
            known = {f"{policy}/{key}" for policy in own.learners for key in better_when_higher(own.evaluation.samples)}
            yield from _unknown(f"arms.{name}, tuning metric", plan.metric_of(name), known)
    policies = {policy for own in recipes.values() for policy in own.learners}
    known = {f"{policy}/{key}" for policy in policies for key in compared(plan.held_out.samples)}
    for metric in plan.equivalence if len(recipes) == len(plan.arms) else ():
        yield from _unknown("equivalence", metric, known)


def _unknown(place: str, metric: str, known: Collection[str]) -> Iterator[str]:
    if metric not in known:
        yield f"{place}: {metric}, which no run there has. Known: {', '.join(sorted(known))}."
