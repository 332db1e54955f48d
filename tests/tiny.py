"""Tiny things to test with: random Llamas, a word-level tokenizer, rollouts, experiences."""

import string
from collections.abc import Mapping
from functools import lru_cache

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from grpo_kit import Behavior, Component, Experience, Policy, Rewards, Rollouts, Sampling, SignalKey, Signals, Writer
from grpo_kit.learner_rewards import LearnerRewards

VOCABULARY = 12
EOS = 1


@lru_cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Twelve words: <pad>, <eos>, and the letters a to j."""
    words = {"<pad>": 0, "<eos>": EOS} | {letter: 2 + i for i, letter in enumerate(string.ascii_lowercase[:10])}
    words = dict(list(words.items())[:VOCABULARY])
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def policy(name: str = "small", seed: int = 0, *, dtype: torch.dtype = torch.float64, budget: int = 16384) -> Policy:
    """A random Llama of one layer as a policy; equal seeds are equal weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=64,
            initializer_range=0.5,
            bos_token_id=None,
            eos_token_id=EOS,
            pad_token_id=0,
        )
        model = LlamaForCausalLM(config).to(dtype).eval()
    return Policy(name=name, model=model, tokenizer=tokenizer(), vocabulary=VOCABULARY, micro_batch_tokens=budget)


def rollouts(
    lengths,
    groups,
    *,
    seed: int = 0,
    writer: str = "small",
    prompt_lengths=None,
    columns=None,
    texts=None,
    width: int | None = None,
) -> Rollouts:
    """Random completions of given lengths; every third row was cut at the length limit, the others end by eos."""
    generator = torch.Generator().manual_seed(seed)
    rows = len(lengths)
    width = width or max([*lengths, 1])
    tokens = torch.randint(2, VOCABULARY, (rows, width), generator=generator)
    mask = torch.arange(width)[None, :] < torch.tensor(lengths)[:, None]
    prompts = tuple(
        tuple(torch.randint(2, VOCABULARY, (length,), generator=generator).tolist())
        for length in prompt_lengths or [1 + row % 3 for row in range(rows)]
    )
    logprobs = -3 * torch.rand(rows, width, generator=generator, dtype=torch.get_default_dtype())
    return Rollouts(
        prompts=prompts,
        tokens=tokens,
        mask=mask,
        groups=torch.tensor(groups),
        stop_reasons=tuple("length" if row % 3 == 2 else "eos" for row in range(rows)),
        texts=tuple(texts or ["x"] * rows),
        columns=columns or {},
        behavior=Behavior(
            writers=(Writer(policy=writer, version=0, sampling=Sampling()),),
            writer=torch.zeros_like(tokens),
            logprobs=logprobs,
        ),
    )


def with_texts(texts, **columns) -> Rollouts:
    """Rows that only have a text and columns, all of one group."""
    count = len(texts)
    return rollouts([1] * count, [0] * count, texts=list(texts), columns={k: tuple(v) for k, v in columns.items()})


def component(values) -> Component:
    """A reward component of given values, all fine."""
    values = torch.as_tensor(values, dtype=torch.get_default_dtype())
    return Component(values=values, statuses=("ok",) * len(values))


def experience(rows: Rollouts, rewards: dict, policies: list[Policy]) -> Experience:
    """Rollouts with rewards and with the signals of some policies."""
    signals = Signals({SignalKey(own.name, own.version): own.score_all(rows) for own in policies})
    return Experience(
        rollouts=rows,
        signals=signals,
        rewards=Rewards({name: component(value) for name, value in rewards.items()}),
    )


def learner_rewards(
    rows: Rollouts, total, kept=None, counted=None, weights: Mapping[str, float] | None = None
) -> LearnerRewards:
    """Rewards of rows that are all kept unless said otherwise, and whose tokens all count."""
    kept = torch.ones(len(rows), dtype=torch.bool) if kept is None else kept
    total = torch.as_tensor(total, dtype=torch.get_default_dtype())
    counted = rows.mask & kept[:, None] if counted is None else counted
    return LearnerRewards(total=total, weights=weights or {}, kept=kept, counted=counted)


def gradient_of(own: Policy) -> torch.Tensor:
    """The gradient of all weights as one vector."""
    weights = own.model.parameters()
    return torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in weights]).clone()
