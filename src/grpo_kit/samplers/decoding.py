"""Autoregressive decoding: one token after another is drawn for all rows, and finished rows leave the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grpo_kit.batch import Sampling, StopReason
from grpo_kit.joining import widen
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.writing import RowLogits, Writing
from grpo_kit.shapes import PerToken, TokenIds, TokenMask

LEAVE_TOGETHER = 1 / 8
"""Rows that have ended leave the batch when they are this share of it: each time, those that stay are copied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completions:
    """What was written, one completion a row, right-padded with zeros; fields as in `Rollouts` and `Behavior`."""

    tokens: TokenIds
    mask: TokenMask
    logprobs: PerToken
    model_logprobs: PerToken
    stop_reasons: tuple[StopReason, ...]


def joined(parts: Sequence[Completions]) -> Completions:
    """Completions written one part after the other, all as wide as the widest."""
    width = max(part.tokens.shape[1] for part in parts)
    tokens, mask, logprobs, model_logprobs = (
        torch.cat([widen(getattr(part, name), width) for part in parts])
        for name in ("tokens", "mask", "logprobs", "model_logprobs")
    )
    return Completions(
        tokens=tokens,
        mask=mask,
        logprobs=logprobs,
        model_logprobs=model_logprobs,
        stop_reasons=tuple(reason for part in parts for reason in part.stop_reasons),
    )


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
    random state) and `generate` neither shares a prompt's cache among its samples nor drops finished rows.
    """
    samples, steps = len(uniforms) // len(prompts), uniforms.shape[1]
    eos = torch.tensor(sorted(policy.eos_ids), dtype=torch.long, device=policy.device)
    tokens = torch.zeros(uniforms.shape, dtype=torch.long, device=policy.device)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    logprobs, model_logprobs = (torch.zeros_like(tokens, dtype=torch.float32) for _ in range(2))
    uniforms = uniforms.to(policy.device)
    reasons: list[StopReason] = ["length"] * len(uniforms)

    writing = Writing(policy, prompts, samples)
    rows = torch.arange(len(uniforms), device=policy.device)  # those still computed
    done = torch.zeros_like(rows, dtype=torch.bool)  # which of these have ended
    with writing.at_work():
        for step in range(steps):
            whole = temper(writing.logits, sampling.temperature)
            distribution = restrict(whole, sampling)
            if len(damaged := torch.nonzero(distribution[:, 0].isnan())):
                raise ArithmeticError(
                    f"policy '{policy.name}' (version {policy.version}) gives row {int(rows[damaged[0, 0]])} no "
                    f"distribution (NaN) for token {step}. Its weights are damaged; lower the learning rate"
                )
            chosen = draw(distribution, uniforms[rows, step]) if sampling.temperature > 0 else distribution.argmax(1)
            tokens[rows, step], mask[rows, step] = chosen, ~done
            own = torch.arange(len(rows), device=policy.device)
            logprobs[rows, step] = distribution[own, chosen].to(logprobs)
            model_logprobs[rows, step] = whole[own, chosen].to(logprobs)
            ended = torch.isin(chosen, eos) & ~done
            stopped = _hits_stop(policy, tokens[rows, : step + 1], stop) & ~ended & ~done
            for row in rows[ended].tolist():
                reasons[row] = "eos"
            for row in rows[stopped].tolist():
                reasons[row] = "stop"
            done = done | ended | stopped
            left = len(done) - int(done.sum())
            if left == 0 or step + 1 == steps:
                break
            if left <= (1 - LEAVE_TOGETHER) * len(done):
                kept = torch.nonzero(~done).flatten()
                rows, chosen, done = rows[kept], chosen[kept], done[kept]
                writing.keep(kept)
            writing.add(chosen)

    width = int(mask.sum(1).max())
    tokens, logprobs, model_logprobs = (torch.where(mask, found, 0) for found in (tokens, logprobs, model_logprobs))
    return Completions(
        tokens=tokens[:, :width],
        mask=mask[:, :width],
        logprobs=logprobs[:, :width],
        model_logprobs=model_logprobs[:, :width],
        stop_reasons=tuple(reasons),
    )


def _hits_stop(policy: Policy, tokens: TokenIds, stop: Sequence[str]) -> Bool[Tensor, " row"]:
    """Whether each row's last token completed a stop string; only the tail that can hold one is decoded."""
    if not stop:
        return torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    tail = max(len(text.encode()) for text in stop) + 4  # a token is at least one byte of the text
    texts = policy.tokenizer.batch_decode(tokens[:, -tail:].tolist())
    return torch.tensor([any(text in written for text in stop) for written in texts], device=tokens.device)


def temper(logits: RowLogits, temperature: float) -> RowLogits:
    """Log-probabilities at a temperature, nothing cut; untempered at 0 (greedy)."""
    return (logits if temperature in (0, 1) else logits / temperature).log_softmax(1)


def restrict(logprobs: RowLogits, sampling: Sampling) -> RowLogits:
    r"""Log-probabilities of the distribution to draw from: tempered ones, cut and renormalized.

    The cuts are vLLM's and in its order, each made on what the one before it left: min-p drops tokens with
    $p < m \max_v p_v$; top-k keeps the k most likely, and all that are as likely as the last of them; top-p drops the
    least likely tokens whose mass together is at most $1 - p$, those of lower ids first among equally likely ones.
    (transformers makes the same cuts with min-p at the end; then top-p sees the mass that min-p would have dropped.)
    Nothing is cut from greedy rows.
    """
    kept = logprobs
    if sampling.temperature == 0:
        return logprobs
    if sampling.min_p > 0:
        chances = kept.softmax(1)
        kept = kept.masked_fill(chances < sampling.min_p * chances.amax(1, keepdim=True), -torch.inf)
    if 0 < sampling.top_k < kept.shape[1]:
        kept = kept.masked_fill(kept < kept.topk(sampling.top_k, dim=1).values[:, -1:], -torch.inf)
    if sampling.top_p < 1:
        ranked, order = kept.sort(dim=1, stable=True)
        unlikely = ranked.softmax(1).cumsum(1) <= 1 - torch.tensor(sampling.top_p)
        unlikely[:, -1] = False
        kept = kept.masked_fill(torch.zeros_like(unlikely).scatter(1, order, unlikely), -torch.inf)
    return logprobs if kept is logprobs else kept.log_softmax(1)


def draw(logprobs: RowLogits, uniforms: Float[Tensor, " row"]) -> Int[Tensor, " row"]:
    """The token at which the cumulative probability first exceeds each uniform number; never one of probability 0."""
    cumulative = logprobs.double().exp().cumsum(1)
    total = cumulative[:, -1]
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, rearrange(target, "row -> row 1"), right=True)[:, 0]
