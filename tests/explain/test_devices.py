"""Memory with adapters, with engines, and of models that are a configuration and nothing more."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from explain.allocations import PROMPT, SHORT, allocated, updating
from grpo_kit import InProcess, VLLMSampler, read_recipe
from grpo_kit.explain.devices import memory, shares
from grpo_kit.explain.memory import _rows, estimate
from grpo_kit.explain.page import Table
from grpo_kit.policies.load import load_tokenizer
from grpo_kit.policies.tiny import tiny_path
from grpo_kit.run.setup import load_inputs, load_policies

LORA = [f"policies.{name}.lora.rank=8" for name in ("small", "large")]


def estimates(recipe):
    tokenizers = {name: load_tokenizer(spec) for name, spec in recipe.policies.items() if spec.follows is None}
    return {name: estimate(recipe, name, tokenizers, PROMPT) for name in recipe.policies}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_adapters_are_what_the_allocator_sees(dtype):
    recipe = read_recipe("codistill", settings=[*SHORT, *LORA, f"policies.small.dtype={dtype}"])
    said, policies = estimates(recipe)["small"], load_policies(recipe)
    policy = policies["small"]
    learning = [weight for weight in policy.model.parameters() if weight.requires_grad]
    assert said.parameters == sum(weight.numel() for weight in policy.model.parameters())
    assert said.learning == sum(weight.numel() for weight in learning) < said.parameters
    held = (*policy.model.parameters(), *policy.model.buffers())
    assert said.weights == sum(tensor.nbytes for tensor in held)
    assert said.gradients == sum(weight.nbytes for weight in learning)
    assert said.optimizer == 2 * said.gradients
    assert said.updating == pytest.approx(updating(recipe, "small", policies), rel=0.1)
    with torch.no_grad():
        assert said.scoring == pytest.approx(allocated(lambda: policy.score(_rows(16, PROMPT, 48))), rel=0.1)


def test_shared_weights_count_once():
    slow = "policies.slow={ follows = 'small' }"
    twin = "policies.twin={ model = 'tiny:small' }"
    kl = [
        f"rewards.{name}={{ kind = 'kl_penalty', policy = 'small', reference = '{name}' }}" for name in ("slow", "twin")
    ]
    used = [f"learners.small.rewards.{name}=0.1" for name in ("slow", "twin")]
    recipe = read_recipe("codistill", settings=[*SHORT, *LORA, slow, twin, *kl, *used])
    found = estimates(recipe)
    adapters = 4 * found["small"].learning
    buffers = sum(tensor.nbytes for tensor in load_policies(recipe)["small"].model.buffers())
    whole = found["small"].weights - adapters - buffers
    assert found["slow"].weights == adapters + buffers
    assert found["twin"].weights == buffers
    assert found["slow"].shared == found["twin"].shared == whole
    assert found["slow"].learning == found["slow"].gradients == 0


SHAPES = {
    "small": {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2,
              "vocab_size": 151936, "tie_word_embeddings": True},
    "large": {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4,
              "vocab_size": 152064, "tie_word_embeddings": False},
}  # fmt: skip
"""Qwen2.5-Math 1.5B and 7B, but for their number of layers (28)."""


def shaped(folder, name, layers):
    """A folder with a configuration and a tokenizer, and no weights."""
    (folder / name).mkdir()
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": layers, **SHAPES[name]}
    config |= {"max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 1}
    (folder / name / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_path("small") / file, folder / name / file)
    return f"policies.{name}.model={folder / name}"


def test_a_real_pair_is_estimated_from_its_configurations(tmp_path):
    """One layer each, so that it is quick; `grpo-kit explain` does the same with all."""
    data = ["data={ kind = 'arithmetic', rows = 32 }", "evaluation.data={ split = 'eval' }", "evaluation.questions=8"]
    recipe = read_recipe("codistill_qwen", settings=[*data, *(shaped(tmp_path, name, 1) for name in SHAPES)])
    table, *sentences = memory(recipe, load_inputs(recipe), 200)
    assert isinstance(table, Table)
    rows = {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}
    wide, inner, heads = 1536, 8960, 2 * 128
    layer = 2 * wide * wide + wide + 2 * (wide * heads + heads) + 3 * wide * inner + 2 * wide
    adapters = 32 * (2 * 2 * wide + 2 * (wide + heads) + 3 * (wide + inner))
    assert rows["small"]["parameters"] == f"{151936 * wide + layer + wide + adapters:,}"
    assert rows["small"]["gradients"] == f"{4 * adapters / 2**20:.2f} MiB"
    assert rows["small"]["AdamW"] == f"{8 * adapters / 2**20:.1f} MiB"
    assert rows["small"]["sampling"] == "-"
    assert all(rows[name][work] != "-" for name in rows for work in ("scoring", "updating"))
    said = " ".join(sentences)
    assert f"Of 'small' {adapters:,} parameters learn, its adapters." in said
    row = 2 * heads * 2 * (200 + 3072)
    assert "The engine of 'small' takes 0.25 of the device" in said
    assert f"{row / 2**20:.2f} MiB a row of full length" in said


def engine_of(settings, **policy):
    recipe = read_recipe("codistill", settings=[*SHORT, *(f"policies.small.{key}={policy[key]}" for key in policy)])
    sampler = VLLMSampler(policy="small", samples=8, max_new_tokens=48, engine=InProcess(**settings))
    recipe = replace(recipe, sampler=sampler)
    (share,) = shares(recipe, list(estimates(recipe).values()), PROMPT)
    return share, recipe


def test_an_engine_takes_its_weights_and_a_share():
    share, recipe = engine_of({"gpu_memory_utilization": 0.5})
    config = load_policies(recipe)["small"].model.config
    numbers = sum(weight.numel() for weight in load_policies(recipe)["small"].model.parameters())
    assert share.weights == 4 * numbers
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    assert share.row == token * (PROMPT + 48)
    assert (share.part, share.cache, share.fixed, share.relative) == (0.5, None, 0, 0.5)
    assert share.smallest == 2 * (share.weights + share.row)
    half, _ = engine_of({"dtype": "bfloat16", "kv_cache_gib": 1.0})
    assert half.weights == share.weights // 2
    assert (half.cache, half.fixed, half.relative) == (2**30, 2**30 + half.weights, 0)
    adapted, _ = engine_of({}, **{"lora.rank": 8})
    assert adapted.weights == share.weights


def test_the_device_holds_the_policies_beside_the_engine():
    _, recipe = engine_of({"gpu_memory_utilization": 0.5})
    _, *sentences = memory(recipe, load_inputs(recipe), PROMPT)
    (sum_,) = (line for line in sentences if line.startswith("All on one device"))
    (needs,) = (line for line in sentences if line.startswith("So the device needs"))
    policies, needed = (line.split(": ")[-1].split("needs ")[-1].split(" MiB")[0] for line in (sum_, needs))
    assert float(needed) == pytest.approx(2 * float(policies), rel=0.01)
    _, recipe = engine_of({"gpu_memory_utilization": 1.0})
    _, *sentences = memory(recipe, load_inputs(recipe), PROMPT)
    assert "leave nothing to the policies" in " ".join(sentences)


def test_sums_are_by_device():
    apart = read_recipe("codistill", settings=[*SHORT, "policies.small.device=cpu"])
    _, *sentences = memory(apart, load_inputs(apart), PROMPT)
    assert not any(line.startswith("All on") for line in sentences)  # one policy each
