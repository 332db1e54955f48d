"""Mistakes between the parts of a recipe that say which rows there are: sampler, selection, refill, curriculum."""

from collections.abc import Iterator

from grpo_kit.checks.findings import Finding, falls_below_zero, group_size
from grpo_kit.offers import asks, inside
from grpo_kit.recipe import Recipe
from grpo_kit.samplers import Grouped, Hinted
from grpo_kit.samplers.mixed import Mixed, has_data_rows, has_sampled_rows, places_of, portions, writers
from grpo_kit.samplers.replay import Replay
from grpo_kit.selections import Spread
from grpo_kit.terms import PolicyGradient


def of_sampling(recipe: Recipe) -> Iterator[Finding]:
    """Mistakes about which rows are sampled and kept."""
    for place, sampler in places_of(recipe.sampler).items():
        for key, greedy in (("temperature", 0), ("top_k", 1)):
            if getattr(sampler, key, None) == greedy:
                same = "is greedy: a group's rows would all be the same"
                yield (f"{place}.{key}: {greedy} {same}. Use more than {greedy}.",)
        yield from _syncs(recipe, place, sampler)
    yield from _mixture(recipe)
    yield from _replay(recipe)
    yield from _data_rows(recipe)
    if has_sampled_rows(recipe.sampler):
        yield from _selection(recipe)
    yield from _refill(recipe)
    yield from _curriculum(recipe)
    yield from _greedy_rows(recipe)


def _syncs(recipe: Recipe, place: str, sampler: object) -> Iterator[Finding]:
    """A pace of syncs where there is nothing to sync, or where a buffer decides when there is."""
    if getattr(sampler, "sync_every", 1) == 1:
        return
    if isinstance(recipe.sampler, Replay):
        filled = "a buffer's engine is synced whenever it is filled, so this changes nothing"
        yield f"{place}.sync_every: {filled}. Remove it; sampler.refresh says when rows are written anew.", "sampler"
        return
    for name in getattr(sampler, "reads", ()):
        if name in recipe.policies and name not in recipe.learners and recipe.policies[name].follows is None:
            still = f"'{name}' does not learn, so there is nothing to sync"
            yield f"{place}.sync_every: {still}. Remove it.", f"learners.{name}"


def _mixture(recipe: Recipe) -> Iterator[Finding]:
    """A sampler of a mixture that never gets a prompt."""
    for place, _, prompts in portions(recipe.sampler, recipe.prompts_per_step):
        if prompts == 0:
            none = f"{place.removesuffix('.sampler')}.share: of {recipe.prompts_per_step} prompts a step it gets none"
            yield f"{none}. Raise it, or prompts_per_step.", "prompts_per_step", "sampler"


def _replay(recipe: Recipe) -> Iterator[Finding]:
    """A buffer that is written anew by a rule that cannot be followed, or too late."""
    sampler = recipe.sampler
    if not isinstance(sampler, Replay) or sampler.refresh is None:
        return
    if sampler.refresh.overlap_below is not None and not recipe.frozen_details():
        none = "no frozen policy is read, so there is no teacher to overlap with"
        yield f"sampler.refresh.overlap_below: {none}. Use every, or a teacher.", "learners.*.terms", "policies.*"
    if sampler.refresh.overlap_below is not None and not any(name in recipe.learners for name in writers(sampler)):
        none = "no policy that learns writes the rows, so the overlap would stay as it is"
        yield f"sampler.refresh.overlap_below: {none}. Let one that learns write.", "sampler.of", "learners"
    every, allowed = sampler.refresh.every, sampler.max_age
    for name, learner in recipe.learners.items():
        oldest = ((every or 1) - 1) * learner.epochs * learner.mini_batches
        if allowed is not None and name in writers(sampler) and oldest > allowed:
            yield (
                f"sampler.max_age: before a writing anew the rows of '{name}' are {oldest} optimizer steps old, and "
                f"the run would end there. Raise max_age = {allowed} to {oldest}, or lower refresh.every.",
                "sampler.refresh",
                f"learners.{name}",
            )


def _data_rows(recipe: Recipe) -> Iterator[Finding]:
    """Rows of a data set where only rows that some policy wrote are of use, and the other way round."""
    if recipe.refill is not None and has_data_rows(recipe.sampler):
        dropped = "a group is kept by rewards of rows that a policy wrote, so those of the data would all be dropped"
        yield f"refill: {dropped}. Remove [refill], or the sampler 'data_rows'.", "sampler", "refill"
    only_data = not has_sampled_rows(recipe.sampler)
    for key in ("selection", "curriculum"):
        if only_data and getattr(recipe, key) is not None:
            idle = "goes by rewards of rows that a policy wrote, and all rows are those of the data"
            yield f"{key}: it {idle}. Remove [{key}].", "sampler", key
    for name, learner in recipe.learners.items():
        for key, term in learner.terms.items():
            here, rows = f"learners.{name}.terms.{key}", getattr(getattr(term, "where", None), "rows", None)
            if only_data and (rows == "sampled" or getattr(term, "needs_writer", False)):
                kind = getattr(term, "kind", "the term")
                yield (
                    f"{here}: '{kind}' needs rows that a policy wrote, and sampler 'data_rows' gives those of the data "
                    "alone. Use sampler 'transformers' or 'mixed', or { kind = 'cross_entropy' } to learn from the "
                    "data.",
                    "sampler",
                    here,
                )
            if rows == "data" and not has_data_rows(recipe.sampler):
                yield (
                    f"{here}: applies to rows of the data alone, and the sampler gives none. Use sampler 'data_rows' "
                    "or 'mixed', or let where choose other rows.",
                    "sampler",
                    here,
                )


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
    writes, several = getattr(recipe.sampler, "greedy", None), isinstance(recipe.sampler, Mixed | Grouped | Hinted)
    asking = [
        f"learners.{name}.terms.{key}.advantage"
        for name, learner in recipe.learners.items()
        for key, term in learner.terms.items()
        if isinstance(term, PolicyGradient) and any("greedy_rewards" in asks(own) for own in inside(term.advantage))
    ]
    if writes is False or several:
        remedy = "Use sampler 'transformers' with greedy = true." if several else "Set sampler.greedy = true."
        for place in asking:
            missing = f"{place}: compares with the reward of a greedy completion, and none is written. "
            yield missing + remedy, "sampler.greedy", place
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
