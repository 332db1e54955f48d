r"""Is the boxed answer the gold answer?"""

import threading
from functools import lru_cache

import math_verify
import torch
from math_verify.errors import TimeoutException

from grpo_kit.batch import Component, Rollouts, Signals
from grpo_kit.parts import part
from grpo_kit.rewards.boxed import last_boxed


@part("correctness")
class Correctness:
    r"""1 where the last `\boxed{...}` of the completion equals the gold answer, else 0.

    The two texts are compared exactly first (runs of spaces are one); only where they differ does math-verify decide
    whether they are the same mathematics. A completion without a box scores 0 with status `no_answer`. Where no verdict
    can be had the reward is missing (NaN), never 0: `unparsed_gold` (math-verify cannot read the gold answer),
    `timeout` (over five seconds; off the main thread there is no time limit) and `error`.

    Attributes:
        column: the data set's column with the gold answer.

    Example:
        >>> Correctness().grade("12", r"so it is \boxed{12}")
        (1.0, 'ok')
    """

    column: str = "answer"

    @property
    def columns(self) -> tuple[str, ...]:
        """The data set's columns it reads."""
        return (self.column,)

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Grade every completion; see the class."""
        golds = rollouts.columns[self.column]
        grades = [self.grade(str(gold), text) for gold, text in zip(golds, rollouts.texts, strict=True)]
        values = torch.tensor([value for value, _ in grades], device=rollouts.mask.device)
        return Component(values=values, statuses=tuple(status for _, status in grades))

    def grade(self, gold: str, text: str) -> tuple[float, str]:
        """The value and status of one completion."""
        answer = last_boxed(text)
        if answer is None:
            return 0.0, "no_answer"
        if " ".join(answer.split()) == " ".join(gold.split()):
            return 1.0, "ok"
        return _same_mathematics(gold, answer)


@lru_cache(maxsize=65536)
def _same_mathematics(gold: str, answer: str) -> tuple[float, str]:
    on_main_thread = threading.current_thread() is threading.main_thread()
    limit = 5 if on_main_thread else None  # math-verify's limit is an alarm, which only the main thread can set
    try:
        golds = math_verify.parse(f"\\boxed{{{gold}}}", parsing_timeout=limit, raise_on_error=True)  # pyright: ignore
        if not golds:
            return float("nan"), "unparsed_gold"
        answers = math_verify.parse(f"\\boxed{{{answer}}}", parsing_timeout=limit, raise_on_error=True)  # pyright: ignore
        return float(math_verify.verify(golds, answers, timeout_seconds=limit, raise_on_error=True)), "ok"
    except TimeoutException:
        return float("nan"), "timeout"
    except Exception:  # whatever a parser of free text may raise: no verdict, counted as such
        return float("nan"), "error"
