"""Mistakes about which rewards are weighed, and what an advantage can do with them; the mended recipe has none."""
# ruff: noqa: E501 - settings and messages are easier to compare on one line.

import pytest

from mistakes import reported_and_mended

ADVANTAGE = "learners.small.terms.policy.advantage"
FORMAT, TWO = "rewards.format={kind='format'}", "learners.small.rewards={correctness=1.0, format=0.5}"
LONG = "rewards.long={kind='soft_overlong', max_length=40, cache=20}"
COSINE = "rewards.long={{kind='cosine_length', grading={{kind='correctness'}}, max_length=40, correct=[1.0, 0.5], wrong={wrong}, exceed={exceed}}}"
ADAPTIVE = "rewards.kl={kind='kl_penalty', policy='small', reference='reference', adaptive={start=0.1, target=0.02}}"
PLAIN = "rewards.kl={kind='kl_penalty', policy='small', reference='reference'}"


def penalty(weight, reward=ADAPTIVE):
    return ["policies.reference={model='tiny:small'}", reward, f"learners.small.rewards.kl={weight}"]


def summed(*summands):
    return f"{ADVANTAGE}={{kind='weighted_sum', of=[{', '.join(f'{{{summand}}}' for summand in summands)}]}}"


def per_component(inner):
    return f"{ADVANTAGE}={{kind='per_component', advantage={inner}}}"


def second(weight, place="learners.small.rewards.kl"):
    return f"{place}: adaptive is the factor of the reward, so weight {weight} would be a second one; use weight 1 and set adaptive.start."


def negative(name, why, place=ADVANTAGE):
    return f"{place}: max_rl divides by the mean reward and needs rewards of at least 0; '{name}': {why}."


MAX_RL, MEAN, EMA = "advantage={kind='max_rl'}", "advantage={kind='group_mean'}", "advantage={kind='ema_baseline'}"
OWN = f"{MEAN}, rewards={{correctness=1.0}}"
ONE_BY_ONE = "'per_component' hands on one reward at a time, so there is none to choose. Remove them."
IDLE = "every summand has rewards of its own, and none has this one. Remove it, or give it to a summand."
ALONE = "compares the rows of a group, and sampler.samples = 1 gives groups of one: every advantage would be 0. Set sampler.samples to 2 or more."

