"""Mistakes of one learner: terms, rewards and optimizer steps that do not fit one another or the rows there are."""

from collections.abc import Iterator

from grpo_kit.advantages import MaxRL, PassAtK, Summand
from grpo_kit.checks.findings import Finding, cuts_mass, group_size, names
from grpo_kit.learner import Learner
from grpo_kit.offers import inside
from grpo_kit.recipe import Recipe
from grpo_kit.rewards import CosineLength, KLPenalty, OnPolicyKD, Repetition, SoftOverlong
from grpo_kit.terms import DivergenceTerm, EntropyBonus, PolicyGradient


def of_learner(recipe: Recipe, name: str, learner: Learner) -> Iterator[Finding]:
    """Mistakes of one learner; the lines begin below its table."""
    here = f"learners.{name}"
    gradients = {key: term for key, term in learner.terms.items() if isinstance(term, PolicyGradient)}
    for key, term in gradients.items():
        yield from _policy_gradient(recipe, f"{here}.terms.{key}", term)
        yield from _advantage(recipe, f"{here}.terms.{key}", learner, term)
    if gradients and not learner.rewards:
        needed = "rewards: a policy gradient needs rewards. Give weights, for example rewards = { correctness = 1.0 }."
        yield needed, f"{here}.rewards"
    if learner.rewards and all(isinstance(term, DivergenceTerm | EntropyBonus) for term in learner.terms.values()):
        idle = "rewards: no term of this learner reads rewards. Remove them, or add a policy_gradient term."
        yield idle, f"{here}.terms"
    for key, value in learner.rewards.items():
        if not value:
            yield (f"rewards.{key}: weight 0 does nothing. Remove it.",)
    once = learner.epochs == learner.mini_batches == 1
    for key, term in learner.terms.items():
        if term.weight == 0:
            yield (f"terms.{key}.weight: 0 does nothing. Remove the term.",)
        if isinstance(term, DivergenceTerm) and term.importance and cuts_mass(recipe):
            yield (_biased(f"terms.{key}.importance"),)
        if isinstance(term, DivergenceTerm) and term.to == name and once:
            idle = f"terms.{key}.to: a divergence to itself has gradient 0 at the first update. Name another policy."
            yield idle, f"{here}.epochs", f"{here}.mini_batches"
    rows = group_size(recipe)[1] * recipe.prompts_per_step
    if learner.mini_batches > rows:
        few = f"mini_batches: {learner.mini_batches} of {rows} rows a step; use at most one a row."
        yield few, "prompts_per_step", "sampler.samples", "selection"


def _policy_gradient(recipe: Recipe, place: str, term: PolicyGradient) -> Iterator[Finding]:
    samples, keep = group_size(recipe)
    key = place.partition(".terms.")[2]
    compares = getattr(term.advantage, "compares_rows", False)
    if compares and samples < 2:
        alone = (
            f"terms.{key}.advantage: compares the rows of a group, and sampler.samples = {samples} gives groups of "
            "one: every advantage would be 0. Set sampler.samples to 2 or more."
        )
        yield alone, "sampler.samples", f"{place}.advantage"
    elif compares and term.baseline == "selected" and keep < 2:
        alone = f"terms.{key}.advantage: the selection keeps {keep} row a group, so each advantage is 0. Keep 2."
        yield alone, "selection", f"{place}.advantage", f"{place}.baseline"
    if cuts_mass(recipe) and (term.correction is not None or term.anchor == "behavior"):
        yield (_biased(f"terms.{key}"),)
    if term.baseline == "sampled" and recipe.selection is None:
        same = f"terms.{key}.baseline: 'sampled' is the same as 'selected' without a [selection]. Remove it."
        yield same, "selection"


def _biased(place: str) -> str:
    return (
        f"{place}: sampler.top_p or top_k cuts mass off, which biases quotients to the behavior policy. "
        "Sample with top_p = 1 and top_k = 0."
    )


def _advantage(recipe: Recipe, place: str, learner: Learner, term: PolicyGradient) -> Iterator[Finding]:
    """What an advantage, or one inside it, cannot do with these rewards and groups."""
    here, group = f"terms.{place.partition('.terms.')[2]}.advantage", group_size(recipe)[term.baseline == "selected"]
    for part in inside(term.advantage):
        if isinstance(part, PassAtK) and part.k > max(group, 2):
            few = f"{here}: k = {part.k} of {group} rows a group; use at most {group}, or sample more."
            yield few, "sampler.samples", "selection", f"{place}.advantage"
        if isinstance(part, Summand):
            for name in part.rewards or ():
                if name not in learner.rewards:
                    absent = f"{here}: '{name}' is no reward of this learner. Its rewards: {names(learner.rewards)}."
                    yield absent, f"{place.partition('.terms.')[0]}.rewards", f"{place}.advantage"
    if isinstance(term.advantage, MaxRL):
        for name, weight in learner.rewards.items():
            if weight < 0 or _falls_below_zero(recipe.rewards.get(name)):
                why = f"its weight is {weight:g}" if weight < 0 else "it can be below 0"
                negative = (
                    f"{here}: max_rl divides by the mean reward and needs rewards of at least 0; '{name}': {why}."
                )
                yield negative, f"rewards.{name}", f"{place.partition('.terms.')[0]}.rewards"


def _falls_below_zero(reward: object) -> bool:
    """Whether a reward is known to be negative sometimes."""
    if isinstance(reward, CosineLength):
        return min(*reward.correct, *reward.wrong, reward.exceed) < 0
    return isinstance(reward, KLPenalty | OnPolicyKD | Repetition | SoftOverlong)
