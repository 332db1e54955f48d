"""What a check finds, and what several checks need to know of a recipe."""

from collections.abc import Mapping

from grpo_kit.parts import did_you_mean
from grpo_kit.recipe import Recipe

Finding = tuple[str, ...]
"""A mistake, then the places of the recipe that it is judged by, `*` for any name."""


def group_size(recipe: Recipe) -> tuple[int, int]:
    """Rows sampled a prompt, and rows of them trained on at most."""
    samples = getattr(recipe.sampler, "samples", 2)
    return samples, getattr(recipe.selection.rule, "keep", samples) if recipe.selection else samples


def cuts_mass(recipe: Recipe) -> bool:
    """Whether the sampler draws from less than the whole distribution, so that quotients to it are biased."""
    return getattr(recipe.sampler, "top_p", 1) < 1 or getattr(recipe.sampler, "top_k", 0) > 0


def reward_weights(recipe: Recipe) -> dict[str, Mapping[str, float]]:
    """Every place of a recipe that weighs rewards, with the weights."""
    used = {f"learners.{name}.rewards": learner.rewards for name, learner in recipe.learners.items()}
    if recipe.selection is not None:
        used["selection.rewards"] = recipe.selection.rewards
    if recipe.refill is not None:
        used["refill.rewards"] = recipe.refill.rewards
    if recipe.curriculum is not None:
        used["curriculum.reward"] = {recipe.curriculum.reward: 1.0}
    if recipe.evaluation is not None:
        used["evaluation.reward"] = {recipe.evaluation.reward: 1.0}
    return used


def unknown(what: str, name: str, known: Mapping[str, object]) -> str:
    """That there is no such policy or reward, what was perhaps meant, and which there are."""
    return f"there is no {what} '{name}'.{did_you_mean(name, known)} Known: {names(known)}."


def names(table: Mapping[str, object]) -> str:
    """The names in a table, for a sentence."""
    return ", ".join(table) or "none"
