"""Where a reward finds the final answer in a completion: by the kit's rule, or by a pattern of the user's."""

import math
import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator

from grpo_kit.grading.extract import final_answer


def _one_group(pattern: str | None) -> str | None:
    """Refuse a pattern that is none, or does not say which part is the answer."""
    if pattern is None:
        return None
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"{pattern!r} has {groups} groups; mark the answer by one ( )")
    return pattern


AnswerPattern = Annotated[str | None, AfterValidator(_one_group)]
"""A regular expression whose one group is the answer (`.` matches line ends, the last match counts), or None."""


def find_answer(text: str, *, strict: bool, pattern: str | None) -> str | None:
    """The final answer of a completion: the last match of the pattern, or by the kit's rule where there is none.

    Example:
        >>> find_answer("<answer> 4 </answer>", strict=False, pattern="<answer>(.*?)</answer>")
        '4'
        >>> find_answer("The answer is 4.", strict=False, pattern=None)
        '4'
    """
    if pattern is None:
        return final_answer(text, strict=strict)
    answers = [match[1] or "" for match in re.finditer(pattern, text, re.DOTALL)]
    return answers[-1].strip() or None if answers else None


def idle_strict(strict: bool, pattern: str | None) -> None:
    """Refuse `strict` beside a pattern, which it would not change."""
    if strict and pattern is not None:
        raise ValueError("strict is about the kit's own rule and does nothing with a pattern; leave one of them out")


def gold_text(gold: object) -> str | None:
    """A gold value of a data set as text: texts, whole and decimal numbers; None for anything else, or nothing.

    Example:
        >>> gold_text(42), gold_text(0.5), gold_text(" "), gold_text(None), gold_text(float("nan"))
        ('42', '0.5', None, None, None)
    """
    if isinstance(gold, int):
        return str(gold) if isinstance(gold, bool) else str(Decimal(gold))  # str(int) refuses 4300 digits and more
    if isinstance(gold, float):
        return repr(gold) if math.isfinite(gold) else None
    return gold if isinstance(gold, str) and gold.strip() else None
