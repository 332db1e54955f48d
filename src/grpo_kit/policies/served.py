"""A frozen policy that an engine scores: its weights are not here, its configuration and tokenizer are."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.generation.configuration_utils import GenerationConfig

from grpo_kit.batch import Rollouts
from grpo_kit.detail import Detail
from grpo_kit.signals import Scores, TopTokens

NEARLY = 8
"""Likeliest tokens asked for at first beyond those wanted where some may be of no use."""


def without_weights(
    config: Any, generation: GenerationConfig | None, *, dtype: torch.dtype, trust_remote_code: bool
) -> PreTrainedModel:
    """The model of a configuration on the meta device: all of it but its numbers."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=trust_remote_code)
    if generation is not None:
        model.generation_config = generation
    return model.eval().requires_grad_(False)


def refusals(detail: Detail, temperature: float) -> Iterator[str]:
    """What an engine cannot say of a completion, each with what to do about it."""
    if detail.full:
        yield "whole distributions are read, and it gives the likeliest tokens alone. Use a divergence over top_k"
    if detail.entropy:
        yield "entropies are read, and it gives none. Remove what reads them"
    if temperature != 1:
        yield f"rows of temperature {temperature:g} are scored, and it scores at 1. Sample at temperature 1"


def scores_of(
    running: Any, rollouts: Rollouts, *, name: str, vocabulary: int, own: int, temperature: float, detail: Detail
) -> Scores:
    """What a running engine says of a batch.

    The engine normalizes over its model's whole vocabulary of `own` tokens. Of those beyond the common `vocabulary`
    (rows that fill up a matrix, which no text has) the log-probabilities are not given; what little probability they
    have stays where it is, so that with top-k signals it is part of the tail.
    """
    for refusal in refusals(detail, temperature):
        raise ValueError(f"policies.{name}.engine: {refusal}, or remove the engine")
    written = [row for row, length in enumerate(rollouts.lengths.tolist()) if length]
    prompts = [rollouts.prompts[row] for row in written]
    completions = [tuple(rollouts.tokens[row][rollouts.mask[row]].tolist()) for row in written]
    found = _likeliest(running, prompts, completions, detail.top_k, vocabulary, own) if written else []
    logprobs = torch.zeros(rollouts.mask.shape)
    shape = (*rollouts.mask.shape, detail.top_k)
    ids, top = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    for row, (values, their_ids, theirs) in zip(written, found, strict=True):
        places = rollouts.mask[row].cpu()
        logprobs[row, places] = torch.tensor(values)
        if detail.top_k:
            ids[row, places], top[row, places] = torch.tensor(their_ids), torch.tensor(theirs)
    home = rollouts.mask.device
    kept = TopTokens(ids=ids.to(home), logprobs=top.to(home)) if detail.top_k else None
    return Scores(logprobs=logprobs.to(home), top=kept)


Row = tuple[tuple[float, ...], list[list[int]], list[list[float]]]
"""Of one completion: each token's log-probability, the likeliest tokens, and their log-probabilities."""


def _likeliest(
    running: Any,
    prompts: list[tuple[int, ...]],
    completions: list[tuple[int, ...]],
    top_k: int,
    vocabulary: int,
    own: int,
) -> list[Row]:
    """What the engine says, `top_k` tokens of the common vocabulary at every place.

    Where too few of the likeliest are of it, the row is asked about again with more.
    """
    found: dict[int, Row] = {}
    asked, most = top_k, min(own, top_k + own - vocabulary)
    while True:
        left = [row for row in range(len(prompts)) if row not in found]
        said = running.score([prompts[row] for row in left], [completions[row] for row in left], asked)
        for row, scored in zip(left, said, strict=True):
            pairs = zip(scored.top_ids, scored.top_logprobs, strict=True)
            both = [[(i, v) for i, v in zip(*pair, strict=True) if i < vocabulary][:top_k] for pair in pairs]
            if all(len(kept) == top_k for kept in both):
                found[row] = (
                    scored.logprobs,
                    [[i for i, _ in kept] for kept in both],
                    [[v for _, v in kept] for kept in both],
                )
        if len(found) == len(prompts):
            return [found[row] for row in range(len(prompts))]
        assert asked < most, "an engine gives as many of the likeliest tokens as it is asked for"
        asked = min(most, 2 * asked + NEARLY)


def try_scoring(running: Any, *, vocabulary: int, length: int, top_k: int) -> None:
    """Let an engine score one row as long as the longest; ValueError where it cannot, or what it says is no number."""
    length = max(2, length)
    row = tuple(vocabulary - 1 - (31 * place) % vocabulary for place in range(length))
    (said,) = running.score([row[:1]], [row[1:]], top_k)
    if not all(math.isfinite(value) for value in said.logprobs):
        raise ValueError("its engine gives tokens log-probabilities that are no numbers")
