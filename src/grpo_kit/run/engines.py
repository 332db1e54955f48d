"""What this machine lacks for the engines of a recipe, found before anything is loaded."""

from collections.abc import Iterator

from grpo_kit.checks.asking import parts_of
from grpo_kit.config import RecipeError
from grpo_kit.engines import ENGINES
from grpo_kit.recipe import Recipe


def mistakes_of_engines(recipe: Recipe) -> list[str]:
    """Why engines of a recipe cannot start here, a line each, as far as they say (`absent`)."""
    found = [
        (place, problem)
        for place, role, engine in parts_of(recipe)
        if role is ENGINES and (problem := getattr(engine, "absent", lambda: None)())
    ]
    return [f"{place}: {problem}." for place, problem in found]


def refuse_absent(recipe: Recipe) -> None:
    """RecipeError where an engine of the recipe cannot start here."""
    if mistakes := mistakes_of_engines(recipe):
        raise RecipeError(mistakes, recipe.name)


def too_short(recipe: Recipe, longest_prompt: int) -> Iterator[str]:
    """Engines of samplers without room for the longest prompt and completion together."""
    longest = longest_prompt + getattr(recipe.sampler, "max_new_tokens", 0)
    for place, role, engine in parts_of(recipe):
        room = getattr(engine, "max_model_len", None)
        if role is ENGINES and place.startswith("sampler") and room is not None and longest > room:
            yield (
                f"{place}.max_model_len: the longest prompt ({longest_prompt} tokens) and its completion need "
                f"{longest} tokens, and it is {room}. Raise it, or lower max_new_tokens or max_prompt_tokens."
            )
