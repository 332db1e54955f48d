"""Mistakes between the parts of a recipe that say which rows there are: sampler, selection, refill, curriculum."""

from collections.abc import Iterator

from grpo_kit.checks.findings import Finding, falls_below_zero, group_size
from grpo_kit.offers import asks, inside
from grpo_kit.recipe import Recipe
from grpo_kit.selections import Spread
from grpo_kit.terms import PolicyGradient


def of_sampling(recipe: Recipe) -> Iterator[Finding]:
    """Mistakes about which rows are sampled and kept."""
    for key, greedy in (("temperature", 0), ("top_k", 1)):
        if getattr(recipe.sampler, key, None) == greedy:
            yield (f"sampler.{key}: {greedy} is greedy: a group's rows would all be the same. Use more than {greedy}.",)
    yield from _selection(recipe)
    yield from _refill(recipe)
    yield from _curriculum(recipe)
    yield from _greedy_rows(recipe)


def _selection(recipe: Recipe) -> Iterator[Finding]:
    samples, keep = group_size(recipe)
    if recipe.selection and hasattr(recipe.selection.rule, "keep") and keep >= samples:
        everything = (
            f"selection.rule: keeps {keep} of {samples} samples a prompt, so it would drop nothing. "
            "Raise sampler.samples, lower what it keeps, or remove [selection]."
        )
        yield everything, "sampler.samples", "selection.rule"
    for place, settings in (("selection", recipe.selection), ("refill", recipe.refill)):
        if settings and isinstance(settings.rule, Spread) and samples < 2:
            alone = (
                f"{place}.rule: 'spread' drops groups of one row, and sampler.samples = {samples} makes no others. Set "
                "sampler.samples to 2 or more."
            )
            yield alone, "sampler.samples", f"{place}.rule"
        for name, weight in settings.rewards.items() if settings else ():
            if not weight:
                yield (f"{place}.rewards.{name}: weight 0 does nothing. Remove it.",)


def _refill(recipe: Recipe) -> Iterator[Finding]:
    if recipe.refill and hasattr(recipe.refill.rule, "keep"):
        kind = getattr(recipe.refill.rule, "kind", "the rule")
        in_part = (
            f"refill.rule: '{kind}' keeps some rows of a group, and a refill keeps or drops a group whole. Use "
            "{ kind = 'spread' }, and [selection] for some rows of a group."
        )
        yield in_part, "refill.rule"


def _curriculum(recipe: Recipe) -> Iterator[Finding]:
    reward = recipe.curriculum and recipe.rewards.get(recipe.curriculum.reward)
    if recipe.curriculum and getattr(reward, "reads", ()):
        yield (
            f"curriculum.reward: '{recipe.curriculum.reward}' compares policies and says nothing of right or wrong. "
            "Name a reward that is 1 for a correct completion.",
        )
    elif recipe.curriculum and falls_below_zero(reward):
        below = f"'{recipe.curriculum.reward}' can be below 0, and a pass rate is from 0 to 1"
        yield (
            f"curriculum.reward: {below}. Name a reward that is 1 for a correct completion.",
            f"rewards.{recipe.curriculum.reward}",
        )


def _greedy_rows(recipe: Recipe) -> Iterator[Finding]:
    """The greedy row of a group is there for an advantage that compares with it, and only for one."""
    writes = getattr(recipe.sampler, "greedy", None)
    asking = [
        f"learners.{name}.terms.{key}.advantage"
        for name, learner in recipe.learners.items()
        for key, term in learner.terms.items()
        if isinstance(term, PolicyGradient) and any("greedy_rewards" in asks(own) for own in inside(term.advantage))
    ]
    if writes is False:
        for place in asking:
            missing = f"{place}: compares with the reward of a greedy completion, and none is written. "
            yield missing + "Set sampler.greedy = true.", "sampler.greedy", place
    if writes and not asking:
        idle = "sampler.greedy: no advantage asks for greedy_rewards, so the greedy rows would be of no use. "
        yield idle + "Remove it, or use an advantage that compares with them.", "sampler.greedy", "learners.*.terms"


def of_evaluation(recipe: Recipe) -> Iterator[Finding]:
    """An evaluation that says nothing new, or nothing of right and wrong."""
    if recipe.evaluation is None:
        return
    if recipe.evaluation.data == recipe.data:
        same = "evaluation.data: these are the training questions. Give the keys that differ, for example "
        yield same + 'data = { split = "eval" }.', "data", "evaluation.data"
    reward = recipe.rewards.get(recipe.evaluation.reward)
    if getattr(reward, "reads", ()):
        yield (
            f"evaluation.reward: '{recipe.evaluation.reward}' compares policies and says nothing of right or wrong. "
            "Name a reward that is 1 for a correct completion.",
        )
