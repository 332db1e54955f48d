"""Rewards: named components that say how good a completion is."""

from typing import Protocol, runtime_checkable

from grpo_kit.batch import Component, Rollouts
from grpo_kit.grading import Grade, grade
from grpo_kit.parts import Role
from grpo_kit.rewards.correctness import Correctness
from grpo_kit.rewards.cosine_length import CosineLength
from grpo_kit.rewards.format import Format
from grpo_kit.rewards.kl_penalty import KLPenalty
from grpo_kit.rewards.number_match import NumberMatch
from grpo_kit.rewards.on_policy_kd import OnPolicyKD
from grpo_kit.rewards.python import Python
from grpo_kit.rewards.reasoning_gym import ReasoningGymScore
from grpo_kit.rewards.repetition import Repetition
from grpo_kit.rewards.soft_overlong import SoftOverlong
from grpo_kit.rewards.string_match import StringMatch
from grpo_kit.signals import Signals


@runtime_checkable
class Reward(Protocol):
    """Rollouts and frozen signals in, a component out: a value a row (or token) and a status a row.

    A reward that reads signals names the policies it needs in `reads`.
    """

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Judge each row."""
        ...


REWARDS = Role(
    "rewards",
    Reward,
    {
        "correctness": Correctness,
        "number_match": NumberMatch,
        "string_match": StringMatch,
        "reasoning_gym": ReasoningGymScore,
        "cosine_length": CosineLength,
        "soft_overlong": SoftOverlong,
        "repetition": Repetition,
        "format": Format,
        "on_policy_kd": OnPolicyKD,
        "kl_penalty": KLPenalty,
        "python": Python,
    },
)

__all__ = [
    "REWARDS",
    "Correctness",
    "CosineLength",
    "Format",
    "Grade",
    "KLPenalty",
    "NumberMatch",
    "OnPolicyKD",
    "Python",
    "ReasoningGymScore",
    "Repetition",
    "Reward",
    "SoftOverlong",
    "StringMatch",
    "grade",
]
