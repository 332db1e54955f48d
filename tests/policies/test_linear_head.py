"""Whether a model's head is a plain matrix, and that a policy's logits are the model's own either way."""

from dataclasses import replace

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import tiny
from grpo_kit import Policy
from grpo_kit.detail import Detail
from tolerances import BFLOAT16, FLOAT32

SIZES = {
    "vocab_size": tiny.VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": tiny.EOS,
    "pad_token_id": 0,
}
GPT2 = {"vocab_size": tiny.VOCABULARY, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": None, "eos_token_id": 1}
LINEAR = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "llama, tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "phi, with a bias": lambda: PhiForCausalLM(PhiConfig(**SIZES)),
    "granite, scaled by 1": lambda: GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=1.0)),
    "gemma2, without a cap": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=None)),
}
MORE = {
    "gemma2, capped": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=30.0)),
    "cohere, scaled": lambda: CohereForCausalLM(CohereConfig(**SIZES, logit_scale=0.0625)),
    "granite, scaled": lambda: GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=8.0)),
    "granite, scaled a little": lambda: GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=1.02)),
}


def policy(make, dtype=torch.float32, vocabulary=tiny.VOCABULARY) -> Policy:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().to(dtype).eval()
    return Policy(name="small", model=model, tokenizer=tiny.tokenizer(), vocabulary=vocabulary)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("name", [*LINEAR, *MORE])
def test_a_linear_head_is_told_from_more_however_large_its_logits_are(name, size, dtype):
    own = policy((LINEAR | MORE)[name], dtype)
    with torch.no_grad():
        own.model.get_output_embeddings().weight *= size
    assert own.has_linear_head == (name in LINEAR)


def test_a_head_that_is_more_than_its_matrix_is_not_linear():
    class Adapted(torch.nn.Linear):
        """What an adapter or a quantized matrix is."""

    own = policy(LINEAR["llama"])
    head = Adapted(16, tiny.VOCABULARY, bias=False)
    own.model.set_output_embeddings(head)
    assert not own.has_linear_head
    assert not own.model.get_output_embeddings()._forward_hooks


def test_hidden_states_changed_before_the_head_are_seen():
    own = policy(LINEAR["llama"])
    own.model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (inputs[0] / 1.1,))
    assert not own.has_linear_head


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)], ids=str)
@pytest.mark.parametrize("vocabulary", [tiny.VOCABULARY, tiny.VOCABULARY - 2])
@pytest.mark.parametrize("name", [*LINEAR, *MORE])
def test_the_logits_of_a_policy_are_those_of_its_model(name, vocabulary, dtype, tolerance):
    own = policy((LINEAR | MORE)[name], dtype, vocabulary)
    leaf = own.model.get_output_embeddings().weight
    with torch.no_grad():
        leaf *= 30  # so that a cap shows
    rows = tiny.rollouts([3, 1, 4], [0, 0, 0], prompt_lengths=[2, 2, 2])
    rows = replace(rows, tokens=rows.tokens.clamp(max=vocabulary - 1))
    ids = torch.cat([torch.tensor(rows.prompts), torch.where(rows.mask, rows.tokens, 0)], dim=1)
    expected = own.model(ids).logits[:, 1:-1, :vocabulary].float()
    expected = torch.where(rows.mask[..., None], expected, 0)
    torch.testing.assert_close(own.logits(rows), expected, **tolerance)

    logprobs = (expected / 0.7).log_softmax(-1)
    chosen = torch.where(rows.mask, logprobs.gather(-1, rows.tokens[..., None])[..., 0], 0)
    scores = own.score(rows, temperature=0.7, detail=Detail(full=True))
    torch.testing.assert_close(scores.logprobs, chosen, **tolerance)
    torch.testing.assert_close(scores.distributions.logprobs()[rows.mask], logprobs[rows.mask], **tolerance)
    (found,), (dense,) = (torch.autograd.grad(values.sum(), leaf) for values in (scores.logprobs, chosen))
    torch.testing.assert_close(found, dense, **tolerance)
