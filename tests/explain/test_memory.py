"""The memory estimate against what the same work really allocates."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from grpo_kit import read_recipe
from grpo_kit.explain.memory import _rows, estimate
from grpo_kit.policies import load_policy
from grpo_kit.policies.load import load_tokenizer
from grpo_kit.policies.policy import Policy

SHORT = ["prompts_per_step=2", "sampler.samples=8", "selection.rule.keep=4", "sampler.max_new_tokens=48"]
PROMPT = 10


def allocated(work):
    """The most bytes that a piece of work holds at one time, by PyTorch's own allocator."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


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
def test_updating_and_scoring_are_what_the_allocator_sees(name, estimates, policies):
    policy = policies[name]
    rows = _rows(8, PROMPT, 48)  # 2 prompts, 4 rows of each kept
    policy.score(rows).logprobs.sum().backward()  # the gradients are there from now on
    updating = allocated(lambda: policy.score(rows).logprobs.sum().backward())
    assert estimates[name].updating == pytest.approx(updating, rel=0.1)
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
