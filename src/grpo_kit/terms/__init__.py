"""Terms: the summands of a learner's objective."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from grpo_kit.batch import Experience
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.memory import Memory
from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms.divergence import DivergenceTerm
from grpo_kit.terms.entropy import EntropyBonus
from grpo_kit.terms.policy_gradient import PolicyGradient


@runtime_checkable
class Term(Protocol):
    """One weighted summand: `freeze` fixes what it needs once a batch, the call gives a loss per token.

    `reads(learner)` names the policies whose signals `freeze` takes; `needs_entropy` asks for the current entropy.
    """

    @property
    def weight(self) -> float:
        """Factor of the term in the objective."""
        ...

    @property
    def needs_entropy(self) -> bool:
        """Whether the call reads `current.entropy`."""
        ...

    def reads(self, learner: str) -> tuple[str, ...]:
        """The policies whose frozen signals the term takes."""
        ...

    def freeze(
        self, experience: Experience, rewards: LearnerRewards, learner: str, memory: Memory
    ) -> Mapping[str, PerToken]:
        """Everything fixed for this batch, for all its rows, by name."""
        ...

    def __call__(
        self, current: Scores, frozen: Mapping[str, PerToken], written: TokenMask, counted: TokenMask
    ) -> PerToken:
        """Loss of each token of some rows; finite wherever nothing counts."""
        ...


TERMS = Role("terms", Term, {"policy_gradient": PolicyGradient, "divergence": DivergenceTerm, "entropy": EntropyBonus})

__all__ = ["TERMS", "DivergenceTerm", "EntropyBonus", "PolicyGradient", "Term"]
