"""Filling a buffer: shard after shard is sampled and scored, and what is there already is kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf

import torch

from grpo_kit.batch import Prompts, Rollouts, Sampled
from grpo_kit.buffers.shards import DamagedShardError
from grpo_kit.buffers.store import Buffer
from grpo_kit.data import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.offers import call_with
from grpo_kit.policies import Policy

Writes = Callable[[Prompts, Mapping[str, Policy], torch.Generator], Rollouts | Sampled]
"""A sampler; the epoch that it may ask for is the first."""


@dataclass(kw_only=True, slots=True)
class Filled:
    """How far a buffer is, as its filling goes on.

    Attributes:
        shards: all that it will have.
        done: finished ones, rows and scores.
        rows: of the finished shards.
        tokens: of their completions.
        written: files of rows, and of scores, that were written just now.
        sampled: tokens that were sampled just now.
        damaged: what was wrong with those that were written again.
    """

    shards: int
    done: int = 0
    rows: int = 0
    tokens: int = 0
    written: int = 0
    sampled: int = 0
    damaged: list[str] = field(default_factory=list)


def fill(
    buffer: Buffer,
    sampler: Writes,
    prompts: PromptSet,
    policies: Mapping[str, Policy],
    details: Mapping[str, Detail],
    *,
    seed: int = 0,
    max_gib: float = inf,
    progress: Callable[[Filled], bool] = lambda _: True,
) -> Filled:
    """Write every shard that is missing or damaged, and every policy's missing scores.

    A shard's rows are a function of the policies, its prompts, the seed and its number alone, so that a filling that
    was broken off goes on to the same buffer.

    Args:
        buffer: begun already; one writer at a time.
        sampler: writes the rows.
        prompts: all there are, in the order of their numbers.
        policies: those that the sampler calls, and those that score; for shards that are there none is called.
        details: what to keep of each policy that scores.
        seed: decides the rows.
        max_gib: its size in GiB at most; ValueError after the first shard that says that all would have more.
        progress: called after each shard; False ends the filling there.
    """
    filled = Filled(shards=ceil(len(prompts) / buffer.prompts_per_shard))
    with buffer.writing():
        for shard in range(filled.shards):
            of_shard = _prompts_of(buffer, shard, prompts)
            if _is_missing(buffer, shard, None, filled):
                generator = torch.Generator().manual_seed(seed * 1_000_003 + shard)
                rows = call_with(sampler, of_shard, policies, generator, details=details, epoch=0.0)
                if isinstance(rows, Sampled):
                    raise ValueError("a sampler that supplies signals with its rows cannot fill a buffer")
                buffer.write_rollouts(shard, rows, rows.groups.tolist())
                filled.sampled += int(rows.mask.sum())
            for name, detail in details.items():
                if _is_missing(buffer, shard, name, filled):
                    rows, _ = buffer.take(of_shard, policies[name].device, ())
                    scores = policies[name].score_all(rows, temperature=rows.temperature, detail=detail)
                    buffer.write_scores(shard, name, scores, rows.mask)
            lengths = buffer.lengths(shard)
            filled.done += 1
            filled.rows += len(lengths)
            filled.tokens += sum(lengths)
            if filled.written:
                _refuse_too_large(buffer, filled, max_gib)
            if not progress(filled):
                break
    return filled


def _refuse_too_large(buffer: Buffer, filled: Filled, max_gib: float) -> None:
    """ValueError where a buffer will be larger than it may, as far as its shards so far tell."""
    there = buffer.bytes_of(filled.done) / 2**30
    expected = there * filled.shards / filled.done
    if expected > max_gib:
        raise ValueError(
            f"buffer {buffer.path}: {filled.done} of {filled.shards} shards have {there:.3g} GiB, so all would have "
            f"about {expected:.3g}, and max_gib is {max_gib:g}. What was finished is kept. Raise max_gib, or keep "
            "less: fewer prompts or samples, a smaller top_k"
        )


def _prompts_of(buffer: Buffer, shard: int, prompts: PromptSet) -> Prompts:
    """The prompts of a shard, each a group under its own number."""
    first = shard * buffer.prompts_per_shard
    return prompts.take(range(first, min(len(prompts), first + buffer.prompts_per_shard)), first_group=first)


def _is_missing(buffer: Buffer, shard: int, policy: str | None, filled: Filled) -> bool:
    """Whether a shard of rows, or of a policy's scores, is to be written; a damaged one is noted and removed."""
    try:
        if buffer.table(shard, policy) is not None:
            return False
    except DamagedShardError as error:
        filled.damaged.append(f"{error.path} was damaged ({error.fault})")
    buffer.remove(shard, policy)
    filled.written += 1
    return True
