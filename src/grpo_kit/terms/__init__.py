"""Terms: the summands of a learner's objective."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from grpo_kit.batch import Experience
from grpo_kit.detail import Detail
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.memory import Memory
from grpo_kit.parts import Role
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms.cross_entropy import CrossEntropy
from grpo_kit.terms.divergence import DivergenceTerm
from grpo_kit.terms.entropy import EntropyBonus
from grpo_kit.terms.policy_gradient import PolicyGradient
from grpo_kit.terms.where import Where


@runtime_checkable
class Term(Protocol):
    """One weighted summand: `freeze` fixes what it needs once a batch, the call gives a loss per token.

    `reads(learner)` names the policies whose signals `freeze` takes; `needs_entropy` asks for the current entropy. What
    `freeze` gives are numbers a token, or `Scores`.

    A term may have more: `details(learner)`, how much of those policies' distributions it reads; `where`, the rows it
    applies to; `needs_writer`, True when it applies to sampled rows alone; `token_local`, True when the loss of a token
    depends on that token alone. It is then called with some tokens of the batch as one row, and
    `current.distributions` are there. Other terms are called with whole rows.
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
    ) -> Mapping[str, Any]:
        """Everything fixed for this batch, for all its rows, by name."""
        ...

    def __call__(self, current: Scores, frozen: Mapping[str, Any], written: TokenMask, counted: TokenMask) -> PerToken:
        """Loss of each token of some rows; finite wherever nothing counts."""
        ...


def details_of(term: Term, learner: str) -> Mapping[str, Detail]:
    """How much of other policies' distributions a term reads, where it says so."""
    return getattr(term, "details", lambda learner: {})(learner)


TERMS = Role(
    "terms",
    Term,
    {
        "policy_gradient": PolicyGradient,
        "divergence": DivergenceTerm,
        "cross_entropy": CrossEntropy,
        "entropy": EntropyBonus,
    },
)

__all__ = ["TERMS", "CrossEntropy", "DivergenceTerm", "EntropyBonus", "PolicyGradient", "Term", "Where", "details_of"]
