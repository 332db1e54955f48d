"""Parts and functions that ask for what nobody makes, or remember where nobody keeps it, are named at the start."""

from dataclasses import dataclass, replace
from typing import Annotated

import pytest
import torch

from grpo_kit import GroupMean, read_recipe
from grpo_kit.advantages import ADVANTAGES, Summand, WeightedSum
from grpo_kit.advantages.role import Advantage
from grpo_kit.checks import cross_checks
from grpo_kit.corrections import ImportanceWeight, Product
from grpo_kit.entry_points import InstalledFunction
from grpo_kit.offers import OFFERS, inside
from grpo_kit.parts import part
from grpo_kit.roles import ROLES

TERM = "learners.large.terms.policy"
CAN = "It can ask for mask, token_rewards, components, weights, greedy_rewards, state; other parameters need a default."


def mistakes(**fields):
    """What is said of codistill with these fields of its large learner's policy gradient."""
    recipe = read_recipe("codistill")
    large = recipe.learners["large"]
    term = replace(large.terms["policy"], **fields)
    return cross_checks(replace(recipe, learners=recipe.learners | {"large": replace(large, terms={"policy": term})}))


def with_lengths(rewards, groups, lengths):
    return rewards / lengths


def misspelt(rewards, groups, *, maks):
    return rewards


def allowed(r, g, mask, *, weights, components, token_rewards, other=1):
    return r


@dataclass(frozen=True)
class Remembering:
    """Asks for a state and has a first one."""

    def init(self):
        return 0

    def __call__(self, one, two, state):
        return one, state


@dataclass(frozen=True)
class Forgetful:
    """Has a first state and never asks for it."""

    def init(self):
        return 0

    def __call__(self, one, two):
        return one


@dataclass(frozen=True)
class AtUpdate:
    """A correction of every update that wants the groups."""

    at_update = True

    def __call__(self, log_ratio, mask, groups):
        return log_ratio


@part("outer")
class Outer:
    """Holds an advantage, and a function of another kind that is nobody's business."""

    advantage: Annotated[Advantage, ADVANTAGES]
    shape: object = max

    def __call__(self, rewards, groups, **offers):
        return rewards


LENGTHS = f"asks for 'lengths', which no advantage gets. {CAN}"
WITH_MEMORY = "Parts with memory: rewards, selections, advantages."
NO_KEEPER = f"has `init`, and nothing keeps the state of a {{}}. {WITH_MEMORY}"
PLAIN = "the first of every advantage are (rewards, groups), under any names. Put those before what it asks for."

CASES = {
    "an unknown offer": ({"advantage": with_lengths}, "advantage", LENGTHS),
    "a misspelt offer": (
        {"advantage": misspelt},
        "advantage",
        f"asks for 'maks', which no advantage gets. Did you mean 'mask'? {CAN}",
    ),
    "of a package": ({"advantage": InstalledFunction(kind="own", function=with_lengths)}, "advantage", LENGTHS),
    "inside a sum": (
        {"advantage": WeightedSum(of=(Summand(advantage=GroupMean()), Summand(advantage=with_lengths)))},
        "advantage.of.1.advantage",
        LENGTHS,
    ),
    "inside another's part": (
        {"advantage": Outer(advantage=with_lengths, shape=lambda a, b, c: a)},
        "advantage.advantage",
        LENGTHS,
    ),
    "an offer in the place of a plain input": (
        {"advantage": lambda rewards, mask: rewards},
        "advantage",
        f"begins with the parameters (rewards, mask); {PLAIN}",
    ),
    "too few plain inputs": (
        {"advantage": lambda rewards: rewards},
        "advantage",
        f"begins with the parameters (rewards); {PLAIN}",
    ),
    "a surrogate of groups": (
        {"surrogate": lambda log_ratio, advantages, groups: log_ratio},
        "surrogate",
        "asks for 'groups', which no surrogate gets. It can ask for mask, logprobs; other parameters need a default.",
    ),
    "a ratio of more": (
        {"ratio": lambda log_ratio, mask, groups: log_ratio},
        "ratio",
        "asks for 'groups', which no ratio gets. It can ask for nothing; other parameters need a default.",
    ),
    "groups at an update": (
        {"correction": Product(of=(ImportanceWeight(), AtUpdate()))},
        "correction.of.1",
        "asks for 'groups', which no correction gets. It can ask for advantages; other parameters need a default.",
    ),
    "memory of a correction": ({"correction": Remembering()}, "correction", NO_KEEPER.format("correction")),
    "memory of a surrogate": ({"surrogate": Forgetful()}, "surrogate", NO_KEEPER.format("surrogate")),
    "a state for a ratio": (
        {"ratio": lambda log_ratio, mask, state: log_ratio},
        "ratio",
        f"asks for 'state', and nothing keeps the state of a ratio. {WITH_MEMORY}",
    ),
    "a first state that is not asked for": (
        {"advantage": Forgetful()},
        "advantage",
        "has `init` and does not ask for `state`. Name it, and return (value, state); or remove `init`.",
    ),
    "a state without a first one": (
        {"advantage": lambda rewards, groups, state: (rewards, state)},
        "advantage",
        "asks for `state` and has no `init` that makes the first one. Give it one, or remove `state`.",
    ),
}
"""Name: fields of a policy gradient, the place of the mistake, what is said of it."""


@pytest.mark.parametrize("name", CASES)
def test_a_part_that_cannot_be_called_is_named_at_the_start(name):
    fields, place, said = CASES[name]
    assert mistakes(**fields) == [f"{TERM}.{place}: {said}"]


@pytest.mark.parametrize(
    "fields",
    [
        {"advantage": allowed},
        {"advantage": InstalledFunction(kind="own", function=allowed)},
        {"advantage": Remembering()},
        {"advantage": WeightedSum(of=(Summand(advantage=Remembering()), Summand(advantage=allowed)))},
        {"advantage": Outer(advantage=allowed, shape=lambda a, b, c: a)},
        {"advantage": lambda *inputs: inputs[0]},
        {"advantage": torch.where},  # built in: it does not say what it takes
        {"surrogate": lambda x, y, logprobs, mask: x},
        {"correction": lambda log_ratio, mask, groups, advantages: log_ratio},
    ],
)
def test_what_is_offered_may_be_asked_for(fields):
    assert mistakes(**fields) == []


def test_other_places_than_terms_are_looked_at():
    recipe = read_recipe("codistill", settings=["refill={rewards={correctness=1.0}}"])
    large = recipe.learners["large"]
    forgetful = replace(recipe.selection, rule=Forgetful())
    again = replace(recipe.refill, rule=lambda rewards, groups, rng: rewards > 0)
    heavy = replace(large, weighting=lambda mask, groups: mask)
    found = cross_checks(
        replace(recipe, selection=forgetful, refill=again, learners=recipe.learners | {"large": heavy})
    )
    assert [line.partition(" ")[0] for line in found] == [
        "refill.rule:",
        "selection.rule:",
        "learners.large.weighting:",
    ]
    assert "It can ask for generator, state;" in found[0]
    drawn = replace(recipe.refill, rule=lambda rewards, groups, generator: rewards > 0)
    assert cross_checks(replace(recipe, selection=replace(recipe.selection, rule=Remembering()), refill=drawn)) == []


def test_functions_inside_a_part_are_seen():
    assert with_lengths in [*inside(WeightedSum(of=(Summand(advantage=with_lengths),)))]


def test_offers_are_of_roles():
    assert ROLES.keys() - OFFERS.keys() == {"data", "terms"}
    assert OFFERS.keys() <= ROLES.keys()
