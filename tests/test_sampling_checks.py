"""Mistakes about which rows there are: each is reported in full, and the mended recipe is not."""
# ruff: noqa: E501 - settings and messages are easier to compare on one line.

import pytest

from grpo_kit import RecipeError, read_recipe
from grpo_kit.run.setup import open_recipe
from mistakes import reported_and_mended

REFILL = "refill={rewards={correctness=1.0}}"
REMAX = "learners.small.terms.policy.advantage={kind='remax'}"

CASES = {
    "random selection of everything": (
        ["selection.rule={kind='random', keep=14}"],
        [
            "selection.rule: keeps 14 of 14 samples a prompt, so it would drop nothing. Raise sampler.samples, lower what it keeps, or remove [selection]."
        ],
        ["selection.rule={kind='random', keep=13}"],
    ),
    "spread among groups of one": (
        ["sampler.samples=1", "sampler.greedy=true", REMAX, REFILL],
        [
            "refill.rule: 'spread' drops groups of one row, and sampler.samples = 1 makes no others. Set sampler.samples to 2 or more.",
        ],
        [REFILL],
        "grpo",
    ),
    "refill by rows": (
        ["refill={rule={kind='max_variance', keep=4}, rewards={correctness=1.0}}"],
        [
            "refill.rule: 'max_variance' keeps some rows of a group, and a refill keeps or drops a group whole. Use { kind = 'spread' }, and [selection] for some rows of a group."
        ],
        [REFILL],
    ),
    "refill by a reward that is not defined": (
        ["refill={rewards={correctnes=1.0}}"],
        ["refill.rewards: there is no reward 'correctnes'. Did you mean 'correctness'? Known: correctness, kd."],
        [REFILL],
    ),
    "refill without a try": (
        ["refill={rewards={correctness=1.0}, tries=0}"],
        ["refill.tries: should be greater than or equal to 1, got 0 (int)."],
        ["refill={rewards={correctness=1.0}, tries=1}"],
    ),
    "refill without rewards": (["refill={}"], ["refill.rewards: missing; it has no default."], [REFILL]),
    "curriculum by a reward that is not defined": (
        ["curriculum.reward=correct"],
        ["curriculum.reward: there is no reward 'correct'. Did you mean 'correctness'? Known: correctness, kd."],
        ["curriculum.reward=correctness"],
    ),
    "curriculum by a reward that compares policies": (
        ["curriculum.reward=kd"],
        [
            "curriculum.reward: 'kd' compares policies and says nothing of right or wrong. Name a reward that is 1 for a correct completion."
        ],
        ["curriculum={reward='correctness', decay=0.9, floor=0.01}"],
    ),
    "greedy rows that nobody asks for": (
        ["sampler.greedy=true"],
        [
            "sampler.greedy: no advantage asks for greedy_rewards, so the greedy rows would be of no use. Remove it, or use an advantage that compares with them."
        ],
        ["sampler.greedy=true", REMAX],
    ),
    "no greedy rows for one who asks": (
        [REMAX],
        [
            "learners.small.terms.policy.advantage: compares with the reward of a greedy completion, and none is written. Set sampler.greedy = true."
        ],
        ["sampler.greedy=true", REMAX],
    ),
    "no greedy rows for one inside another": (
        [
            "learners.small.terms.policy.advantage={kind='weighted_sum', of=[{weight=1.0, advantage={kind='remax'}}, {weight=0.5, advantage={kind='group_mean'}}]}"
        ],
        [
            "learners.small.terms.policy.advantage: compares with the reward of a greedy completion, and none is written. Set sampler.greedy = true."
        ],
        [],
    ),
}
"""Name: settings with a mistake, what is reported, settings without it, the recipe (codistill where not given)."""


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_reported_and_its_mended_form_is_not(name):
    reported_and_mended(CASES[name], "codistill")


def test_a_function_may_select_and_may_be_asked_for_greedy_rows():
    """A rule without `keep` says nothing of how many rows it keeps; a function asks by the name of its parameter."""
    from dataclasses import replace

    from grpo_kit.checks import cross_checks

    recipe = read_recipe("codistill")
    chosen = replace(recipe.selection, rule=lambda rewards, groups: rewards > 0)
    assert cross_checks(replace(recipe, selection=chosen)) == []
    small = recipe.learners["small"]
    term = replace(small.terms["policy"], advantage=lambda rewards, groups, greedy_rewards: rewards - greedy_rewards)
    learners = recipe.learners | {"small": replace(small, terms={"policy": term})}
    (mistake,) = cross_checks(replace(recipe, learners=learners))
    assert mistake.startswith("learners.small.terms.policy.advantage: compares with the reward of a greedy")


def test_a_step_of_more_prompts_than_there_are_is_refused_under_a_curriculum():
    settings = ["data.rows=20", "prompts_per_step=21", "evaluation.data.rows=20"]
    with pytest.raises(RecipeError) as caught:
        open_recipe("grpo", settings=[*settings, "curriculum.reward=correctness"])
    said = "prompts_per_step: 21, but a curriculum draws no prompt twice in a step and there are 20 prompts."
    assert list(caught.value.mistakes) == [f"{said} Lower it, or remove [curriculum]."]
    open_recipe("grpo", settings=settings)


def test_a_reward_for_a_refill_or_a_curriculum_alone_is_used():
    length = "rewards.format={kind='format', pattern='x'}"
    for use in ("refill={rewards={format=1.0}}", "curriculum.reward=format"):
        read_recipe("grpo", settings=[length, use])
