"""What a reward says of completions, as right, wrong or unknown: the same in training and in `grpo-kit eval`."""

from collections.abc import Sequence
from typing import NamedTuple

from grpo_kit.batch import Rollouts
from grpo_kit.evaluation.estimates import Tally
from grpo_kit.rewards import Reward
from grpo_kit.signals import Signals


class Verdict(NamedTuple):
    """What the reward says of one completion.

    Attributes:
        right: 1 where the reward is 1, else 0; None where it is missing (NaN), which is not the same as wrong.
        status: the reward's word for it.
    """

    right: float | None
    status: str


def judge(reward: Reward, rollouts: Rollouts) -> list[Verdict]:
    """The verdict of each row, from a reward that needs no policy's signals."""
    component = reward(rollouts, Signals({}))
    values = component.per_row().tolist()
    return [
        Verdict(None if value != value else float(value == 1), status)
        for value, status in zip(values, component.statuses, strict=True)
    ]


def tally(verdicts: Sequence[Verdict], samples: int) -> list[Tally]:
    """Right and judged completions of each question; the rows of a question follow each other.

    Example:
        >>> tally([Verdict(1.0, "ok"), Verdict(None, "timeout"), Verdict(0.0, "ok"), Verdict(1.0, "ok")], 2)
        [Tally(right=1, judged=1), Tally(right=1, judged=2)]
    """
    rows = [
        [verdict.right for verdict in verdicts[start : start + samples]] for start in range(0, len(verdicts), samples)
    ]
    return [Tally(sum(right == 1 for right in row), sum(right is not None for right in row)) for row in rows]
