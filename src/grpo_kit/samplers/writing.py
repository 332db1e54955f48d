"""A model at work on rows that share prompts: the prompts are read once, then each row token by token."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from grpo_kit.policies.policy import Policy, pad_left
from grpo_kit.samplers.shared_prefix import GroupCache, attending, can_share
from grpo_kit.shapes import TokenIds

RowLogits = Float[Tensor, "row vocabulary"]
"""Unnormalized log-probabilities of each row's next token, or normalized ones."""
Known = Int[Tensor, "row known"]
"""1 for each token that a row has so far, 0 where its prompt is padded."""


class Writing:
    """Rows being written, `samples` for each prompt, prompt after prompt, and the logits of their next tokens.

    Where the policy's attention allows it, a prompt's keys and values are there once for all its rows; otherwise each
    row has a copy. What is written is the same.
    """

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], samples: int) -> None:
        """Read the prompts."""
        self.policy = policy
        ids, mask = pad_left(prompts, policy.pad_id, policy.device)
        cache = DynamicCache(config=policy.model.config)
        first = self._forward(ids, (mask.cumsum(1) - 1).clamp(min=0), cache, mask)
        self.logits: RowLogits = repeat(first, "prompt vocabulary -> (prompt sample) vocabulary", sample=samples)
        self.lengths = repeat(mask.sum(1), "prompt -> (prompt sample)", sample=samples)
        self.attention: Known | None = None
        if policy.shares_prompts is None:
            policy.shares_prompts = can_share(policy)
        if policy.shares_prompts:
            self.cache = GroupCache(cache, mask, samples)
        else:
            self.cache = cache
            cache.batch_repeat_interleave(samples)
            self.attention = repeat(mask, "prompt token -> (prompt sample) token", sample=samples)

    def at_work(self) -> AbstractContextManager[None]:
        """The block in which tokens are added."""
        return attending(self.policy.model, self.cache) if isinstance(self.cache, GroupCache) else nullcontext()

    def keep(self, rows: Int[Tensor, " row"]) -> None:
        """Let only some of the rows, in order, be written further."""
        self.lengths = self.lengths[rows]
        if isinstance(self.cache, GroupCache):
            self.cache.keep(rows)
        else:
            self.cache.batch_select_indices(rows)
        if self.attention is not None:
            self.attention = self.attention[rows]

    def add(self, tokens: Int[Tensor, " row"]) -> None:
        """Go on with a token of each row."""
        if self.attention is not None:
            self.attention = torch.cat([self.attention, torch.ones_like(self.attention[:, :1])], dim=1)
        ids, positions = (rearrange(values, "row -> row 1") for values in (tokens, self.lengths))
        self.logits = self._forward(ids, positions, self.cache, self.attention)
        self.lengths = self.lengths + 1

    def _forward(self, ids: TokenIds, positions: TokenIds, cache: Any, attention: Known | None) -> RowLogits:
        with self.policy.computing():
            output = self.policy.model(
                input_ids=ids,
                attention_mask=attention,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return output.logits[:, -1, : self.policy.vocabulary].float()
