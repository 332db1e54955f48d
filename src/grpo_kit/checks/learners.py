"""Mistakes of one learner: terms, rewards and optimizer steps that do not fit one another or the rows there are."""

from collections.abc import Iterator

from grpo_kit.checks.advantages import idle_rewards, of_advantage, sees_rewards
from grpo_kit.checks.findings import Finding, cuts_mass, faults_of_weights, trained_rows
from grpo_kit.learner import Learner
from grpo_kit.recipe import Recipe
from grpo_kit.samplers.mixed import has_data_rows, has_sampled_rows
from grpo_kit.terms import CrossEntropy, DivergenceTerm, EntropyBonus, PolicyGradient, Term


def of_learner(recipe: Recipe, name: str, learner: Learner) -> Iterator[Finding]:
    """Mistakes of one learner; the lines begin below its table."""
    here = f"learners.{name}"
    terms = learner.terms.values()
    gradients = {key: term for key, term in learner.terms.items() if isinstance(term, PolicyGradient)}
    for key, term in gradients.items():
        yield from _policy_gradient(recipe, key, term)
        if has_sampled_rows(recipe.sampler):
            yield from of_advantage(recipe, name, learner, key, term)
    comparing = any(sees_rewards(term.advantage) for term in gradients.values())
    if comparing and not learner.rewards:
        needed = "rewards: a policy gradient needs rewards. Give weights, for example rewards = { correctness = 1.0 }."
        yield needed, f"{here}.rewards", f"{here}.terms.*.advantage"
    known = all(isinstance(term, PolicyGradient | DivergenceTerm | EntropyBonus | CrossEntropy) for term in terms)
    if learner.rewards and known and not comparing:
        idle = "rewards: no term of this learner reads rewards. Remove them, or add a policy_gradient term that does."
        yield idle, f"{here}.terms"
    elif known:
        for line in idle_rewards(learner):
            yield line, f"{here}.terms"
    yield from faults_of_weights("rewards", learner.rewards, recipe)
    once = learner.epochs == learner.mini_batches == 1
    for key, term in learner.terms.items():
        if term.weight == 0:
            yield (f"terms.{key}.weight: 0 does nothing. Remove the term.",)
        yield from _where(recipe, f"terms.{key}", term)
        if isinstance(term, DivergenceTerm) and term.importance and cuts_mass(recipe):
            yield (_biased(f"terms.{key}.importance"),)
        if isinstance(term, DivergenceTerm) and term.to == name and once:
            idle = f"terms.{key}.to: a divergence to itself has gradient 0 at the first update. Name another policy."
            yield idle, f"{here}.epochs", f"{here}.mini_batches"
    rows = trained_rows(recipe)
    if learner.mini_batches > rows:
        few = f"mini_batches: {learner.mini_batches} of {rows} rows a step; use at most one a row."
        yield few, "prompts_per_step", "sampler.samples", "selection"


def _where(recipe: Recipe, place: str, term: Term) -> Iterator[Finding]:
    """A choice of rows that leaves none, or all of those that the term can apply to."""
    rows = getattr(getattr(term, "where", None), "rows", None)
    of_a_writer = getattr(term, "needs_writer", False)
    if rows == "data" and of_a_writer:
        yield (f"{place}.where.rows: the term needs rows that a policy wrote, so of 'data' it has none. Remove it.",)
    if rows == "sampled" and (of_a_writer or not has_data_rows(recipe.sampler)):
        idle = f"{place}.where.rows: all rows that it could apply to are sampled. Remove it."
        yield idle, "sampler"


def _policy_gradient(recipe: Recipe, key: str, term: PolicyGradient) -> Iterator[Finding]:
    if cuts_mass(recipe) and (term.correction is not None or term.anchor == "behavior"):
        yield (_biased(f"terms.{key}"),)
    if term.baseline == "sampled" and recipe.selection is None:
        same = f"terms.{key}.baseline: 'sampled' is the same as 'selected' without a [selection]. Remove it."
        yield same, "selection"


def _biased(place: str) -> str:
    return (
        f"{place}: sampler.top_p, top_k or min_p cuts mass off, which biases quotients to the behavior policy. "
        "Sample with top_p = 1, top_k = 0 and min_p = 0."
    )