CASES = {
    "two factors of a penalty": (penalty(0.5), [second(0.5)], penalty(1.0)),
    "a penalty turned round": (penalty(-1.0), [second(-1)], penalty(-1.0, PLAIN)),
    "two factors of a penalty in a summand": (
        [*penalty(1.0), summed(MEAN, f"{MEAN}, rewards={{kl=0.2}}")],
        [second(0.2, f"{ADVANTAGE}.of.1.rewards.kl")],
        [*penalty(1.0), summed(MEAN, f"{MEAN}, rewards={{kl=1.0}}")],
    ),
    "max_rl of a reward below 0": (
        [LONG, "learners.small.rewards.long=1.0", f"{ADVANTAGE}={{kind='max_rl'}}"],
        [negative("long", "it can be below 0")],
        [LONG, "learners.small.rewards.long=1.0"],
    ),
    "max_rl of a reward below 0 by its settings": (
        [
            COSINE.format(wrong=[-1.0, 0.0], exceed=0.0),
            "learners.small.rewards.long=1.0",
            f"{ADVANTAGE}={{kind='max_rl'}}",
        ],
        [negative("long", "it can be below 0")],
        [
            COSINE.format(wrong=[0.0, 0.2], exceed=0.0),
            "learners.small.rewards.long=1.0",
            f"{ADVANTAGE}={{kind='max_rl'}}",
        ],
    ),
    "max_rl in a sum, of the learner's rewards": (
        [LONG, "learners.small.rewards.long=1.0", summed(MEAN, MAX_RL)],
        [negative("long", "it can be below 0", f"{ADVANTAGE}.of.1.advantage")],
        [LONG, "learners.small.rewards.long=1.0", summed(MEAN, f"{MAX_RL}, rewards={{correctness=1.0}}")],
    ),
    "max_rl in a sum, of rewards of its own": (
        [FORMAT, TWO, summed(MEAN, f"{MAX_RL}, rewards={{format=-1.0}}")],
        [negative("format", "its weight is -1", f"{ADVANTAGE}.of.1.advantage")],
        [FORMAT, TWO, summed(MEAN, f"{MAX_RL}, rewards={{format=2.0}}")],
    ),
    "max_rl of each component": (
        [LONG, "learners.small.rewards.long=1.0", per_component("{kind='max_rl'}")],
        [negative("long", "it can be below 0", f"{ADVANTAGE}.advantage")],
        [FORMAT, "learners.small.rewards.format=-1.0", per_component("{kind='max_rl'}")],
    ),
    "rewards of a summand's own under per_component": (
        [FORMAT, TWO, per_component(f"{{kind='weighted_sum', of=[{{{OWN}}}, {{{EMA}}}]}}")],
        [f"{ADVANTAGE}.advantage.of.0.rewards: {ONE_BY_ONE}"],
        [FORMAT, TWO, per_component(f"{{kind='weighted_sum', of=[{{{MEAN}}}, {{{EMA}}}]}}")],
    ),
    "rewards that the learner does not have": (
        [FORMAT, "learners.small.rewards.format=1.0", summed(f"{MEAN}, rewards={{formt=1.0}}", MEAN)],
        [f"{ADVANTAGE}.of.0.rewards: 'formt' is no reward of this learner. Its rewards: correctness, format."],
        [FORMAT, "learners.small.rewards.format=1.0", summed(f"{MEAN}, rewards={{format=1.0}}", MEAN)],
    ),
    "rewards that the summand around does not have": (
        [FORMAT, TWO, summed(f"advantage={{kind='weighted_sum', of=[{{{OWN}}}]}}, rewards={{format=1.0}}", MEAN)],
        [
            f"{ADVANTAGE}.of.0.advantage.of.0.rewards: 'correctness' is no reward of the summand {ADVANTAGE.removeprefix('learners.small.')}.of.0. Its rewards: format."
        ],
        [FORMAT, TWO, summed(f"advantage={{kind='weighted_sum', of=[{{{OWN}}}]}}, rewards={{correctness=2.0}}", MEAN)],
    ),
    "a reward that no summand has": (
        [FORMAT, TWO, summed(OWN, f"{EMA}, rewards={{correctness=0.5}}")],
        [f"learners.small.rewards.format: {IDLE}"],
        [FORMAT, TWO, summed(OWN, EMA)],
    ),
    "a summand that compares rows alone": (
        ["sampler.samples=1", summed(EMA, MEAN)],
        [f"{ADVANTAGE}.of.1.advantage: {ALONE}"],
        ["sampler.samples=1", summed(EMA)],
    ),
    "a summand's reward of no weight": (
        [FORMAT, TWO, summed(MEAN, f"{MEAN}, rewards={{correctness=1.0, format=0}}")],
        [f"{ADVANTAGE}.of.1.rewards.format: weight 0 does nothing. Remove it."],
        [FORMAT, TWO, summed(MEAN, f"{MEAN}, rewards={{correctness=1.0, format=-0.1}}")],
    ),
    "a selection's reward of no weight": (
        ["selection.rewards={correctness=1.0, kd=0}"],
        ["selection.rewards.kd: weight 0 does nothing. Remove it."],
        ["selection.rewards={correctness=1.0, kd=0.1}"],
        "codistill",
    ),
    "a refill's reward of no weight": (
        ["refill={rewards={correctness=0.0}}"],
        ["refill.rewards.correctness: weight 0 does nothing. Remove it."],
        ["refill={rewards={correctness=1.0}}"],
    ),
    "a curriculum by a reward below 0": (
        [LONG, "curriculum.reward=long"],
        [
            "curriculum.reward: 'long' can be below 0, and a pass rate is from 0 to 1. Name a reward that is 1 for a correct completion."
        ],
        [COSINE.format(wrong=[0.0, 0.2], exceed=0.0), "curriculum.reward=long"],
    ),
}
"""Name: settings with a mistake, what is reported, settings without it, the recipe (grpo where not given)."""


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_reported_and_its_mended_form_is_not(name):
    reported_and_mended(CASES[name], "grpo")
