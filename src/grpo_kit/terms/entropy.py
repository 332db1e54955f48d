"""An entropy bonus as a term."""

from collections.abc import Mapping
from typing import ClassVar

from grpo_kit.batch import Experience
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.masked import select
from grpo_kit.memory import Memory
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms.where import Where


@part("entropy")
class EntropyBonus:
    r"""Loss $-H(\pi_\mathrm{current}(\cdot \mid s_t))$ on each token: a positive weight keeps the policy undecided.

    The entropy is of the whole next-token distribution, in nats, at the sampling temperature.

    Attributes:
        where: the rows it applies to; all by default.
        weight: factor of the term in the objective, in reward per nat.
    """

    token_local: ClassVar[bool] = True

    where: Where | None = None
    weight: float = 0.001

    @property
    def needs_entropy(self) -> bool:
        """Always."""
        return True

    @property
    def formula(self) -> str:
        """Loss of a token."""
        return r"-H(\pi_\theta(\cdot \mid o_{i,<t}))"

    def reads(self, learner: str) -> tuple[str, ...]:
        """Nobody's frozen scores."""
        return ()

    def freeze(
        self, experience: Experience, rewards: LearnerRewards, learner: str, memory: Memory
    ) -> Mapping[str, PerToken]:
        """Nothing is fixed."""
        return {}

    def __call__(
        self, current: Scores, frozen: Mapping[str, PerToken], written: TokenMask, counted: TokenMask
    ) -> PerToken:
        """Loss of each token; see the class."""
        assert current.entropy is not None
        return -select(current.entropy, counted)
