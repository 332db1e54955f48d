"""Rows that were begun by one policy and continued by another, joined token behind token."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Shaped
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from grpo_kit.batch import Prompts, Rollouts
from grpo_kit.joining import concatenate
from grpo_kit.samplers.rows import cut
from grpo_kit.shapes import TokenIds, TokenMask


def as_prompts(begun: Rollouts) -> Prompts:
    """Rows without gaps as prompts to go on from, each a group under its own number."""
    written = begun.tokens.tolist()
    return Prompts(
        ids=tuple((*prompt, *tokens) for prompt, tokens in zip(begun.prompts, written, strict=True)),
        groups=tuple(range(len(begun))),
        columns=begun.columns,
    )


def continued(begun: Rollouts, rest: Rollouts, *, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]) -> Rollouts:
    """Every row with what was written behind it; every token keeps its writer.

    A stop string that began in the first part ends its row, too: whoever wrote the second could not see it. The texts
    are read anew from all tokens, since a character may lie on both sides.

    Args:
        begun: rows that are all of one length.
        rest: what follows each, row by row.
        tokenizer: of both.
        stop: strings that end a completion; the text is cut before them.
    """
    count, length = len(begun), begun.tokens.shape[1]
    both = concatenate([begun, _shifted(rest, length)])
    assert both.behavior is not None, "policies wrote both"
    late = torch.arange(both.mask.shape[1], device=both.mask.device) >= length

    def one(values: Shaped[Tensor, "rows token"]) -> Shaped[Tensor, "row token"]:
        return torch.where(late, values[count:], values[:count])

    tokens, mask, reasons = one(both.tokens), one(both.mask), list(rest.stop_reasons)
    for row, end in _ends(tokens, mask, length, tokenizer, stop).items():
        if end < int(mask[row].sum()) or reasons[row] == "length":
            mask[row, end:], reasons[row] = False, "stop"
    ids = [own[keep].tolist() for own, keep in zip(tokens, mask, strict=True)]
    model = both.behavior.model_logprobs
    return replace(
        begun,
        tokens=tokens,
        mask=mask,
        stop_reasons=tuple(reasons),
        texts=tuple(cut(text, stop) for text in tokenizer.batch_decode(ids, skip_special_tokens=True)),
        behavior=replace(
            both.behavior,
            writer=one(both.behavior.writer),
            logprobs=one(both.behavior.logprobs),
            model_logprobs=None if model is None else one(model),
        ),
    )


def _shifted(rows: Rollouts, length: int) -> Rollouts:
    """Rows whose tokens begin later, with nothing in front."""
    behavior = rows.behavior
    assert behavior is not None, "a policy wrote them"
    model = behavior.model_logprobs

    def late(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (length, 0))

    moved = replace(
        behavior,
        writer=late(behavior.writer),
        logprobs=late(behavior.logprobs),
        model_logprobs=None if model is None else late(model),
    )
    return replace(rows, tokens=late(rows.tokens), mask=late(rows.mask), behavior=moved)


def _ends(
    tokens: TokenIds, mask: TokenMask, length: int, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]
) -> dict[int, int]:
    """How many tokens rows have up to a stop string that began in their first `length`; a token is a byte at least."""
    longest = max((len(text.encode()) for text in stop), default=0)
    found: dict[int, int] = {}
    for row in range(len(tokens)) if longest > 1 else ():
        for end in range(length + 1, min(int(mask[row].sum()), length + longest - 1) + 1):
            text = tokenizer.decode(tokens[row, max(0, end - longest - 4) : end].tolist())
            if any(own in text for own in stop):
                found[row] = end
                break
    return found
