"""A reward that bends with the completion's length, one way for right answers and another for wrong ones."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field, PlainValidator

from grpo_kit.batch import Component, Rollouts
from grpo_kit.formula import number
from grpo_kit.parts import part
from grpo_kit.signals import Signals


def _read(value: object) -> object:
    """A table with a `kind` as the reward it describes; the table of kinds holds this part too, so it is read late."""
    from grpo_kit.rewards import REWARDS

    reward = REWARDS.read(value)
    if getattr(reward, "reads", ()):
        raise ValueError("it compares policies and says nothing of right or wrong; name a reward that is 1 when right")
    return reward


@part("cosine_length")
class CosineLength:
    r"""Cosine length-scaled reward (arXiv:2502.03373): correctness first, and within it the length $L$ in tokens.

    $$
    r = r_L + \tfrac{1}{2} (r_0 - r_L) \left(1 + \cos \frac{\pi L}{L_\mathrm{max}}\right) \quad (L < L_\mathrm{max}),
    \qquad r = r_\mathrm{exceed} \quad (L \ge L_\mathrm{max})
    $$

    with $(r_0, r_L)$ the values at length 0 and at $L_\mathrm{max}$, a pair for right rows and one for wrong rows. A
    row is right where `grading` gives it 1 (or more), wrong below. It *contains* the correctness: use it in place of
    the grading, not beside it. With the defaults a right answer is worth more the shorter it is, and a wrong one costs
    less the longer it is; the paper has (2, 1), (-10, 0) and -10.

    Statuses are those of `grading`; where that gives no verdict (NaN) neither does this, unless the row is as long as
    $L_\mathrm{max}$: then it gets `exceed`, right or wrong, with status `exceeded`.

    Attributes:
        max_length: $L_\mathrm{max}$ in tokens, normally the sampler's `max_new_tokens`, so that rows cut there
            get `exceed`.
        grading: the reward that says what is right, a table with its `kind`.
        correct: the values $(r_0, r_L)$ of right rows.
        wrong: the values $(r_0, r_L)$ of wrong rows.
        exceed: the value of rows of `max_length` tokens and more.

    Example:
        >>> from grpo_kit.rewards import NumberMatch
        >>> shaped = CosineLength(max_length=100, grading=NumberMatch())
        >>> [round(shaped.value(50, correct), 3) for correct in (True, False)]
        [0.75, -0.75]
    """

    max_length: Annotated[int, Field(ge=1)]
    grading: Annotated[Any, PlainValidator(_read)]
    correct: tuple[float, float] = (1.0, 0.5)
    wrong: tuple[float, float] = (-1.0, -0.5)
    exceed: float = -1.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The data set's columns that the grading reads."""
        return tuple(getattr(self.grading, "columns", ()))

    def row_faults(self, columns: Mapping[str, Sequence[Any]]) -> Mapping[int, str]:
        """The rows that the grading cannot judge."""
        faults = getattr(self.grading, "row_faults", None)
        return faults(columns) if faults else {}

    @property
    def formula(self) -> str:
        """The reward of a row: right, wrong, too long."""

        def bend(start: float, end: float) -> str:
            sign, half = "-" if start < end else "+", number(abs(start - end) / 2)
            return rf"{number(end)} {sign} {half} \cdot (1 + \cos(\pi |o_i| / {self.max_length}))"

        right, wrong = bend(*self.correct), bend(*self.wrong)
        cut = rf"{number(self.exceed)} \text{{ from }} |o_i| = {self.max_length}"
        return rf"{right} \text{{ if right, }} {wrong} \text{{ if wrong, }} {cut}"

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Grade every row, then look at its length; see the class."""
        graded = self.grading(rollouts, signals)
        values, statuses = [], []
        for length, grade, status in zip(
            rollouts.lengths.tolist(), graded.per_row().tolist(), graded.statuses, strict=True
        ):
            exceeded = length >= self.max_length
            values.append(math.nan if math.isnan(grade) and not exceeded else self.value(length, grade >= 1))
            statuses.append("exceeded" if exceeded else status)
        return Component(values=torch.tensor(values, device=rollouts.mask.device), statuses=tuple(statuses))

    def value(self, length: int, correct: bool) -> float:
        """The reward of one row."""
        if length >= self.max_length:
            return self.exceed
        start, end = self.correct if correct else self.wrong
        return end + 0.5 * (start - end) * (1 + math.cos(math.pi * length / self.max_length))
