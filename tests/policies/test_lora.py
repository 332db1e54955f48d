"""Low-rank adapters: a fresh one changes nothing, only it learns, and it is saved beside the merged weights."""

import sys
from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from grpo_kit import Lora, Policy, PolicySpec, Prompts, RecipeError, read_recipe, train
from grpo_kit.buffers.fingerprints import parameters_of, weights_of
from grpo_kit.detail import Detail
from grpo_kit.policies import load_policy
from grpo_kit.policies.load import load_tokenizer, model_folder
from grpo_kit.policies.lora import adapted_layers
from grpo_kit.run.setup import load_inputs, load_policies, open_recipe, prompt_stream
from grpo_kit.samplers import TransformersSampler
from tiny_recipe import recipe

FEW = ["data.rows=64", "prompts_per_step=8", "evaluation.questions=1"]
SPEC = PolicySpec(model="tiny:small", lora=Lora(rank=4))


@pytest.fixture
def policy() -> Policy:
    return load_policy("small", SPEC, live=True)


@pytest.fixture
def plain() -> Policy:
    return load_policy("small", PolicySpec(model="tiny:small"), live=False)


def rows(policy, samples=3, seed=0, tokens=12):
    sampler = TransformersSampler(policy=policy.name, samples=samples, max_new_tokens=tokens)
    prompts = tiny_prompts(policy)
    return sampler(prompts, {policy.name: policy}, torch.Generator().manual_seed(seed))


def tiny_prompts(policy):
    ids = tuple(tuple(policy.tokenizer(text)["input_ids"]) for text in ("1+2=", "3-4+5="))
    return Prompts(ids=ids, groups=(0, 1), columns={})


