"""Does the completion have the required form?"""

import re
from typing import Annotated

import torch
from pydantic import Field

from grpo_kit.batch import Component, Rollouts
from grpo_kit.parts import part
from grpo_kit.patterns import Pattern
from grpo_kit.signals import Signals


@part("format")
class Format:
    r"""The share of the required regular expressions that are found in the completion: 1 all of them, 0 none.

    With one pattern it is 1 or 0. Several give a partial score; with weight 0.5 and `["</think>", "</answer>"]` each
    is worth 0.25. Order and wholeness are the pattern's own: `\A<think>.*</think>\s*<answer>.*</answer>\Z` asks for
    exactly that text. No other reward looks at the form, so a model that never writes a tag loses nothing elsewhere.
    Every status is `ok`.

    Attributes:
        pattern: one Python regular expression or a list of them; `.` also matches line ends. The default asks for a
            `\boxed{...}`.

    Example:
        >>> Format(pattern=("</think>", "</answer>")).share("<think>...</think>\nfour")
        0.5
    """

    pattern: Pattern | Annotated[tuple[Pattern, ...], Field(min_length=1)] = r"\\boxed\{.+\}"

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Search every completion; see the class."""
        values = torch.tensor([self.share(text) for text in rollouts.texts], device=rollouts.mask.device)
        return Component(values=values, statuses=("ok",) * len(rollouts))

    def share(self, text: str) -> float:
        """The share of the patterns that one completion has."""
        patterns = (self.pattern,) if isinstance(self.pattern, str) else self.pattern
        return sum(re.search(each, text, re.DOTALL) is not None for each in patterns) / len(patterns)

    def matches(self, text: str) -> bool:
        """Whether one completion has the whole form."""
        return self.share(text) == 1
