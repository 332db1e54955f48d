"""The rows one learner trains on, with everything its terms have fixed about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from grpo_kit.batch import Experience, Rollouts
from grpo_kit.learner import Learner
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.memory import Memory
from grpo_kit.shapes import AnyShape, RowMask, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms import Term, Where

Frozen = Mapping[str, AnyShape | Scores]
"""What a term has fixed of a batch, by name: numbers a token, or another policy's scores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerBatch:
    """The rows one learner trains on, with everything its terms have fixed about them.

    Attributes:
        rollouts: the rows.
        numbers: each row's number in the step's experience, by which errors name it.
        counted: True where a token counts in the loss; a part of `rollouts.mask`.
        applies: the same for each term by its name, which may apply to fewer rows.
        frozen: each term's fixed values, by the term's name.
    """

    rollouts: Rollouts
    numbers: tuple[int, ...]
    counted: TokenMask
    applies: Mapping[str, TokenMask]
    frozen: Mapping[str, Frozen]

    def take(self, rows: Sequence[int]) -> "LearnerBatch":
        """The given rows, cut to the longest of them."""
        rollouts, index = self.rollouts.take(rows), list(rows)
        width = rollouts.mask.shape[1]
        return LearnerBatch(
            rollouts=rollouts,
            numbers=tuple(self.numbers[row] for row in rows),
            counted=self.counted[index, :width],
            applies={term: mask[index, :width] for term, mask in self.applies.items()},
            frozen=changed(self.frozen, lambda values: values[index, :width]),
        )


def freeze(name: str, learner: Learner, experience: Experience, kept: RowMask, memory: Memory) -> LearnerBatch:
    """Fix a learner's advantages, anchors and corrections, then keep the selected rows that have a reward.

    A sampled row whose reward is missing does not exist for the learner: it is neither in a baseline nor in a
    denominator. Rows of a data set have no reward, and need none.
    """
    rollouts = experience.rollouts
    sampled = rollouts.sampled
    total = experience.rewards.total(learner.rewards) if learner.rewards else torch.zeros(len(rollouts))
    total = torch.where(sampled, total.to(rollouts.mask.device), torch.nan)
    kept = kept & (~total.isnan() | ~sampled) & ~rollouts.greedy
    counted = rollouts.mask & kept[:, None]
    if learner.mask_truncated:
        whole = torch.tensor([reason != "length" for reason in rollouts.stop_reasons], device=counted.device)
        counted = counted & whole[:, None]
    rewards = LearnerRewards(total=total, weights=learner.rewards, kept=kept, counted=counted)
    batch = LearnerBatch(
        rollouts=rollouts,
        numbers=tuple(range(len(rollouts))),
        counted=counted,
        applies={key: counted & _rows_of(term, experience)[:, None] for key, term in learner.terms.items()},
        frozen={
            key: term.freeze(experience, rewards, name, memory.under(f"learners.{name}.terms.{key}"))
            for key, term in learner.terms.items()
        },
    )
    return batch.take(torch.nonzero(kept).flatten().tolist())


def _rows_of(term: Term, experience: Experience) -> RowMask:
    """The rows that a term applies to."""
    where: Where | None = getattr(term, "where", None)
    rows = torch.ones_like(experience.rollouts.sampled) if where is None else where(experience)
    return rows & experience.rollouts.sampled if getattr(term, "needs_writer", False) else rows


def changed(frozen: Mapping[str, Frozen], change: Callable[[AnyShape], AnyShape]) -> dict[str, Frozen]:
    """Every fixed value of every term changed in one way."""
    return {
        term: {name: value.map(change) if isinstance(value, Scores) else change(value) for name, value in fixed.items()}
        for term, fixed in frozen.items()
    }
