"""Which rows a term applies to."""

from typing import Literal

import torch
from pydantic import model_validator

from grpo_kit.batch import Experience
from grpo_kit.parts import Name, table
from grpo_kit.shapes import RowMask


@table
class Where:
    """The rows that a term applies to; its loss is 0 on the others.

    Attributes:
        rows: `sampled` rows, which some policy wrote, or `data` rows, which nobody did; both by default.
        reward: a reward component that decides, too; a row without that reward is left out.
        at_least: its smallest value.
        at_most: its largest value.
        denominator: whether the weights of the tokens are shared out among all rows of the learner, so that fewer rows
            are a smaller term (`shared`), or among the rows of the term alone (`own`).
    """

    rows: Literal["sampled", "data"] | None = None
    reward: Name | None = None
    at_least: float | None = None
    at_most: float | None = None
    denominator: Literal["shared", "own"] = "shared"

    @model_validator(mode="after")
    def _decides_something(self) -> "Where":
        bounded = self.at_least is not None or self.at_most is not None
        if bounded != (self.reward is not None):
            raise ValueError("reward needs at_least or at_most, and they need a reward; give both or neither")
        if self.rows is None and self.reward is None:
            raise ValueError("where leaves no row out; give rows, or a reward with at_least or at_most, or remove it")
        return self

    def __call__(self, experience: Experience) -> RowMask:
        """True for the rows it applies to."""
        sampled = experience.rollouts.sampled
        chosen = torch.ones_like(sampled) if self.rows is None else sampled if self.rows == "sampled" else ~sampled
        if self.reward is None:
            return chosen
        values = experience.rewards.components[self.reward].per_row().to(sampled.device)
        low = -torch.inf if self.at_least is None else self.at_least
        high = torch.inf if self.at_most is None else self.at_most
        return chosen & (values >= low) & (values <= high)
