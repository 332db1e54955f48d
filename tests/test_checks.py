"""Mistakes between the parts of a recipe: each is reported in full, and the mended recipe is not."""
# ruff: noqa: E501 - settings and messages are easier to compare on one line.

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from grpo_kit import RecipeError, read_recipe
from grpo_kit.checks import shared_vocabulary
from mistakes import reported_and_mended

LEARNER = (
    "{ terms = { policy = { kind = 'policy_gradient', advantage = { kind = 'group_mean' }, surrogate = { kind = 'clip' } } }, "
    "rewards = { correctness = 1.0 }, weighting = { kind = 'equal_rows' }, optimizer = { lr = 1e-4 } }"
)

CASES = {
    "learner without a policy": (
        [f"learners.smal={LEARNER}"],
        [
            "learners.smal: there is no policy 'smal'. Did you mean 'small'? Known: small, large. A learner has its policy's name."
        ],
        [f"learners.smal={LEARNER}", "policies.smal={model='tiny:small'}"],
    ),
    "sampler of nobody": (
        ["sampler.policy=smal"],
        ["sampler: there is no policy 'smal'. Did you mean 'small'? Known: small, large."],
        ["sampler.policy=small"],
    ),
    "reward that is not defined": (
        ["learners.small.rewards={correctnes=1.0, kd=1.0}"],
        [
            "learners.small.rewards: there is no reward 'correctnes'. Did you mean 'correctness'? Known: correctness, kd."
        ],
        ["learners.small.rewards={correctness=1.0}"],
    ),
    "evaluation by a reward that is not defined": (
        ["evaluation.reward=correct"],
        ["evaluation.reward: there is no reward 'correct'. Did you mean 'correctness'? Known: correctness, kd."],
        ["evaluation.reward=correctness"],
    ),
    "no learner": (
        ["learners={}"],
        ["learners: there is none, so nothing would be trained. Add a table [learners.NAME], NAME a policy."],
        [],
    ),
    "learner of a follower": (
        ["policies.large={follows='small'}"],
        ["learners.large: policy 'large' is a follower and cannot learn. Give it a model of its own."],
        ["policies.large={model='tiny:large'}"],
    ),
    "follower of nobody": (
        ["policies.old={follows='ghost'}", "rewards.kd.teacher=old"],
        ["policies.old.follows: 'ghost' is not a live policy. Live: small, large."],
        ["policies.old={follows='small', decay=0.9}", "rewards.kd.teacher=old"],
    ),
    "policy that nobody reads": (
        ["policies.third={model='tiny:small'}"],
        ["policies.third: no sampler, reward or learner uses it. Remove it, or use it."],
        ["policies.third={model='tiny:small'}", "rewards.kd.teacher=third"],
    ),
    "reward that nobody weighs": (
        ["rewards.format={kind='format'}"],
        [
            "rewards.format: no learner, selection, refill, curriculum or evaluation uses it. Remove it, or give it a weight."
        ],
        ["rewards.format={kind='format'}", "learners.small.rewards.format=0.1"],
    ),
    "teacher is student": (
        ["rewards.kd.teacher=small"],
        ["rewards.kd: teacher and student are the same policy, so the reward is always 0."],
        ["rewards.kd.teacher=large"],
    ),
    "student that does not write": (
        ["rewards.kd.student=large", "rewards.kd.teacher=small"],
        ["rewards.kd.student: 'large' writes no token ('small' samples), so the reward is always 0. Use 'small'."],
        ["rewards.kd.student=small"],
    ),
    "greedy groups": (
        ["sampler.temperature=0"],
        ["sampler.temperature: 0 is greedy: a group's rows would all be the same. Use more than 0."],
        ["sampler.temperature=0.7"],
    ),
    "selection of everything": (
        ["selection.rule.keep=14"],
        [
            "selection.rule: keeps 14 of 14 samples a prompt, so it would drop nothing. Raise sampler.samples, lower "
            "what it keeps, or remove [selection]."
        ],
        ["selection.rule.keep=13"],
    ),
    "groups of one": (
        ["sampler.samples=1"],
        [
            "learners.small.terms.policy.advantage: compares the rows of a group, and sampler.samples = 1 gives groups "
            "of one: every advantage would be 0. Set sampler.samples to 2 or more."
        ],
        ["sampler.samples=2"],
        "grpo",
    ),
    "groups of one after the selection": (
        ["selection.rule={kind='top_bottom', top=1, bottom=0}"],
        [
            f"learners.{name}.terms.policy.advantage: the selection keeps 1 row a group, so each advantage is 0. Keep 2."
            for name in ("small", "large")
        ],
        ["selection.rule={kind='top_bottom', top=1, bottom=1}"],
    ),
    "baseline without a selection": (
        ["learners.small.terms.policy.baseline=sampled"],
        ["learners.small.terms.policy.baseline: 'sampled' is the same as 'selected' without a [selection]. Remove it."],
        [],
        "grpo",
    ),
    "policy gradient without rewards": (
        ["learners.small.rewards={}"],
        [
            "learners.small.rewards: a policy gradient needs rewards. Give weights, for example rewards = "
            "{ correctness = 1.0 }."
        ],
        [],
        "grpo",
    ),
    "rewards that no term reads": (
        ["learners.small.terms={entropy={kind='entropy'}}"],
        [
            "learners.small.rewards: no term of this learner reads rewards. Remove them, or add a policy_gradient term "
            "that does."
        ],
        ["learners.small.terms={entropy={kind='entropy'}}", "learners.small.rewards={}"],
        "grpo",
    ),
    "divergence to itself": (
        ["learners.small.terms.kl={kind='divergence', to='small', divergence={kind='sampled_kl'}}"],
        ["learners.small.terms.kl.to: a divergence to itself has gradient 0 at the first update. Name another policy."],
        [
            "policies.reference={model='tiny:small'}",
            "learners.small.terms.kl={kind='divergence', to='reference', divergence={kind='sampled_kl'}}",
        ],
        "grpo",
    ),
    "more mini-batches than rows": (
        ["learners.small.mini_batches=17", "prompts_per_step=2"],
        ["learners.small.mini_batches: 17 of 16 rows a step; use at most one a row."],
        ["learners.small.mini_batches=16", "prompts_per_step=2"],
        "grpo",
    ),
    "code without permission": (
        ["rewards.length={kind='python', function='os.path:split'}", "learners.small.rewards.length=1.0"],
        [
            "rewards.length.function: 'os.path:split' is code to run; allow it with --allow-code if you trust this recipe."
        ],
        [],
    ),
    "KL of which nothing is learned": (
        [
            "policies.reference={model='tiny:small'}",
            "learners.small.terms.kl={kind='divergence', to='reference', divergence={kind='sampled_kl', estimator='k1'}}",
        ],
        [
            "learners.small.terms.kl: estimator 'k1' as a loss has an expected gradient of zero: the other policy has no "
            "influence. Use 'k2', 'k1+' or 'k3+' (gradient of the reverse KL), 'k3' (gradient of the forward KL), or "
            "importance = true.",
        ],
        [
            "policies.reference={model='tiny:small'}",
            "learners.small.terms.kl={kind='divergence', to='reference', divergence={kind='sampled_kl', estimator='k3'}}",
        ],
        "grpo",
    ),
    "one token to choose from": (
        ["sampler.top_k=1"],
        ["sampler.top_k: 1 is greedy: a group's rows would all be the same. Use more than 1."],
        ["sampler.top_k=2"],
        "grpo",
    ),
    "a cut distribution under a quotient": (
        ["sampler.top_p=0.9"],
        [
            "learners.large.terms.policy: sampler.top_p, top_k or min_p cuts mass off, which biases quotients to the behavior policy. Sample with top_p = 1, top_k = 0 and min_p = 0."
        ],
        ["sampler.top_p=1"],
    ),
    "half precision of a live policy": (
        ["policies.large.dtype=float16"],
        ["policies.large.dtype: float16 loses small gradients of a live policy. Use bfloat16 or float32."],
        ["policies.large.dtype=bfloat16"],
    ),
    "best by the evaluation of nobody that learns": (
        ["checkpoints.best=eval/smal/accuracy"],
        ["checkpoints.best: 'eval/smal/accuracy' is of no policy that learns: small, large."],
        ["checkpoints.best=eval/small/accuracy"],
    ),
    "best by evaluations that checkpoints seldom meet": (
        ["checkpoints.best=eval/small/accuracy", "evaluation.every=20"],
        [
            "checkpoints.best: an evaluation every 20 steps and a checkpoint every 25 seldom meet. Let evaluation.every be a multiple of checkpoints.every."
        ],
        ["checkpoints.best=eval/small/accuracy", "evaluation.every=20", "checkpoints.every=10"],
    ),
    "evaluation on the training questions": (
        ["evaluation.data.split=train"],
        [
            'evaluation.data: these are the training questions. Give the keys that differ, for example data = { split = "eval" }.'
        ],
        ["evaluation.data.seed=1"],
    ),
    "evaluation by a reward that compares policies": (
        ["evaluation.reward=kd"],
        [
            "evaluation.reward: 'kd' compares policies and says nothing of right or wrong. Name a reward that is 1 for a correct completion."
        ],
        ["evaluation.reward=correctness"],
    ),
    "reward of no weight": (
        ["learners.large.rewards.correctness=0"],
        ["learners.large.rewards.correctness: weight 0 does nothing. Remove it."],
        ["learners.large.rewards.correctness=-1"],
    ),
    "term of no weight": (
        ["learners.small.terms.entropy={kind='entropy', weight=0}"],
        ["learners.small.terms.entropy.weight: 0 does nothing. Remove the term."],
        ["learners.small.terms.entropy={kind='entropy', weight=0.1}"],
    ),
    "more mini-batches than selected rows": (
        ["prompts_per_step=2", "learners.small.mini_batches=17"],
        ["learners.small.mini_batches: 17 of 16 rows a step; use at most one a row."],
        ["prompts_per_step=2", "learners.small.mini_batches=16"],
    ),
    "code of a model": (
        ["policies.small.trust_remote_code=true"],
        ["policies.small.trust_remote_code: runs code of the model; allow it with --allow-code."],
        [],
    ),
    "a name that is a path": (
        ["policies={small={model='tiny:small'}, large={model='tiny:large'}, '../x'={model='tiny:large'}}"],
        ["policies.../x.[key]: should match pattern '^[A-Za-z0-9_-]+$', got '../x' (str)."],
        [],
    ),
    "an infinite rate": (
        ["learners.small.optimizer.lr=inf"],
        ["learners.small.optimizer.lr: should be a finite number, got inf (float)."],
        ["learners.large.terms.policy.correction.high=inf"],
    ),
    "a date": (
        ["name=2026-01-01"],
        ["name: 2026-01-01 is a date or time. Write it in quotes if a text is meant."],
        ["name='2026-01-01'"],
    ),
    "two values in one setting": (
        ["steps=1\nseed=2"],
        ["--set steps: one value a --set, on one line"],
        ["steps=1"],
    ),
}
"""Name: settings with a mistake, what is reported, settings without it, the recipe (codistill where not given)."""


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_reported_and_its_mended_form_is_not(name):
    reported_and_mended(CASES[name], "codistill")


