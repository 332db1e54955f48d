"""Is the completion's final answer the gold answer?"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field

from grpo_kit.batch import Component, Rollouts
from grpo_kit.grading import grade_all, unreadable
from grpo_kit.parts import part
from grpo_kit.signals import Signals


@part("correctness")
class Correctness:
    r"""1 where the final answer of the completion is the gold answer, else 0; see `grade` for what that means.

    A completion without a final answer scores 0 with status `no_answer`. Where no verdict can be had the reward is
    missing (NaN), never 0: `unparsed_gold` (the gold answer is neither words nor mathematics), `timeout` (the
    comparison took too long, or its numbers are too large to compute) and `error`.

    Attributes:
        column: the data set's column with the gold answer, a text or a number.
        strict: only what stands in a box (`\boxed{...}`) is an answer.
        timeout: seconds of work after which a comparison is given up; above 0.

    Example:
        >>> Correctness(column="solution", strict=True).columns
        ('solution',)
    """

    column: str = "answer"
    strict: bool = False
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 2.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The data set's columns it reads."""
        return (self.column,)

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Grade every completion; see the class."""
        golds = rollouts.columns[self.column]
        grades = grade_all(golds, rollouts.texts, timeout=self.timeout, strict=self.strict)
        values = torch.tensor([grade.value for grade in grades], device=rollouts.mask.device)
        return Component(values=values, statuses=tuple(grade.status for grade in grades))

    def row_faults(self, columns: Mapping[str, Sequence[Any]]) -> dict[int, str]:
        """Rows whose gold answer cannot be read: only the very same text would equal it."""
        golds = columns[self.column]
        return {
            row: f"column '{self.column}': {golds[row]!r} is neither words nor mathematics that can be read"
            for row in unreadable(golds)
        }
