"""Mistakes of one policy gradient's advantage: what it, or one inside it, cannot do with these rewards and groups."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from grpo_kit.advantages import Advantage, MaxRL, PassAtK, PerComponent, WeightedSum
from grpo_kit.advantages.live import is_live, live
from grpo_kit.checks.findings import Finding, falls_below_zero, faults_of_weights, group_size, names
from grpo_kit.learner import Learner
from grpo_kit.offers import inside
from grpo_kit.recipe import Recipe
from grpo_kit.terms import PolicyGradient


@dataclass(frozen=True, kw_only=True, slots=True)
class Seeing:
    """An advantage with the rewards that it sees.

    Attributes:
        place: below the learner's table.
        advantage: itself.
        weights: of the rewards whose sum it sees.
        owner: whose rewards these are, for a sentence.
        single: whether it sees one of them at a time.
    """

    place: str
    advantage: Advantage
    weights: Mapping[str, float]
    owner: str = "this learner"
    single: bool = False


def seeing(whole: Seeing) -> Iterator[Seeing]:
    """An advantage, then those inside `weighted_sum` and `per_component`, each with what it sees."""
    yield whole
    here, part = whole.place, whole.advantage
    if isinstance(part, PerComponent):
        alone = dict.fromkeys(whole.weights, 1.0)
        yield from seeing(Seeing(place=f"{here}.advantage", advantage=part.advantage, weights=alone, single=True))
    for number, summand in enumerate(part.of) if isinstance(part, WeightedSum) else ():
        inner = replace(whole, place=f"{here}.of.{number}.advantage", advantage=summand.advantage)
        if summand.rewards is not None:
            inner = replace(inner, weights=summand.rewards, owner=f"the summand {here}.of.{number}")
        yield from seeing(inner)


def of_advantage(recipe: Recipe, name: str, learner: Learner, key: str, term: PolicyGradient) -> Iterator[Finding]:
    """Mistakes of a term's advantage; the lines begin below the learner's table."""
    here = f"terms.{key}.advantage"
    judged_by = (f"learners.{name}.{here}", f"learners.{name}.rewards")
    everything = list(seeing(Seeing(place=here, advantage=term.advantage, weights=learner.rewards)))
    for line, *places in _groups_of_one(recipe, term, everything):
        yield line, *places, judged_by[0], f"learners.{name}.terms.{key}.baseline"
    for found in everything:
        if is_live(found.advantage) and found.single:
            alone = "looks at no reward, so there is nothing to take by component"
            yield f"{found.place}: {alone}. Add it by weighted_sum.", judged_by[0]
    for _, own in live(term.advantage) if not any(found.single for found in everything) else ():
        if own.teacher == name:
            yield (f"{here}: its teacher is '{name}' itself, so it is always 0. Name another policy.",)
    group = group_size(recipe)[term.baseline == "selected"]
    for part in inside(term.advantage):
        if isinstance(part, PassAtK) and part.k > max(group, 2):
            few = f"{here}: k = {part.k} of {group} rows a group; use at most {group}, or sample more."
            yield few, "sampler.samples", "selection", judged_by[0]
    for found in everything:
        for line, *places in (*_own_rewards(recipe, found), *_negative(recipe, found)):
            yield line, *places, *judged_by


def sees_rewards(advantage: Advantage) -> bool:
    """Whether an advantage, or one inside it, looks at rewards: all do but live ones."""
    everything = seeing(Seeing(place="", advantage=advantage, weights={}))
    return any(not (isinstance(own.advantage, WeightedSum) or is_live(own.advantage)) for own in everything)


def idle_rewards(learner: Learner) -> Iterator[str]:
    """Rewards that no policy gradient of the learner sees, each summand having rewards of its own."""
    used: set[str] = set()
    for term in learner.terms.values():
        if isinstance(term, PolicyGradient):
            everything = seeing(Seeing(place="", advantage=term.advantage, weights=learner.rewards))
            holders = (WeightedSum, PerComponent)
            leaves = [own for own in everything if not (isinstance(own.advantage, holders) or is_live(own.advantage))]
            used |= {name for own in leaves for name in own.weights}
    for name in learner.rewards:
        if name not in used:
            none = "every summand has rewards of its own, and none has this one"
            yield f"rewards.{name}: {none}. Remove it, or give it to a summand."


def _groups_of_one(recipe: Recipe, term: PolicyGradient, everything: list[Seeing]) -> Iterator[Finding]:
    """An advantage that compares the rows of a group, or one inside it, where groups have one row."""
    samples, keep = group_size(recipe)
    comparing = [found.place for found in everything if getattr(found.advantage, "compares_rows", False)]
    if comparing and samples < 2:
        alone = (
            f"{comparing[0]}: compares the rows of a group, and sampler.samples = {samples} gives groups of one: "
            "every advantage would be 0. Set sampler.samples to 2 or more."
        )
        yield alone, "sampler.samples"
    elif comparing and term.baseline == "selected" and keep < 2:
        yield f"{comparing[0]}: the selection keeps {keep} row a group, so each advantage is 0. Keep 2.", "selection"


def _own_rewards(recipe: Recipe, outer: Seeing) -> Iterator[Finding]:
    """Rewards of a summand are some of those that the whole sum sees, and do something."""
    for number, summand in enumerate(outer.advantage.of) if isinstance(outer.advantage, WeightedSum) else ():
        place, weights = f"{outer.place}.of.{number}.rewards", summand.rewards or {}
        if weights and outer.single:
            yield (f"{place}: 'per_component' hands on one reward at a time, so there is none to choose. Remove them.",)
            continue
        for name in weights:
            if name not in outer.weights:
                yield (f"{place}: '{name}' is no reward of {outer.owner}. Its rewards: {names(outer.weights)}.",)
        yield from faults_of_weights(place, weights, recipe)


def _negative(recipe: Recipe, found: Seeing) -> Iterator[Finding]:
    """Rewards known to be negative, for an advantage that needs others."""
    for name, weight in found.weights.items() if isinstance(found.advantage, MaxRL) else ():
        if weight < 0 or falls_below_zero(recipe.rewards.get(name)):
            why = f"its weight is {weight:g}" if weight < 0 else "it can be below 0"
            needs = "max_rl divides by the mean reward and needs rewards of at least 0"
            yield f"{found.place}: {needs}; '{name}': {why}.", f"rewards.{name}"
