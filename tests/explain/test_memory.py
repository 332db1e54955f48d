"""The memory estimate against what the same work really allocates."""

import pytest
import torch

from explain.allocations import PROMPT, SHORT, allocated, updating
from grpo_kit import read_recipe
from grpo_kit.explain.memory import _rows, estimate
from grpo_kit.policies import load_policy
from grpo_kit.policies.load import load_tokenizer
from grpo_kit.policies.policy import Policy


@pytest.fixture(scope="module")
def recipe():
    return read_recipe("codistill", settings=SHORT)


@pytest.fixture(scope="module")
def estimates(recipe):
    tokenizers = {name: load_tokenizer(spec) for name, spec in recipe.policies.items()}
    return {name: estimate(recipe, name, tokenizers, PROMPT) for name in recipe.policies}


@pytest.fixture(scope="module")
def policies(recipe):
    return {name: load_policy(name, spec, live=True) for name, spec in recipe.policies.items()}


@pytest.mark.parametrize("name", ["small", "large"])
def test_weights_gradients_and_optimizer_are_exact(name, estimates, policies):
    model = policies[name].model
    assert estimates[name].parameters == sum(weight.numel() for weight in model.parameters())
    weights = sum(weight.nbytes for weight in model.parameters())
    assert estimates[name].weights == weights + sum(buffer.nbytes for buffer in model.buffers())
    optimizer = torch.optim.AdamW(model.parameters())
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert estimates[name].gradients == sum(weight.grad.nbytes for weight in model.parameters())
    moments = [state[key] for state in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    assert estimates[name].optimizer == sum(moment.nbytes for moment in moments)
    model.zero_grad(set_to_none=True)


@pytest.mark.parametrize("name", ["small", "large"])
def test_updating_and_scoring_are_what_the_allocator_sees(name, estimates, policies, recipe):
    policy = policies[name]
    # 2 prompts, 4 rows of each kept
    assert estimates[name].updating == pytest.approx(updating(recipe, name, policies), rel=0.1)
    rows = _rows(16, PROMPT, 48)
    with torch.no_grad():
        scoring = allocated(lambda: policy.score(rows))
    assert estimates[name].scoring == pytest.approx(scoring, rel=0.1)


def test_sampling_is_what_the_allocator_sees(estimates, policies, recipe, monkeypatch):
    monkeypatch.setattr(Policy, "eos_ids", frozenset())  # every row is as long as can be
    prompts = [[5] * PROMPT] * 2
    from grpo_kit.samplers.decoding import decode

    uniforms = torch.full((16, 48), 0.5, dtype=torch.float64)

    @torch.no_grad()
    def write():
        decode(policies["small"], prompts, sampling=recipe.sampler.sampling, uniforms=uniforms)

    assert estimates["small"].sampling == pytest.approx(allocated(write), rel=0.1)
    assert estimates["large"].sampling is None


DISTILLED = {
    "whole distributions": ("{kind='reverse_kl'}", lambda width: 4 * width),
    "the likeliest tokens": ("{kind='jsd', top_k={k=16}}", lambda width: 16 * (4 + 8)),
}
"""A divergence, and the bytes that are held of the other policy's distribution of a token."""


@pytest.mark.parametrize("described", DISTILLED)
def test_an_update_holds_a_teacher_s_distributions_of_the_whole_step(described, policies):
    """200 rows in micro-batches of one, so that what is held of the teacher is much of it."""
    divergence, size = DISTILLED[described]
    term = f"{{kind='divergence', to='large', divergence={divergence}}}"
    settings = ["prompts_per_step=200", "sampler.max_new_tokens=48", "policies.small.micro_batch_tokens=1"]
    recipe = read_recipe("opd", settings=[*settings, f"learners.small.terms.kl={term}"])
    tokenizers = {name: load_tokenizer(spec) for name, spec in recipe.policies.items()}
    said = estimate(recipe, "small", tokenizers, PROMPT).updating
    held = 199 * 48 * size(policies["large"].model.config.hidden_size)
    assert held > 0.2 * said
    assert said == pytest.approx(updating(recipe, "small", policies, count=1) + held, rel=0.1)
    teacher = estimate(recipe, "large", tokenizers, PROMPT)  # which no learner trains
    assert teacher.gradients == teacher.optimizer == 0
    assert teacher.scoring > 0


@pytest.mark.parametrize("name", ["dgrpo", "gkd", "sft", "kdrl"])
def test_every_policy_of_a_distillation_recipe_is_estimated(name):
    recipe = read_recipe(name, settings=["prompts_per_step=8"])
    for policy, spec in recipe.policies.items():
        found = estimate(recipe, policy, {policy: load_tokenizer(spec)}, PROMPT)
        assert (found.scoring is not None) == (policy in recipe.scored())
        assert (found.updating is not None) == (policy in recipe.learners)
