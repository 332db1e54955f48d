"""Rewards that cannot say anything, and code that a recipe names."""

from collections.abc import Iterator

from grpo_kit.checks.findings import Finding, reward_weights
from grpo_kit.recipe import Recipe
from grpo_kit.rewards import KLPenalty, OnPolicyKD, Python, SoftOverlong
from grpo_kit.rewards.functions import resolve, signature_fault
from grpo_kit.samplers.mixed import has_sampled_rows, writers


def of_rewards(recipe: Recipe) -> Iterator[Finding]:
    """Rewards that nobody uses or that are always 0."""
    used = reward_weights(recipe).values()
    for name, reward in recipe.rewards.items():
        if not any(name in weights for weights in used):
            users = "no learner, selection, refill, curriculum or evaluation"
            unused = f"rewards.{name}: {users} uses it. Remove it, or give it a weight."
            places = ("learners.*.rewards", "selection.rewards", "refill.rewards", "curriculum", "evaluation.reward")
            yield unused, *places
        longest = getattr(recipe.sampler, "max_new_tokens", None)
        if isinstance(reward, SoftOverlong) and longest and longest <= reward.max_length - reward.cache:
            never = (
                f"rewards.{name}: no completion passes max_length - cache = {reward.max_length - reward.cache} tokens "
                f"(sampler.max_new_tokens = {longest}), so it is always 0. Lower max_length or raise cache."
            )
            yield never, "sampler.max_new_tokens"
        if isinstance(reward, OnPolicyKD):
            yield from _of_a_pair(recipe, name, student=reward.student, teacher=reward.teacher)
        if isinstance(reward, KLPenalty):
            yield from _of_a_pair(recipe, name, policy=reward.policy, reference=reward.reference)


def _of_a_pair(recipe: Recipe, name: str, **pair: str) -> Iterator[Finding]:
    """A reward that compares the policy that writes with another one: the two must differ, and the first must write."""
    (key, own), (other_key, other) = pair.items()
    writing = [policy for policy in writers(recipe.sampler) if policy in recipe.policies]
    if own == other:
        yield (f"rewards.{name}: {other_key} and {key} are the same policy, so the reward is always 0.",)
    elif not has_sampled_rows(recipe.sampler):
        silent = f"'{own}' writes no token (the rows are those of the data), so the reward is always 0"
        yield f"rewards.{name}.{key}: {silent}. Remove it, or let '{own}' sample.", "sampler"
    elif own not in writing and writing:
        sampling = " and ".join(f"'{policy}'" for policy in writing)
        samples = "samples" if len(writing) == 1 else "sample"
        silent = f"'{own}' writes no token ({sampling} {samples}), so the reward is always 0"
        yield f"rewards.{name}.{key}: {silent}. Use '{writing[0]}'.", "sampler.policy"


def of_code(recipe: Recipe, allow_code: bool) -> Iterator[Finding]:
    """Code that the recipe names: only with permission, and functions must exist."""
    for name, spec in recipe.policies.items():
        if spec.trust_remote_code and not allow_code:
            yield (f"policies.{name}.trust_remote_code: runs code of the model; allow it with --allow-code.",)
    for place, reward in _every_reward(recipe):
        if not isinstance(reward, Python) or not isinstance(reward.function, str):
            continue
        if not allow_code:
            yield (
                f"{place}.function: '{reward.function}' is code to run; allow it with --allow-code if you trust "
                "this recipe.",
            )
            continue
        try:
            fault = signature_fault(resolve(reward.function))
        except ValueError as error:
            yield (f"{place}.function: {error}.",)
        else:
            if fault:
                yield (f"{place}.function: '{reward.function}': {fault}.",)


def _every_reward(recipe: Recipe) -> Iterator[tuple[str, object]]:
    """Every reward with its place, those inside another (`grading`) too."""
    for name, outer in recipe.rewards.items():
        place, reward = f"rewards.{name}", outer
        while reward is not None:
            yield place, reward
            place, reward = f"{place}.grading", getattr(reward, "grading", None)