PYTHON_REWARD = "learners.small.rewards.length=1.0"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("length", "'length' names no function; write 'module:function'."),
        ("no_such_module_here:length", "'no_such_module_here:length': module 'no_such_module_here' cannot be imported"),
        ("os.path:nothing", "'os.path:nothing': module 'os.path' has no function 'nothing'."),
    ],
)
def test_a_function_that_does_not_exist_is_reported_when_code_is_allowed(function, message):
    with pytest.raises(RecipeError) as caught:
        read_recipe(
            "grpo",
            settings=[f"rewards.length={{kind='python', function='{function}'}}", PYTHON_REWARD],
            allow_code=True,
        )
    (mistake,) = caught.value.mistakes
    assert mistake.startswith(f"rewards.length.function: {message}")


def test_a_function_that_exists_is_read_when_code_is_allowed():
    settings = ["rewards.length={kind='python', function='os.path:split'}", PYTHON_REWARD]
    assert read_recipe("grpo", settings=settings, allow_code=True).rewards["length"].function == "os.path:split"


def tokenizer(*words):
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(dict(zip(words, range(9), strict=False))))
    )


def test_tokenizers_that_differ_are_named_with_an_example():
    first, same, other = tokenizer("a", "b", "c"), tokenizer("a", "b", "c"), tokenizer("a", "c", "d")
    assert shared_vocabulary({"one": first, "two": same}) == []
    assert shared_vocabulary({"one": first, "two": same, "three": other}) == [
        "policies.three: its tokenizer differs from that of 'one' in 3 of 4 tokens (for example 'b': id 1 against None). "
        "Policies that share rollouts need the same tokenizer."
    ]
