"""Reward for a completion that its group does not repeat."""

from collections import Counter
from typing import Annotated

import torch
from pydantic import Field

from grpo_kit import Component, Rollouts, Signals
from grpo_kit.parts import part


@part("novelty")
class Novelty:
    """One over the number of rows of the group that begin alike: 1 for a completion like no other.

    Attributes:
        characters: how many characters of a completion are compared; at least 1. A row with none has status `empty`
            and no reward.
    """

    characters: Annotated[int, Field(ge=1)] = 20

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Judge each row."""
        starts = [text[: self.characters] for text in rollouts.texts]
        keys = list(zip(rollouts.groups.tolist(), starts, strict=True))
        count = Counter(keys)
        values = [1 / count[key] if key[1] else float("nan") for key in keys]
        return Component(
            values=torch.tensor(values, device=rollouts.mask.device),
            statuses=tuple("ok" if start else "empty" for start in starts),
        )
