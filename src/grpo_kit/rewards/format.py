"""Does the completion have the required form?"""

import re

import torch
from pydantic import field_validator

from grpo_kit.batch import Component, Rollouts, Signals
from grpo_kit.parts import part


@part("format")
class Format:
    r"""1 where a regular expression is found in the completion, else 0.

    Attributes:
        pattern: Python regular expression; `.` also matches line ends. The default asks for a `\boxed{...}`.

    Example:
        >>> Format(pattern=r"</think>.*</answer>").matches("<think>...</think>\n<answer>4</answer>")
        True
    """

    pattern: str = r"\\boxed\{.+\}"

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return pattern

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Search every completion; see the class."""
        values = torch.tensor([float(self.matches(text)) for text in rollouts.texts], device=rollouts.mask.device)
        return Component(values=values, statuses=("ok",) * len(rollouts))

    def matches(self, text: str) -> bool:
        """Whether one completion has the form."""
        return re.search(self.pattern, text, re.DOTALL) is not None
