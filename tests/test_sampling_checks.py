"""Mistakes about which rows there are: each is reported in full, and the mended recipe is not."""
# ruff: noqa: E501 - settings and messages are easier to compare on one line.

import pytest

from grpo_kit import RecipeError, read_recipe
from grpo_kit.run.setup import open_recipe
from mistakes import reported_and_mended

REFILL = "refill={rewards={correctness=1.0}}"
ROWS = "kind='data_rows', policy='small', max_new_tokens=48"
WRITING = "kind='transformers', policy='small', samples=2, max_new_tokens=48"
DATA = f"sampler={{{ROWS}}}"
ENGINE = "kind='vllm', samples=2, max_new_tokens=48"
HALVES = f"sampler={{kind='mixed', of=[{{share=0.5, sampler={{{WRITING}}}}}, {{share=0.5, sampler={{{ROWS}}}}}]}}"
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
    "no greedy rows in a mixture": (
        [HALVES, REMAX],
        [
            "learners.small.terms.policy.advantage: compares with the reward of a greedy completion, and none is written. Use sampler 'transformers' with greedy = true."
        ],
        [HALVES],
        "grpo",
    ),
    "a policy gradient on rows of the data alone": (
        [DATA],
        [
            "learners.small.terms.policy: 'policy_gradient' needs rows that a policy wrote, and sampler 'data_rows' gives those of the data alone. Use sampler 'transformers' or 'mixed', or { kind = 'cross_entropy' } to learn from the data."
        ],
        [HALVES],
        "grpo",
    ),
    "a term for sampled rows among rows of the data": (
        ["learners.small.terms.sft.where={rows='sampled'}"],
        [
            "learners.small.terms.sft: 'cross_entropy' needs rows that a policy wrote, and sampler 'data_rows' gives those of the data alone. Use sampler 'transformers' or 'mixed', or { kind = 'cross_entropy' } to learn from the data."
        ],
        [],
        "sft",
    ),
    "a term for rows of the data where there are none": (
        ["learners.small.terms.sft={kind='cross_entropy'}"],
        [
            "learners.small.terms.sft: applies to rows of the data alone, and the sampler gives none. Use sampler 'data_rows' or 'mixed', or let where choose other rows."
        ],
        [
            "learners.small.terms.sft={kind='cross_entropy', where={reward='correctness', at_least=1.0}}",
        ],
        "grpo",
    ),
    "a refill beside rows of the data": (
        [HALVES, REFILL],
        [
            "refill: a group is kept by rewards of rows that a policy wrote, so those of the data would all be dropped. Remove [refill], or the sampler 'data_rows'."
        ],
        [HALVES],
        "gkd",
    ),
    "a selection and a curriculum of rows of the data": (
        ["selection={rule={kind='random', keep=4}, rewards={correctness=1.0}}", "curriculum.reward=correctness"],
        [
            "selection: it goes by rewards of rows that a policy wrote, and all rows are those of the data. Remove [selection].",
            "curriculum: it goes by rewards of rows that a policy wrote, and all rows are those of the data. Remove [curriculum].",
        ],
        [],
        "sft",
    ),
    "a share of too few prompts": (
        [f"sampler.of=[{{share=0.9, sampler={{{WRITING}}}}}, {{share=0.1, sampler={{{ROWS}}}}}]", "prompts_per_step=5"],
        ["sampler.of.1.share: of 5 prompts a step it gets none. Raise it, or prompts_per_step."],
        [f"sampler.of=[{{share=0.9, sampler={{{WRITING}}}}}, {{share=0.1, sampler={{{ROWS}}}}}]", "prompts_per_step=6"],
        "gkd",
    ),
    "a greedy sampler inside a mixture": (
        [f"sampler.of=[{{share=0.5, sampler={{{WRITING}, temperature=0.0}}}}, {{share=0.5, sampler={{{ROWS}}}}}]"],
        ["sampler.of.0.sampler.temperature: 0 is greedy: a group's rows would all be the same. Use more than 0."],
        [f"sampler.of=[{{share=0.5, sampler={{{WRITING}, temperature=0.1}}}}, {{share=0.5, sampler={{{ROWS}}}}}]"],
        "gkd",
    ),
    "syncs of a policy that does not learn": (
        [
            f"sampler.of=[{{share=0.5, sampler={{{ENGINE}, policy='large', sync_every=2}}}}, {{share=0.5, sampler={{{ROWS}}}}}]"
        ],
        ["sampler.of.0.sampler.sync_every: 'large' does not learn, so there is nothing to sync. Remove it."],
        [
            f"sampler.of=[{{share=0.5, sampler={{{ENGINE}, policy='small', sync_every=2}}}}, {{share=0.5, sampler={{{ROWS}}}}}]"
        ],
        "gkd",
    ),
    "syncs of a buffer's engine": (
        [f"sampler.of={{{ENGINE}, policy='small', sync_every=2}}"],
        [
            "sampler.of.sync_every: a buffer's engine is synced whenever it is filled, so this changes nothing. Remove it; sampler.refresh says when rows are written anew."
        ],
        [f"sampler.of={{{ENGINE}, policy='small'}}"],
        "semi_opd",
    ),
    "one server for two policies": (
        [
            f"sampler={{{ENGINE}, policy='small', engine={{kind='server', url='http://a:1'}}}}",
            "policies.large.engine={kind='server', url='http://a:1/'}",
        ],
        [
            "policies.large.engine.url: http://a:1 is to have the weights of 'small' and of 'large', and a server has those of one model. Start another server for 'large'."
        ],
        [
            f"sampler={{{ENGINE}, policy='small', engine={{kind='server', url='http://a:1'}}}}",
            "policies.large.engine={kind='server', url='http://a:2'}",
        ],
        "opd",
    ),
    "shares that are no whole": (
        [f"sampler.of=[{{share=0.5, sampler={{{WRITING}}}}}, {{share=0.4, sampler={{{ROWS}}}}}]"],
        ["sampler: the shares sum to 0.9; make them sum to 1."],
        [f"sampler.of=[{{share=0.6, sampler={{{WRITING}}}}}, {{share=0.4, sampler={{{ROWS}}}}}]"],
        "gkd",
    ),
    "a distillation reward of a policy that writes nothing in a mixture": (
        [
            "rewards.kd={kind='on_policy_kd', student='large', teacher='small', length=48}",
            "selection={rule={kind='random', keep=1}, rewards={kd=1.0}}",
            HALVES,
        ],
        ["rewards.kd.student: 'large' writes no token ('small' samples), so the reward is always 0. Use 'small'."],
        [
            "rewards.kd={kind='on_policy_kd', student='small', teacher='large', length=48}",
            "selection={rule={kind='random', keep=1}, rewards={kd=1.0}}",
            HALVES,
        ],
        "gkd",
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


def test_a_distillation_reward_on_rows_of_the_data_alone_is_idle():
    kd = [
        "policies.large={model='tiny:large'}",
        "rewards.kd={kind='on_policy_kd', student='small', teacher='large', length=48}",
    ]
    with pytest.raises(RecipeError) as caught:
        read_recipe("sft", settings=[*kd, "evaluation.reward=kd", "learners.small.rewards.kd=1.0"])
    (mistake,) = [own for own in caught.value.mistakes if own.startswith("rewards.kd")]
    silent = "'small' writes no token (the rows are those of the data), so the reward is always 0"
    assert mistake == f"rewards.kd.student: {silent}. Remove it, or let 'small' sample."


def test_mini_batches_of_a_mixture_are_of_all_its_rows():
    """5 prompts: 3 with 2 samples each, 2 of the data; 8 rows."""
    settings = [HALVES, "prompts_per_step=5"]
    read_recipe("gkd", settings=[*settings, "learners.small.mini_batches=8"])
    with pytest.raises(RecipeError, match="mini_batches: 9 of 8 rows a step"):
        read_recipe("gkd", settings=[*settings, "learners.small.mini_batches=9"])
