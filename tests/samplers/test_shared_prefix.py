"""Rows that share their prompt's cache are written as rows with copies of it; who cannot share is found out."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    Qwen2Config,
)

import tiny
from grpo_kit import Policy, PolicySpec, Sampling
from grpo_kit.policies import load_policy
from grpo_kit.samplers.decoding import decode
from grpo_kit.samplers.shared_prefix import can_share

SMALL = {
    "vocab_size": 12,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.5,
}
LLAMA = SMALL | {"intermediate_size": 16, "num_key_value_heads": 2, "max_position_embeddings": 64}
PROMPTS = [(3, 4, 5, 6), (7,), (8, 9), (3, 4, 5, 6)]


def policy(config, **settings) -> Policy:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, **settings).eval()
    model.generation_config.eos_token_id = tiny.EOS
    return Policy(name="own", model=model, tokenizer=tiny.tokenizer(), vocabulary=12)


def written(own: Policy, *, shares: bool, samples: int = 6, steps: int = 40):
    own.shares_prompts = shares
    uniforms = torch.rand(
        (len(PROMPTS) * samples, steps), generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    with torch.no_grad():
        return decode(own, PROMPTS, sampling=Sampling(), uniforms=uniforms)


def same(own: Policy) -> bool:
    """Whether rows are the same with copies; log-probabilities as near as sums in another order."""
    shared, copied = (written(own, shares=shares) for shares in (True, False))
    assert len(set(shared.mask.sum(1).tolist())) > 5  # rows and whole prompts left at different times
    return (
        torch.equal(shared.tokens, copied.tokens)
        and torch.equal(shared.mask, copied.mask)
        and shared.stop_reasons == copied.stop_reasons
        and torch.allclose(shared.logprobs, copied.logprobs, atol=1e-4)
        and torch.allclose(shared.model_logprobs, copied.model_logprobs, atol=1e-4)
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**LLAMA),
        Qwen2Config(**LLAMA),
        GemmaConfig(**LLAMA, head_dim=8),
        GPT2Config(vocab_size=12, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.5),
    ],
    ids=lambda config: config.model_type,
)
def test_rows_that_share_are_the_rows_with_copies(config, attention):
    own = policy(config, attn_implementation=attention)
    assert can_share(own)
    assert own.model.config._attn_implementation == attention
    assert same(own)
    assert own.model.config._attn_implementation == attention


@pytest.mark.parametrize(
    "config",
    [
        BloomConfig(vocab_size=12, hidden_size=16, n_layer=2, n_head=2, initializer_range=0.5),  # biases by distance
        Gemma2Config(**LLAMA, head_dim=8, sliding_window=4),  # layers that forget, capped scores
        Gemma2Config(**LLAMA, head_dim=8, layer_types=["full_attention"] * 2),  # capped scores alone
        Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=0),
    ],
    ids=["bloom", "gemma2", "capped", "sliding"],
)
def test_a_model_of_another_attention_has_copies(config):
    own = policy(config)
    assert not can_share(own)
    result = written(own, shares=False)
    assert result.mask.any()


def test_it_is_tried_once_and_the_tiny_pair_shares(monkeypatch):
    own = load_policy("small", PolicySpec(model="tiny:small"), live=False)
    assert own.shares_prompts is None
    with torch.no_grad():
        decode(own, [(2, 3)], sampling=Sampling(), uniforms=torch.rand((2, 3), dtype=torch.float64))
    assert own.shares_prompts is True
    monkeypatch.setattr("grpo_kit.samplers.writing.can_share", None)
    with torch.no_grad():
        decode(own, [(2, 3)], sampling=Sampling(), uniforms=torch.rand((2, 3), dtype=torch.float64))


def test_a_lower_precision_shares_too():
    own = policy(LlamaConfig(**LLAMA))
    own.autocast = torch.bfloat16
    assert can_share(own)
    own = policy(LlamaConfig(**LLAMA), dtype=torch.bfloat16)
    assert can_share(own)
    assert written(own, shares=True).mask.any()
