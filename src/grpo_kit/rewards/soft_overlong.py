"""A punishment that grows over the last stretch before the length limit."""

from typing import Annotated

import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from grpo_kit.batch import Component, Rollouts
from grpo_kit.parts import part
from grpo_kit.shapes import PerRow
from grpo_kit.signals import Signals


@part("soft_overlong")
class SoftOverlong:
    r"""DAPO's soft overlong punishment (arXiv:2503.14476, eq. 13) by the completion's length $L$ in tokens.

    $$r = -\min\left(1, \max\left(0, \frac{L - (L_\mathrm{max} - L_\mathrm{cache})}{L_\mathrm{cache}}\right)\right)$$

    So it is in [-1, 0], and -1 at $L_\mathrm{max}$ already. Rows that the sampler cut are judged like all others: one
    cut at `max_new_tokens` has that length. It says nothing of right or wrong; add it to a reward that does. Every
    status is `ok`.

    Attributes:
        max_length: $L_\mathrm{max}$ in tokens, normally the sampler's `max_new_tokens`.
        cache: $L_\mathrm{cache}$, the tokens before `max_length` over which the punishment grows; at most
            `max_length`.

    Example:
        >>> SoftOverlong(max_length=100, cache=20).punish(torch.tensor([80, 85, 100, 101]))
        tensor([ 0.0000, -0.2500, -1.0000, -1.0000])
    """

    max_length: Annotated[int, Field(ge=1)]
    cache: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _cache_fits(self) -> "SoftOverlong":
        if self.cache > self.max_length:
            raise ValueError(f"cache = {self.cache} is more than max_length = {self.max_length}; give at most that")
        return self

    @property
    def formula(self) -> str:
        """The reward of a row."""
        return rf"-\min(1, \max(0, (|o_i| - {self.max_length - self.cache}) / {self.cache}))"

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Judge every length; see the class."""
        return Component(values=self.punish(rollouts.lengths), statuses=("ok",) * len(rollouts))

    def punish(self, lengths: Int[Tensor, " row"]) -> PerRow:
        """The punishment of completions by their numbers of tokens."""
        over = lengths - (self.max_length - self.cache)
        return 0 - (over.to(torch.get_default_dtype()) / self.cache).clamp(0, 1)
