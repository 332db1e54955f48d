"""Autoregressive decoding: each prompt is prefilled once for all its samples, and finished rows leave the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache

from grpo_kit.batch import Sampling, StopReason
from grpo_kit.policies.policy import Policy, pad_left
from grpo_kit.shapes import PerToken, TokenIds, TokenMask

RowLogits = Float[Tensor, "row vocabulary"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Completions:
    """What was written, one completion a row, right-padded with zeros; fields as in `Rollouts` and `Behavior`."""

    tokens: TokenIds
    mask: TokenMask
    logprobs: PerToken
    stop_reasons: tuple[StopReason, ...]


def decode(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling,
    uniforms: Float[Tensor, "row max_new_token"],
    stop: Sequence[str] = (),
) -> Completions:
    """Continue every prompt `len(uniforms) / len(prompts)` times, each token decided by one uniform number.

    A row ends with an end-of-sequence token, when its text holds a stop string, or after as many tokens as there are
    uniform numbers.

    Own decoding rather than `generate`, because the rows must be a function of the given numbers alone (no global
    random state) and `generate` neither shares a prefill among samples nor drops finished rows.
    """
    samples, steps = len(uniforms) // len(prompts), uniforms.shape[1]
    eos = torch.tensor(sorted(policy.eos_ids), device=policy.device)
    tokens = torch.zeros(uniforms.shape, dtype=torch.long, device=policy.device)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    logprobs = torch.zeros_like(tokens, dtype=torch.float32)
    uniforms = uniforms.to(policy.device)

    prompt_ids, prompt_mask = pad_left(prompts, policy.pad_id, policy.device)
    cache = DynamicCache(config=policy.model.config)
    first = _next_logits(policy, prompt_ids, prompt_mask, (prompt_mask.cumsum(1) - 1).clamp(min=0), cache)
    cache.batch_repeat_interleave(samples)
    logits = repeat(first, "prompt vocabulary -> (prompt sample) vocabulary", sample=samples)
    attention = repeat(prompt_mask, "prompt token -> (prompt sample) token", sample=samples)
    alive = torch.arange(len(uniforms), device=policy.device)
    reasons: list[StopReason] = ["length"] * len(uniforms)

    for step in range(steps):
        distribution = restrict(logits, sampling)
        if len(damaged := torch.nonzero(distribution.isnan().any(dim=1))):
            raise ArithmeticError(
                f"policy '{policy.name}' (version {policy.version}) gives row {int(alive[damaged[0, 0]])} no "
                f"distribution (NaN) for token {step}. Its weights are damaged; lower the learning rate"
            )
        chosen = draw(distribution, uniforms[alive, step]) if sampling.temperature > 0 else distribution.argmax(1)
        tokens[alive, step], mask[alive, step] = chosen, True
        logprobs[alive, step] = distribution[torch.arange(len(alive)), chosen].to(logprobs)
        ended = torch.isin(chosen, eos)
        stopped = ~ended & _hits_stop(policy, tokens[alive, : step + 1], stop)
        for row in alive[ended].tolist():
            reasons[row] = "eos"
        for row in alive[stopped].tolist():
            reasons[row] = "stop"
        unfinished = torch.nonzero(~(ended | stopped)).flatten()
        if len(unfinished) == 0 or step + 1 == steps:
            break
        if len(unfinished) < len(alive):
            alive, chosen, attention = alive[unfinished], chosen[unfinished], attention[unfinished]
            cache.batch_select_indices(unfinished)
        attention = torch.cat([attention, attention.new_ones((len(alive), 1))], dim=1)
        positions = attention.sum(1, keepdim=True) - 1
        logits = _next_logits(policy, rearrange(chosen, "row -> row 1"), attention, positions, cache)

    width = int(mask.sum(1).max())
    return Completions(
        tokens=tokens[:, :width], mask=mask[:, :width], logprobs=logprobs[:, :width], stop_reasons=tuple(reasons)
    )


def _hits_stop(policy: Policy, tokens: TokenIds, stop: Sequence[str]) -> Bool[Tensor, " row"]:
    """Whether each row's last token completed a stop string; only the tail that can hold one is decoded."""
    if not stop:
        return torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    tail = max(len(text.encode()) for text in stop) + 4  # a token is at least one byte of the text
    texts = policy.tokenizer.batch_decode(tokens[:, -tail:].tolist())
    return torch.tensor([any(text in written for text in stop) for written in texts], device=tokens.device)


def restrict(logits: RowLogits, sampling: Sampling) -> RowLogits:
    """Log-probabilities of the distribution to draw from: tempered, cut by top-k and then top-p, renormalized.

    At temperature 0 (greedy) they are the untempered model's, uncut.
    """
    if sampling.temperature == 0:
        return logits.log_softmax(1)
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[1]:
        weakest = logits.topk(sampling.top_k, dim=1).values[:, -1:]
        logits = torch.where(logits >= weakest, logits, -torch.inf)
    if sampling.top_p < 1:
        ranked, order = logits.log_softmax(1).sort(dim=1, descending=True)
        before = ranked.exp().cumsum(1) - ranked.exp()
        cut = torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, before >= sampling.top_p)
        logits = logits.masked_fill(cut, -torch.inf)
    return logits.log_softmax(1)


def draw(logprobs: RowLogits, uniforms: Float[Tensor, " row"]) -> Int[Tensor, " row"]:
    """The token at which the cumulative probability first exceeds each uniform number; never one of probability 0."""
    cumulative = logprobs.double().exp().cumsum(1)
    total = cumulative[:, -1]
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, rearrange(target, "row -> row 1"), right=True)[:, 0]


def _next_logits(policy: Policy, ids: TokenIds, attention: Tensor, positions: Tensor, cache: DynamicCache) -> RowLogits:
    with policy.computing():
        output = policy.model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
    return output.logits[:, -1, : policy.vocabulary].float()
