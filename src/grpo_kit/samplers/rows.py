"""Rollouts from completions: whatever wrote them, the rows are put together here."""

from collections.abc import Sequence

import torch
from einops import repeat

from grpo_kit.batch import Behavior, Prompts, Rollouts, Writer
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.decoding import Completions


def rollouts_of(
    policy: Policy,
    prompts: Prompts,
    places: Sequence[int],
    completions: Completions,
    writers: Sequence[tuple[Writer, int]],
    stop: Sequence[str],
) -> Rollouts:
    """Rows of completions, each whole by one writer.

    Args:
        policy: whose tokenizer turns the tokens into text.
        prompts: that were continued.
        places: which of them, a row.
        completions: what was written.
        writers: who wrote, each with the number of its rows; they come one writer's after the other's.
        stop: strings before which the text is cut.
    """
    tokens, mask = completions.tokens, completions.mask
    counts = torch.tensor([count for _, count in writers], device=tokens.device)
    writer = torch.arange(len(writers), device=tokens.device).repeat_interleave(counts)
    ids = [row[keep].tolist() for row, keep in zip(tokens, mask, strict=True)]
    of_model = completions.model_logprobs
    return Rollouts(
        prompts=tuple(prompts.ids[place] for place in places),
        tokens=tokens,
        mask=mask,
        groups=torch.tensor([prompts.groups[place] for place in places], device=tokens.device),
        stop_reasons=completions.stop_reasons,
        texts=tuple(cut(text, stop) for text in policy.tokenizer.batch_decode(ids, skip_special_tokens=True)),
        columns={name: tuple(values[place] for place in places) for name, values in prompts.columns.items()},
        behavior=Behavior(
            writers=tuple(own for own, _ in writers),
            writer=repeat(writer, "row -> row token", token=tokens.shape[1]).contiguous(),
            logprobs=completions.logprobs,
            model_logprobs=None if bool(of_model[mask].isnan().all()) else of_model,
        ),
    )


def cut(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string."""
    return text[: min((text.index(end) for end in stop if end in text), default=len(text))]
