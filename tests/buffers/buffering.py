"""What the tests of buffers share: twelve prompts, a student and a teacher in no time, a filled buffer."""

from pathlib import Path

import torch

import tiny
from grpo_kit import PromptSet, TransformersSampler
from grpo_kit.buffers import Buffer, fill
from grpo_kit.buffers.fingerprints import parameters_of, rollout_identity, score_identity
from grpo_kit.detail import Detail

PROMPTS = PromptSet(
    ids=tuple(tuple(2 + (number + place) % 9 for place in range(1 + number % 3)) for number in range(12)),
    columns={"answer": tuple("abcdefghijkl")},
    skipped=(),
)
SAMPLER = TransformersSampler(policy="small", samples=3, max_new_tokens=6)
EACH = 5
"""Prompts a shard: two whole ones and one of two."""


def policies():
    return {"small": tiny.policy("small", 0), "large": tiny.policy("large", 1)}


def frozen(own):
    own.model.requires_grad_(False)
    return own


def begun(
    path: Path, *, sampler=SAMPLER, prompts=PROMPTS, seed=0, each=EACH, top_k=0, student=0, teacher=1, tokenizer=None
):
    """A buffer without rows."""
    buffer = Buffer(path)
    weights, own = {"small": parameters_of(tiny.policy("small", student))}, tokenizer or tiny.tokenizer()
    buffer.begin(
        rollout_identity(sampler, weights, own, prompts, seed=seed, prompts_per_shard=each, vocabulary=12),
        {"large": score_identity(parameters_of(tiny.policy("large", teacher)), Detail(top_k=top_k), 1.0)},
    )
    return buffer


def filled(path: Path, *, top_k=0, sampler=SAMPLER, **settings):
    buffer = begun(path, top_k=top_k, sampler=sampler)
    fill(buffer, sampler, PROMPTS, policies(), {"large": Detail(top_k=top_k)}, **settings)
    return buffer


def files(buffer: Buffer) -> list[str]:
    """The names of all shards: their content's hashes are in them."""
    return sorted(str(file.relative_to(buffer.path)) for file in buffer.path.rglob("*.arrow"))


def written_fresh(sampler=SAMPLER, seed=0, each=EACH):
    """The rows of each shard, written without a buffer, and their prompts."""
    for shard, first in enumerate(range(0, len(PROMPTS), each)):
        prompts = PROMPTS.take(range(first, min(first + each, len(PROMPTS))), first_group=first)
        yield sampler(prompts, policies(), torch.Generator().manual_seed(seed * 1_000_003 + shard))
