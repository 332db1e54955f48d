"""Is the final answer the gold number?"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator

from grpo_kit.batch import Component, Rollouts
from grpo_kit.grading.grade import plain_gold
from grpo_kit.grading.kinds import Named, Value
from grpo_kit.grading.number import Number, is_near, read_number
from grpo_kit.grading.structure import read_answer
from grpo_kit.parts import part
from grpo_kit.patterns import OneGroup
from grpo_kit.rewards.answers import find_answer, idle_strict
from grpo_kit.signals import Signals

LONGEST = 10_000
"""A text of more characters is not read as a number."""


@part("number_match")
class NumberMatch:
    r"""1 where the completion's final answer is the gold number, else 0.

    Numbers are kept as decimal digits and quotients, so the comparison is exact at any size: 9007199254740993 is not
    9007199254740992, `0.5` is `1/2`, `0.33` is not `1/3`. With a tolerance $|a - g| \le \max(\text{absolute},
    \text{relative} \cdot |g|)$ is enough, $a$ the answer and $g$ the gold number. Numbers are read as in grading:
    decimals, fractions, mixed numbers, powers of ten, digit groups, a name in front (`x = 5`), a unit or currency.

    Statuses: `ok`; `no_answer` (0: the completion gives none); `no_number` (0: its answer is no number);
    `unparsed_gold` (missing, NaN: the gold value is none; such rows are reported before the run).

    Attributes:
        column: the data set's column with the gold number, a number or a text.
        strict: only a `\boxed{...}` is an answer; else the kit's rule, see the page on grading.
        pattern: instead of the kit's rule: a regular expression whose one group is the answer, as in `####\s*(\S+)`;
            the last match counts.
        absolute: largest difference that is no mistake; 0 asks for the exact number.
        relative: the same as a share of the gold number.
        percent: `50%` is the hundredth part (`hundredth`: 0.5) or the sign is dropped (`ignore`: 50).

    Example:
        >>> NumberMatch().grade(1234, "The answer is 1,234.0.")
        (1.0, 'ok')
        >>> NumberMatch(relative=0.01).grade("3.14159", r"\boxed{3.14}")
        (1.0, 'ok')
        >>> NumberMatch().grade("18", r"\boxed{eighteen}")
        (0.0, 'no_number')
    """

    column: str = "answer"
    strict: bool = False
    pattern: OneGroup | None = None
    absolute: Annotated[float, Field(ge=0)] = 0.0
    relative: Annotated[float, Field(ge=0)] = 0.0
    percent: Literal["hundredth", "ignore"] = "hundredth"

    @model_validator(mode="after")
    def _strict_is_used(self) -> "NumberMatch":
        idle_strict(self.strict, self.pattern)
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The data set's columns it reads."""
        return (self.column,)

    def row_faults(self, columns: Mapping[str, Sequence[Any]]) -> dict[int, str]:
        """The rows whose gold value is no number, with the reason."""
        return {
            row: f"column '{self.column}': {_short(gold)} is no number"
            for row, gold in enumerate(columns[self.column])
            if self._gold(gold) is None
        }

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Compare every completion; see the class."""
        grades = [
            self.grade(gold, text) for gold, text in zip(rollouts.columns[self.column], rollouts.texts, strict=True)
        ]
        values = torch.tensor([value for value, _ in grades], device=rollouts.mask.device)
        return Component(values=values, statuses=tuple(status for _, status in grades))

    def grade(self, gold: object, text: str) -> tuple[float, str]:
        """The value and status of one completion."""
        wanted = self._gold(gold)
        if wanted is None:
            return float("nan"), "unparsed_gold"
        answer = find_answer(text, strict=self.strict, pattern=self.pattern)
        if answer is None:
            return 0.0, "no_answer"
        number = self._read(answer)
        if number is None:
            return 0.0, "no_number"
        return float(is_near(number, wanted, absolute=self.absolute, relative=self.relative)), "ok"

    def _gold(self, gold: object) -> Number | None:
        text = plain_gold(gold)
        return self._read(text) if text is not None else None

    def _read(self, text: str) -> Number | None:
        if len(text) > LONGEST:
            return None
        answer = read_answer(text)
        answer = answer.what if isinstance(answer, Named) else answer
        number = read_number(answer.latex) if isinstance(answer, Value) else None
        percent = isinstance(answer, Value) and answer.unit == "%" and self.percent == "hundredth"
        return number.hundredth() if number is not None and percent else number


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
