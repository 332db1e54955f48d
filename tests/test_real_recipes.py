"""The recipes for real models, with the tiny pair in their place: checked as they are, and trained without vLLM."""

import math

import pytest

from grpo_kit import Report, VLLMSampler, read_recipe, train
from grpo_kit.run.setup import load_inputs, load_policies, open_recipe, prompt_stream
from grpo_kit.shipped import shipped_recipes

REAL = {"grpo_qwen": ("small",), "codistill_qwen": ("small", "large"), "opd_qwen": ("student", "teacher")}
TINY = {"small": "tiny:small", "large": "tiny:large", "student": "tiny:small", "teacher": "tiny:large"}


def in_place(name):
    """Settings that put the tiny pair and its problems into a recipe."""
    data = ["data={ kind = 'arithmetic', rows = 64 }", "evaluation.data={ split = 'eval' }", "evaluation.questions=8"]
    models = [f"policies.{policy}.model={TINY[policy]}" for policy in REAL[name]]
    return [*data, *models, "sampler.max_new_tokens=64", "prompts_per_step=8"]


@pytest.mark.parametrize("name", REAL)
def test_it_is_free_of_mistakes_and_says_that_it_was_not_run(name):
    recipe, inputs = open_recipe(name, settings=in_place(name))
    assert isinstance(recipe.sampler, VLLMSampler)
    assert len(inputs.prompts) == 64
    assert "NOT RUN" in shipped_recipes()[name].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REAL)
def test_it_learns_adapters_in_half_precision_within_the_context(name):
    recipe = read_recipe(name)
    longest = recipe.max_prompt_tokens + recipe.sampler.max_new_tokens
    assert recipe.sampler.engine.max_model_len == longest
    for policy, spec in recipe.policies.items():
        assert spec.dtype == "bfloat16"
        assert (spec.lora is not None) == (policy in recipe.learners)
        assert spec.micro_batch_tokens >= longest or policy == "student"  # a row whole, with no surprise above it
    assert all(learner.optimizer.lr == 1e-5 for learner in recipe.learners.values())


@pytest.mark.parametrize("name", REAL)
def test_it_trains_the_adapters_of_the_tiny_pair(name):
    policy = REAL[name][0]
    samples = read_recipe(name).sampler.samples
    sampler = f"{{ kind = 'transformers', policy = '{policy}', samples = {samples}, max_new_tokens = 48 }}"
    rates = [f"learners.{learner}.optimizer.lr=1e-2" for learner in read_recipe(name).learners]
    settings = [each for each in in_place(name) if not each.startswith("sampler")]
    recipe = read_recipe(name, settings=[*settings, f"sampler={sampler}", *rates, "steps=2"])
    policies = load_policies(recipe)
    before = {learner: dict(policies[learner].whole_weights()) for learner in recipe.learners}
    before = {learner: {key: weight.clone() for key, weight in own.items()} for learner, own in before.items()}
    reports: list[Report] = list(train(recipe, policies, prompt_stream(recipe, load_inputs(recipe))))
    assert len(reports) == 2
    assert all(math.isfinite(value) for key, value in reports[-1].metrics.items() if key.endswith("/loss"))
    for learner in recipe.learners:
        assert policies[learner].version == 2
        moved = [key for key, weight in policies[learner].whole_weights() if not weight.equal(before[learner][key])]
        assert moved
        assert all(key.endswith("_proj.weight") for key in moved)
