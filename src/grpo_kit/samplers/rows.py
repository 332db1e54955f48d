"""Rollouts from completions: whatever wrote them, the rows are put together here."""

from collections.abc import Sequence

import torch
from einops import repeat

from grpo_kit.batch import Behavior, Prompts, Rollouts, Sampling, Writer
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.decoding import Completions

GREEDY = Sampling(temperature=0)
"""What the greedy rows of a sampler are drawn from."""


def rollouts_of(
    policy: Policy,
    prompts: Prompts,
    completions: Completions,
    *,
    version: int,
    sampling: Sampling,
    samples: int,
    greedy: bool,
    stop: Sequence[str],
) -> Rollouts:
    """Rows of one policy's completions: `samples` of every prompt, prompt after prompt, then the greedy ones.

    Args:
        policy: who wrote, and whose tokenizer turns the tokens into text.
        prompts: that were continued.
        completions: what was written.
        version: of the weights that wrote.
        sampling: what all but the greedy rows were drawn from.
        samples: completions a prompt, without the greedy one.
        greedy: whether a greedy one of every prompt comes after all others.
        stop: strings before which the text is cut.
    """
    each = [(sampling, samples), (GREEDY, 1)][: 1 + greedy]
    places = [place for _, count in each for place in range(len(prompts)) for _ in range(count)]
    counts = torch.tensor([count * len(prompts) for _, count in each], device=completions.tokens.device)
    writers = tuple(Writer(policy=policy.name, version=version, sampling=own) for own, _ in each)
    tokens, mask = completions.tokens, completions.mask
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
            writers=writers,
            writer=repeat(writer, "row -> row token", token=tokens.shape[1]).contiguous(),
            logprobs=completions.logprobs,
            model_logprobs=None if bool(of_model[mask].isnan().all()) else of_model,
        ),
    )


def cut(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string."""
    return text[: min((text.index(end) for end in stop if end in text), default=len(text))]
