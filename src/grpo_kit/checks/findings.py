"""What a check finds, and what several checks need to know of a recipe."""

from collections.abc import Iterator, Mapping

from grpo_kit.parts import did_you_mean
from grpo_kit.recipe import Recipe
from grpo_kit.rewards import CosineLength, KLPenalty, OnPolicyKD, Repetition, SoftOverlong
from grpo_kit.samplers.mixed import places_of, portions

Finding = tuple[str, ...]
"""A mistake, then the places of the recipe that it is judged by, `*` for any name."""


def group_size(recipe: Recipe) -> tuple[int, int]:
    """Rows sampled a prompt, and rows of them trained on at most."""
    samples = getattr(recipe.sampler, "samples", 2)
    return samples, getattr(recipe.selection.rule, "keep", samples) if recipe.selection else samples


def trained_rows(recipe: Recipe) -> int:
    """Rows of a step that are trained on at most."""
    keep = group_size(recipe)[1]
    found = portions(recipe.sampler, recipe.prompts_per_step)
    return sum(prompts * min(keep, getattr(own, "samples", keep)) for _, own, prompts in found)


def cuts_mass(recipe: Recipe) -> bool:
    """Whether the sampler draws from less than the whole distribution, so that quotients to it are biased."""
    found = places_of(recipe.sampler).values()
    return any(
        getattr(own, "top_p", 1) < 1 or getattr(own, "top_k", 0) > 0 or getattr(own, "min_p", 0) > 0 for own in found
    )


def reward_weights(recipe: Recipe) -> dict[str, Mapping[str, float]]:
    """Every place of a recipe that weighs rewards, with the weights."""
    used = {f"learners.{name}.rewards": learner.rewards for name, learner in recipe.learners.items()}
    for name, learner in recipe.learners.items():
        for key, term in learner.terms.items():
            if reward := getattr(getattr(term, "where", None), "reward", None):
                used[f"learners.{name}.terms.{key}.where"] = {reward: 1.0}
    if recipe.selection is not None:
        used["selection.rewards"] = recipe.selection.rewards
    if recipe.refill is not None:
        used["refill.rewards"] = recipe.refill.rewards
    if recipe.curriculum is not None:
        used["curriculum.reward"] = {recipe.curriculum.reward: 1.0}
    if recipe.evaluation is not None:
        used["evaluation.reward"] = {recipe.evaluation.reward: 1.0}
    return used


def faults_of_weights(place: str, weights: Mapping[str, float], recipe: Recipe) -> Iterator[Finding]:
    """Weights of a sum to learn from: none is 0, and a reward with an adaptive factor has no other."""
    for name, weight in weights.items():
        reward = recipe.rewards.get(name)
        if not weight:
            yield (f"{place}.{name}: weight 0 does nothing. Remove it.",)
        elif isinstance(reward, KLPenalty) and reward.adaptive is not None and weight != 1:
            second = f"adaptive is the factor of the reward, so weight {weight:g} would be a second one"
            yield f"{place}.{name}: {second}; use weight 1 and set adaptive.start.", f"rewards.{name}"


def falls_below_zero(reward: object) -> bool:
    """Whether a reward is known to be negative sometimes."""
    if isinstance(reward, CosineLength):
        return min(*reward.correct, *reward.wrong, reward.exceed) < 0
    return isinstance(reward, KLPenalty | OnPolicyKD | Repetition | SoftOverlong)


def unknown(what: str, name: str, known: Mapping[str, object]) -> str:
    """That there is no such policy or reward, what was perhaps meant, and which there are."""
    return f"there is no {what} '{name}'.{did_you_mean(name, known)} Known: {names(known)}."


def names(table: Mapping[str, object]) -> str:
    """The names in a table, for a sentence."""
    return ", ".join(table) or "none"