def stirred(policy, size=0.05):
    """The policy with an adapter that changes much."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.requires_grad:
                weight += size * torch.randn(weight.shape, generator=generator).to(weight)
    return policy


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_fresh_adapter_changes_no_score(dtype):
    live = load_policy("small", replace(SPEC, dtype=dtype), live=True)
    frozen = load_policy("small", PolicySpec(model="tiny:small", dtype=dtype), live=False)
    batch, detail = rows(frozen), Detail(entropy=True, top_k=3)
    one, other = live.score_all(batch, detail=detail), frozen.score_all(batch, detail=detail)
    assert torch.equal(one.logprobs, other.logprobs)
    assert torch.equal(one.entropy, other.entropy)
    assert torch.equal(one.top.ids, other.top.ids)


def test_what_learns_is_float32_beside_weights_in_half_precision():
    live = load_policy("small", replace(SPEC, dtype="bfloat16"), live=True)
    kinds = {(weight.requires_grad, weight.dtype) for weight in live.model.parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    assert all(".lora_" in name for name, weight in live.model.named_parameters() if weight.requires_grad)
    assert live.has_linear_head
    live.score(rows(live)).logprobs.sum().backward()
    assert all(weight.grad is None for weight in live.model.parameters() if not weight.requires_grad)
    assert any(weight.grad is not None and weight.grad.abs().max() > 0 for weight in live.model.parameters())


def test_first_numbers_are_a_function_of_the_seed_alone(policy):
    state = torch.get_rng_state()
    again, other = (load_policy("small", SPEC, live=True, seed=seed) for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert parameters(policy).keys() == parameters(other).keys()
    assert all(torch.equal(parameters(again)[name], weight) for name, weight in parameters(policy).items())
    assert not all(torch.equal(parameters(other)[name], weight) for name, weight in parameters(policy).items())


def parameters(policy, *, learn=True):
    return {
        name: weight.detach().clone()
        for name, weight in policy.model.named_parameters()
        if weight.requires_grad == learn
    }


@pytest.mark.parametrize(("rslora", "factor"), [(False, 8 / 4), (True, 8 / 2)])
def test_gradients_are_those_of_explicit_products(rslora, factor):
    spec = replace(SPEC, dtype="float64", lora=Lora(rank=4, alpha=8.0, rslora=rslora))
    live = stirred(load_policy("small", spec, live=True))
    plain = load_policy("small", PolicySpec(model="tiny:small", dtype="float64"), live=False)
    batch = rows(plain)
    live.score(batch).logprobs.sum().backward()

    base = dict(plain.model.named_parameters())
    own = {name: weight.requires_grad_() for name, weight in parameters(live).items()}
    whole = dict(base)
    for name in adapted_layers(live.model):
        a, b = (own[f"{name}.lora_{each}.default.weight"] for each in "AB")
        whole[f"{name}.weight"] = base[f"{name}.weight"] + factor * b @ a
    ids, attention = plain._padded(batch)
    logits = torch.func.functional_call(
        plain.model, whole, (), {"input_ids": ids, "attention_mask": attention, "use_cache": False}
    ).logits
    width = batch.tokens.shape[1]
    logprobs = logits[:, -width - 1 : -1].log_softmax(-1).gather(-1, batch.tokens[..., None])[..., 0]
    torch.where(batch.mask, logprobs, 0).sum().backward()
    grads = {name: weight.grad for name, weight in live.model.named_parameters() if weight.requires_grad}
    assert len(grads) == 2 * len(adapted_layers(live.model)) > 0
    for name, grad in grads.items():
        assert grad.abs().max() > 1e-6
        assert (grad - own[name].grad).norm() <= 1e-4 * grad.norm(), name  # its norms compute in float32


def run(made):
    policies = load_policies(made)
    start = {name: (parameters(each), parameters(each, learn=False)) for name, each in policies.items()}
    for _ in train(made, policies, prompt_stream(made, load_inputs(made))):
        pass
    return policies, start


def test_training_moves_the_adapters_and_nothing_else():
    lora = "policies.small.lora={ rank = 4, targets = ['q_proj'] }"
    made = read_recipe("grpo", settings=[lora, *FEW, "steps=2", "learners.small.optimizer.lr=1e-2"])
    policies, start = run(made)
    small, (adapters, weights) = policies["small"], start["small"]
    assert small.version == 2
    assert {name.split(".")[-4] for name in adapters} == {"q_proj"}
    assert all(not torch.equal(weight, adapters[name]) for name, weight in parameters(small).items())
    assert all(torch.equal(weight, weights[name]) for name, weight in parameters(small, learn=False).items())


def test_saved_as_an_adapter_and_merged(policy, plain, tmp_path):
    batch, scores = rows(plain), stirred(policy).score_all(rows(plain)).logprobs
    assert (scores - plain.score_all(batch).logprobs).abs().max() > 0.1
    policy.save(tmp_path)
    assert torch.equal(policy.score_all(batch).logprobs, scores)
    merged = load_policy("small", PolicySpec(model=str(tmp_path)), live=False)
    assert torch.allclose(merged.score_all(batch).logprobs, scores, atol=1e-4)
    base = AutoModelForCausalLM.from_pretrained(model_folder("tiny:small"), dtype=torch.float32)
    wrapped = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    again = replace(plain, model=wrapped.base_model.model, linear_head=None)
    assert torch.allclose(again.score_all(batch).logprobs, scores, atol=1e-5)
    assert merged.model.state_dict().keys() == plain.model.state_dict().keys()
    assert load_tokenizer(PolicySpec(model=str(tmp_path))).get_vocab() == plain.tokenizer.get_vocab()


def test_b072_whole_weights_have_plain_names_and_the_adapter_in_them(policy, plain):
    before = {name: weight.clone() for name, weight in stirred(policy).model.state_dict().items()}
    whole = {name: weight.clone() for name, weight in policy.whole_weights()}
    assert not any(weight.requires_grad for weight in whole.values())
    after = policy.model.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert whole.keys() == dict(plain.whole_weights()).keys()
    changed = {name for name, weight in plain.whole_weights() if not torch.equal(weight, whole[name])}
    assert changed == {f"{name}.weight" for name in adapted_layers(policy.model)}
    plain.model.load_state_dict(whole, strict=False)  # tied weights come once
    batch = rows(plain)
    assert torch.allclose(plain.score_all(batch).logprobs, policy.score_all(batch).logprobs, atol=1e-4)


def test_a_policy_without_adapters_gives_its_own_weights(plain, tmp_path):
    assert all(
        weight.data_ptr() == plain.model.get_parameter(name).data_ptr() for name, weight in plain.whole_weights()
    )
    plain.save(tmp_path)
    assert not (tmp_path / "adapter").exists()


def test_it_writes_what_it_scores(policy):
    batch = rows(stirred(policy), samples=4)
    scored = policy.score_all(batch).logprobs
    assert torch.allclose(batch.behavior.logprobs[batch.mask], scored[batch.mask], atol=1e-4)


@pytest.mark.parametrize(("decay", "share"), [(0.0, 1.0), (0.75, 0.25)])
def test_a_follower_shares_the_weights_and_follows_the_adapters(decay, share):
    settings = [f"policies.slow={{follows='small', decay={decay}}}", "policies.small.lora.rank=4", "steps=1"]
    settings += [*FEW, "rewards.kl={kind='kl_penalty', policy='small', reference='slow'}"]
    settings += ["learners.small.rewards.kl=0.1", "learners.small.optimizer={lr=1e-2}"]
    made = read_recipe("grpo", settings=settings)
    policies, start = run(made)
    small, slow = policies["small"], policies["slow"]
    assert slow.version == 1
    assert not any(weight.requires_grad for weight in slow.model.parameters())
    own, live = dict(slow.model.named_parameters()), dict(small.model.named_parameters())
    for name, weight in live.items():
        if weight.requires_grad:
            first = start["small"][0][name]
            assert torch.equal(weight, first) == (".lora_A." in name)  # whose gradient is 0 while B is
            assert torch.allclose(own[name], first + share * (weight - first), atol=1e-6)
        else:
            assert own[name] is weight


def test_a_frozen_policy_of_the_same_model_shares_its_weights(plain):
    twin = PolicySpec(model="tiny:small", micro_batch_tokens=64)
    policies = load_policies(recipe(policies={"reference": twin, "small": SPEC}))
    reference, small = policies["reference"], stirred(policies["small"])
    assert list(policies) == ["reference", "small"]
    assert reference.micro_batch_tokens == 64
    held = {weight.data_ptr() for weight in small.model.parameters()}
    assert all(weight.data_ptr() in held for weight in reference.model.parameters())
    assert not any(".lora_" in name for name, _ in reference.model.named_parameters())
    batch = rows(plain)
    scores = plain.score_all(batch).logprobs
    assert torch.allclose(reference.score_all(batch).logprobs, scores, atol=1e-5)
    assert (small.score_all(batch).logprobs - scores).abs().max() > 0.05
    for other in (PolicySpec(model="tiny:small", dtype="bfloat16"), PolicySpec(model="tiny:large")):
        apart = load_policies(recipe(policies={"reference": other, "small": SPEC}))
        held = {weight.data_ptr() for weight in apart["small"].model.parameters()}
        assert not any(weight.data_ptr() in held for weight in apart["reference"].model.parameters())


def test_damaged_adapters_are_seen(policy):
    assert policy.is_finite()
    with torch.no_grad():
        next(weight for weight in policy.model.parameters() if weight.requires_grad)[0, 0] = torch.nan
    assert not policy.is_finite()


def test_buffers_do_not_see_a_fresh_adapter(policy, plain):
    assert weights_of(SPEC) == weights_of(PolicySpec(model="tiny:small"))
    assert parameters_of(policy) == parameters_of(plain)
    assert parameters_of(stirred(policy)) != parameters_of(plain)


FROZEN = "policies.large.lora: 'large' is frozen, and only a live policy has adapters. Remove it, or add "
MISTAKES = {
    "opd": (["policies.large.lora.rank=8"], f"{FROZEN}\\[learners.large\\]."),
    "grpo": (
        ["policies.small.lora.targets=['q_prj']"],
        "policies.small.lora: targets: the model has no linear layer 'q_prj'. Did you mean 'q_proj'\\? Known: q_proj, ",
    ),
    "dr_grpo": (["policies.small.lora.targets=['lm_head']"], "the model has no linear layer 'lm_head'"),
    "rloo": (["policies.small.lora.rank=0"], "policies.small.lora.rank: "),
    "codistill": (
        ["policies.slow={follows='small', lora={rank=4}}"],
        "a follower takes lora from 'small'; remove it here",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_said_before_anything_is_loaded(name):
    settings, said = MISTAKES[name]
    with pytest.raises(RecipeError, match=said):
        open_recipe(name, settings=[*settings, *FEW])


def test_without_peft_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("grpo_kit.policies.lora.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "peft", None)
    needs = r"policies\.small.* needs peft: pip install 'grpo-kit\[lora\]'"
    with pytest.raises(RecipeError, match=needs):
        open_recipe("grpo", settings=["policies.small.lora.rank=8", *FEW])
    with pytest.raises(RecipeError, match=needs):
        load_policies(recipe(policies={"small": SPEC}))
