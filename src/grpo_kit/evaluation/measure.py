"""Completions of every question, judged, a batch at a time."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from grpo_kit.batch import Rollouts, StopReason
from grpo_kit.data import PromptSet
from grpo_kit.evaluation.questions import COLUMN
from grpo_kit.evaluation.verdicts import Verdict, judge
from grpo_kit.grading import final_answer
from grpo_kit.policies import Policy
from grpo_kit.rewards import Reward


class Completion(NamedTuple):
    """One completion of one question, and what was made of it.

    Attributes:
        question: the question's number in the set, from 0.
        sample: its number among the question's completions.
        gold: the gold answer.
        text: what the model wrote.
        answer: its final answer as the grader extracts it, or None.
        verdict: right, wrong or unknown, and the status.
        tokens: its length.
        stop_reason: why it ended.
    """

    question: int
    sample: int
    gold: str
    text: str
    answer: str | None
    verdict: Verdict
    tokens: int
    stop_reason: StopReason


@dataclass(slots=True)
class Stopwatch:
    """Seconds spent on sampling and on grading."""

    sampling: float = 0.0
    grading: float = 0.0
    last: float = field(default_factory=time.perf_counter)

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self.last = self.last, time.perf_counter()
        return self.last - before


def measure(
    policy: Policy,
    questions: PromptSet,
    *,
    sampler: Callable[..., Rollouts],
    reward: Reward,
    samples: int,
    at_once: int,
    seed: int,
    strict: bool,
    watch: Stopwatch,
) -> Iterator[list[Completion]]:
    """Have a policy answer every question and judge the answers; yield the completions of `at_once` questions each.

    Args:
        policy: who answers.
        questions: with the column `answer`.
        sampler: writes `samples` completions of each prompt, prompt after prompt.
        reward: its value 1 means right.
        samples: completions a question.
        at_once: questions a batch. The sampler's generator goes on from batch to batch.
        seed: of that generator.
        strict: for the final answer shown and voted with, as in the reward.
        watch: where the time goes.
    """
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, len(questions), at_once):
        numbers = range(start, min(start + at_once, len(questions)))
        watch.lap()
        rollouts = sampler(questions.take(numbers, first_group=start), {policy.name: policy}, generator)
        watch.sampling += watch.lap()
        verdicts = judge(reward, rollouts)
        watch.grading += watch.lap()
        assert len(rollouts) == len(numbers) * samples
        yield [
            Completion(
                question=start + row // samples,
                sample=row % samples,
                gold=str(rollouts.columns[COLUMN][row]),
                text=rollouts.texts[row],
                answer=final_answer(rollouts.texts[row], strict=strict),
                verdict=verdicts[row],
                tokens=int(rollouts.lengths[row]),
                stop_reason=rollouts.stop_reasons[row],
            )
            for row in range(len(rollouts))
        ]
