"""Model FLOPs: what a counter of PyTorch sees in decoding token by token, where nothing is padded or masked."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import tiny
from grpo_kit.flops import ModelFlops
from grpo_kit.policies.lora import Lora, adapt


def llama(**settings) -> PreTrainedModel:
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=12, max_position_embeddings=64, **{**shape, **settings})
    config._attn_implementation = "eager"
    return LlamaForCausalLM(config)


def gpt2() -> PreTrainedModel:
    config = GPT2Config(vocab_size=12, n_embd=16, n_layer=3, n_head=2, n_positions=64, attn_implementation="eager")
    return GPT2LMHeadModel(config)


MODELS = {
    "llama": llama,
    "grouped heads": lambda: llama(num_key_value_heads=2),
    "wide heads": lambda: llama(head_dim=10),
    "tied": lambda: llama(tie_word_embeddings=True),
    "gpt2": gpt2,
}


def counted(model: PreTrainedModel, tokens: int) -> int:
    """Decoding so many tokens one by one, a distribution each."""
    cache, total = None, 0
    for token in range(tokens):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            cache = model(torch.tensor([[token % 12]]), past_key_values=cache, use_cache=True).past_key_values
        rotary = [found for name, found in counter.get_flop_counts().items() if name.endswith("rotary_emb")]
        total += counter.get_total_flops() - sum(sum(one.values()) for one in rotary)
    return total


@pytest.mark.parametrize("name", MODELS)
def test_a_row_costs_what_a_counter_sees(name):
    """A row of one prompt token and n completion tokens reads n tokens and gives n distributions."""
    model = MODELS[name]()
    for tokens in (1, 5):
        rollouts = tiny.rollouts([tokens], [0], prompt_lengths=[1])
        assert ModelFlops.of(model).score(rollouts) == counted(model, tokens)
        assert ModelFlops.of(model).sample(rollouts, "small") == counted(model, tokens)


@pytest.mark.parametrize("name", [*MODELS, "frozen head"])
def test_an_update_costs_what_a_counter_sees(name):
    """Of a single token, which no mask leaves out of attention; its embedding learns, so that all has to go back."""
    model = MODELS.get(name, llama)()
    if name == "frozen head":
        model.get_output_embeddings().weight.requires_grad_(False)
    rollouts = tiny.rollouts([1], [0], prompt_lengths=[1])
    with FlopCounterMode(display=False) as counter:
        model(torch.tensor([[1]])).logits.sum().backward()
    found = counter.get_flop_counts()
    rotary = sum(sum(one.values()) for key, one in found.items() if key.endswith("rotary_emb"))
    assert ModelFlops.of(model).update(rollouts) == counter.get_total_flops() - rotary


def test_prompts():
    flops = ModelFlops(linear=100, head=7, attention=10)
    rollouts = tiny.rollouts([2, 3], [0, 1], prompt_lengths=[4, 1])
    rows = [100 * 5 + 10 * 15 + 7 * 2, 100 * 3 + 10 * 6 + 7 * 3]  # reads 4 + 2 - 1 and 1 + 3 - 1 tokens
    assert flops.score(rollouts) == sum(rows)
    assert flops.update(rollouts) == 3 * sum(rows)
    assert replace(flops, trained=0.0, head_learns=False).update(rollouts) == 2 * sum(rows) + 10 * (15 + 6)
    assert replace(flops, trained=0.0).update(rollouts) == 2 * sum(rows) + 10 * (15 + 6) + 7 * 5


def test_a_prompt_is_read_once_for_all_its_rows():
    flops = ModelFlops(linear=100, head=7, attention=10)
    rollouts = tiny.rollouts([2, 2, 2], [0, 0, 1], prompt_lengths=[3, 3, 3])
    rollouts = replace(rollouts, prompts=(rollouts.prompts[0], rollouts.prompts[0], rollouts.prompts[2]))
    row, prompt = 100 * 4 + 10 * 10 + 7 * 2, 100 * 3 + 10 * 6
    assert flops.sample(rollouts, "small") == 3 * row - prompt
    assert flops.score(rollouts) == 3 * row


def test_a_row_that_two_policies_wrote():
    """The one that begins reads the prompt and its own tokens but the last; the other reads all of it."""
    flops = ModelFlops(linear=1, head=1000, attention=0)
    rollouts = tiny.rollouts([5], [0], prompt_lengths=[3])
    assert rollouts.behavior is not None
    begun = rollouts.behavior.writers[0]
    writer = torch.tensor([[1, 1, 0, 0, 0]])
    behavior = replace(rollouts.behavior, writers=(begun, replace(begun, policy="large")), writer=writer)
    rollouts = replace(rollouts, behavior=behavior)
    assert flops.sample(rollouts, "large") == 3 + 2 - 1 + 2 * 1000
    assert flops.sample(rollouts, "small") == 3 + 5 - 1 + 3 * 1000
    assert flops.sample(rollouts, "nobody") == 0


def test_rows_without_a_token_cost_nothing():
    flops = ModelFlops(linear=1, head=1, attention=1)
    rollouts = tiny.rollouts([0, 1], [0, 1], prompt_lengths=[3, 1])
    assert flops.score(rollouts) == flops.sample(rollouts, "small") == 1 + 1 + 1


def test_adapters_learn_alone():
    adapted, whole = tiny.policy().model, ModelFlops.of(tiny.policy().model)
    adapt(adapted, Lora(rank=1), seed=0)
    found = ModelFlops.of(adapted)
    assert 0 < found.trained < 0.2
    assert not found.head_learns
    assert whole.head_learns
    assert whole.trained == 1
    assert found.linear > whole.linear
