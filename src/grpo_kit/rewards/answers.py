"""Where a reward finds the final answer in a completion: by the kit's rule, or by a pattern of the user's."""

import re

from grpo_kit.grading.extract import final_answer


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
