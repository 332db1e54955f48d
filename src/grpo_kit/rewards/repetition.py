"""A penalty for saying the same again."""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field

from grpo_kit.batch import Component, Rollouts
from grpo_kit.formula import number
from grpo_kit.parts import part
from grpo_kit.signals import Signals


@part("repetition")
class Repetition:
    r"""Penalty $-p (1 - d / k)$ for a completion with $k$ n-grams of which $d$ are distinct.

    0 where no n-gram comes twice (and where the completion is shorter than one), down to nearly $-p$ where one thing
    is said over and over. The n-gram penalty of arXiv:2502.03373 (appendix), there for wrong answers only; here for
    every completion. Every status is `ok`.

    Attributes:
        size: $n$, items in an n-gram; small ones also punish what language repeats anyway.
        max_penalty: $p$; above 0.
        unit: the items: `words` (what white space separates, in lower case) or `tokens` (ids of the vocabulary, for
            languages without spaces, or code).

    Example:
        >>> Repetition(size=2).penalty("no no no no".split())  # 3 pairs, 1 distinct
        -0.6666666666666667
    """

    size: Annotated[int, Field(ge=1)] = 3
    max_penalty: Annotated[float, Field(gt=0)] = 1.0
    unit: Literal["words", "tokens"] = "words"

    @property
    def formula(self) -> str:
        """The reward of a row."""
        return rf"-{number(self.max_penalty)} \cdot (1 - \text{{distinct}} / \text{{all}})"

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Look through every completion; see the class."""
        if self.unit == "words":
            items: list[Sequence[object]] = [text.lower().split() for text in rollouts.texts]
        else:
            items = [tokens[mask].tolist() for tokens, mask in zip(rollouts.tokens, rollouts.mask, strict=True)]
        values = torch.tensor([self.penalty(each) for each in items], device=rollouts.mask.device)
        return Component(values=values, statuses=("ok",) * len(rollouts))

    def penalty(self, items: Sequence[object]) -> float:
        """The penalty of one completion, given as words or token ids."""
        grams = list(zip(*(items[start:] for start in range(self.size)), strict=False))
        return -self.max_penalty * (1 - len(set(grams)) / len(grams)) if grams else 0.0
