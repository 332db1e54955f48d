"""What no part can see alone: mistakes between the parts of a recipe, and between a recipe and the world."""

from collections.abc import Collection, Iterator

from grpo_kit.checks.asking import of_asking
from grpo_kit.checks.checkpoints import of_checkpoints
from grpo_kit.checks.findings import Finding, reward_weights, unknown
from grpo_kit.checks.learners import of_learner
from grpo_kit.checks.policies import of_policies, shared_vocabulary
from grpo_kit.checks.rewards import of_code, of_rewards
from grpo_kit.checks.sampling import of_evaluation, of_sampling
from grpo_kit.recipe import Recipe


def cross_checks(recipe: Recipe, *, allow_code: bool = False, removed: Collection[str] = ()) -> list[str]:
    """Every mistake that can be seen without loading anything, a line each.

    `removed` are the places of a faulty recipe that had to be taken out to read the rest. What is judged by one of
    them is not reported: it may only follow from the mistake there.
    """
    found = [*_undefined(recipe), *of_policies(recipe), *of_rewards(recipe), *of_code(recipe, allow_code)]
    found += [*of_sampling(recipe), *of_evaluation(recipe), *of_asking(recipe), *of_checkpoints(recipe)]
    for name, learner in recipe.learners.items():
        found += [(f"learners.{name}.{line}", *places) for line, *places in of_learner(recipe, name, learner)]
    return [line for line, *places in found if not any(_overlap(gone, place) for gone in removed for place in places)]


def _overlap(one: str, other: str) -> bool:
    """Whether one place lies in the other."""
    return all(a == b or "*" in (a, b) for a, b in zip(one.split("."), other.split("."), strict=False))


def _undefined(recipe: Recipe) -> Iterator[Finding]:
    """Names of policies and rewards that nothing defines."""
    for name in recipe.learners:
        if name not in recipe.policies:
            absent = unknown("policy", name, recipe.policies)
            yield f"learners.{name}: {absent} A learner has its policy's name.", f"policies.{name}"
    for place, policies in recipe.readers().items():
        for policy in dict.fromkeys(policies):
            trained_here = place.startswith("learners.") and policy in recipe.learners
            if policy not in recipe.policies and not trained_here:
                yield f"{place}: {unknown('policy', policy, recipe.policies)}", f"policies.{policy}", f"{place}.policy"
    for place, weights in reward_weights(recipe).items():
        for name in weights:
            if name not in recipe.rewards:
                yield f"{place}: {unknown('reward', name, recipe.rewards)}", f"rewards.{name}"


__all__ = ["cross_checks", "shared_vocabulary"]
