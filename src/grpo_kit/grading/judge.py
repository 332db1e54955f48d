"""One verdict on two answers, whatever the comparison raises."""

from dataclasses import dataclass

from grpo_kit.grading import algebra
from grpo_kit.grading.compare import readable, same
from grpo_kit.grading.status import Status
from grpo_kit.grading.structure import read_answer


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer equals the gold answer, where `status` is `ok`; else nothing is known."""

    equal: bool
    status: Status


def judge(gold: str, answer: str | None) -> Verdict:
    r"""The verdict on two answers; must run where it can be killed. Without an answer, whether the gold can be read.

    Example:
        >>> judge(r"\frac{1}{2}", "0.5")
        Verdict(equal=True, status='ok')
    """
    try:
        if answer is not None and same(gold, answer):
            return Verdict(True, "ok")
        return Verdict(False, "ok" if readable(read_answer(gold)) else "unparsed_gold")
    except algebra.TooLargeError:
        return Verdict(False, "timeout")
    except Exception:  # whatever sympy raises on a text that nobody foresaw
        return Verdict(False, "error")
