"""Which log-probabilities and distributions a step has, which policy computes each, and who reads it."""

from dataclasses import dataclass

from grpo_kit.advantages.live import live
from grpo_kit.detail import Detail
from grpo_kit.divergences.distance import over_vocabulary
from grpo_kit.formula import name as in_latex
from grpo_kit.recipe import Recipe
from grpo_kit.run.buffering import kept_details
from grpo_kit.samplers.mixed import has_sampled_rows, writers
from grpo_kit.terms import DivergenceTerm, PolicyGradient


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    r"""One policy's log-probabilities of the tokens of a step, with as much of its distributions as is read.

    Attributes:
        symbol: as in the formulas (LaTeX).
        policy: who computes it.
        when: `sampled` (comes with the rows), `kept` (comes from the buffer), `scored` (once a step, without gradient)
            or `current` (at every optimizer step, with gradient).
        detail: what comes with them: entropies, the likeliest tokens, whole distributions.
        readers: the places in the recipe that use it.
    """

    symbol: str
    policy: str
    when: str
    detail: Detail
    readers: tuple[str, ...]


def signals(recipe: Recipe) -> tuple[Signal, ...]:
    """Every signal of a step: the behavior policy's, then the scored ones, then each learner's current ones."""
    terms = {f"learners.{name}.terms.{key}": t for name, own in recipe.learners.items() for key, t in own.terms.items()}
    behavior = tuple(place for place, term in terms.items() if _reads_behavior(term))
    found: list[Signal] = []
    if has_sampled_rows(recipe.sampler):
        by = ", ".join(writers(recipe.sampler)) or "the sampler"
        found.append(Signal(symbol=r"\mu", policy=by, when="sampled", detail=Detail(), readers=behavior))
    places = recipe.readers()
    for policy, detail in recipe.details().items():
        readers = tuple(place for place, read in places.items() if place != "sampler" and policy in read)
        when = "kept" if policy in kept_details(recipe) else "scored"
        found.append(Signal(symbol=scored_symbol(policy), policy=policy, when=when, detail=detail, readers=readers))
    for name, learner in recipe.learners.items():
        own = tuple(place for place in terms if place.startswith(f"learners.{name}.terms."))
        whole = any(_reads_distributions(term) for term in learner.terms.values())
        detail = Detail(entropy=learner.needs_entropy, full=whole)
        found.append(Signal(symbol=r"\pi_\theta", policy=name, when="current", detail=detail, readers=own))
    return tuple(found)


def scored_symbol(policy: str) -> str:
    """A policy with its weights at sampling time, as LaTeX."""
    return rf"\pi_{{{in_latex(policy)}}}"


def _reads_distributions(term: object) -> bool:
    """Whether a term compares the current distributions with another policy's, token by token."""
    if isinstance(term, PolicyGradient):
        return any(own.detail != Detail() for _, own in live(term.advantage))
    return isinstance(term, DivergenceTerm) and over_vocabulary(term.divergence)


def _reads_behavior(term: object) -> bool:
    if isinstance(term, DivergenceTerm):
        return term.importance
    return isinstance(term, PolicyGradient) and (term.anchor == "behavior" or term.correction is not None)
