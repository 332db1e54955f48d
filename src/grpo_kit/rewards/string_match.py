"""Is the final answer the gold text?"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import model_validator

from grpo_kit.batch import Component, Rollouts
from grpo_kit.grading.grade import plain_gold
from grpo_kit.parts import part
from grpo_kit.patterns import OneGroup
from grpo_kit.rewards.answers import find_answer, idle_strict
from grpo_kit.signals import Signals


@part("string_match")
class StringMatch:
    r"""1 where the completion's final answer is the gold text, letter by letter, else 0.

    Both are compared in Unicode's composed form (NFC), so that two ways to write `é` are one. Nothing is read as
    mathematics; `0.5` is not `1/2` (see `correctness`, `number_match`).

    Statuses: `ok`; `no_answer` (value 0: the completion gives none); `unparsed_gold` (missing, NaN: the gold text is
    missing or empty; such rows are reported before the run).

    Attributes:
        column: the data set's column with the gold text; a number is compared as Python writes it.
        strict: only a `\boxed{...}` is an answer; else the kit's rule, see the page on grading.
        pattern: instead of the kit's rule: a regular expression whose one group is the answer, as in
            `<answer>(.*?)</answer>`; the last match counts. `\A(.*)\Z` takes the whole completion.
        ignore_case: `Paris` is `paris`.
        spaces: white space inside: `fold` (any run is one space), `remove`, or `keep`. Spaces at the ends never count.

    Example:
        >>> StringMatch(ignore_case=True).grade("New York", r"\boxed{new  york}")
        (1.0, 'ok')
        >>> StringMatch(pattern="<answer>(.*?)</answer>").grade("olleh", "It is olleh.")
        (0.0, 'no_answer')
    """

    column: str = "answer"
    strict: bool = False
    pattern: OneGroup | None = None
    ignore_case: bool = False
    spaces: Literal["fold", "remove", "keep"] = "fold"

    @model_validator(mode="after")
    def _strict_is_used(self) -> "StringMatch":
        idle_strict(self.strict, self.pattern)
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The data set's columns it reads."""
        return (self.column,)

    def row_faults(self, columns: Mapping[str, Sequence[Any]]) -> dict[int, str]:
        """The rows whose gold text is missing or empty, with the reason."""
        return {
            row: f"column '{self.column}': {gold!r} is no text to compare with"
            for row, gold in enumerate(columns[self.column])
            if plain_gold(gold) is None
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
        wanted = plain_gold(gold)
        if wanted is None:
            return float("nan"), "unparsed_gold"
        answer = find_answer(text, strict=self.strict, pattern=self.pattern)
        if answer is None:
            return 0.0, "no_answer"
        return float(self._folded(answer) == self._folded(wanted)), "ok"

    def _folded(self, text: str) -> str:
        text = unicodedata.normalize("NFC", text).strip()
        if self.ignore_case:
            text = unicodedata.normalize("NFC", text.casefold())
        return text if self.spaces == "keep" else {"fold": " ", "remove": ""}[self.spaces].join(text.split())
