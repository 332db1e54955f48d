"""Supervised learning as a term: the cross-entropy of rows that nobody sampled."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from grpo_kit.batch import Experience
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.masked import select
from grpo_kit.memory import Memory
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms.where import Where


@part("cross_entropy")
class CrossEntropy:
    r"""Loss $-\log \pi_\mathrm{current}(o_t)$ on each token of the completion: supervised fine-tuning (SFT).

    By default it applies to the rows of the data set alone, so that beside sampled rows it never teaches a policy its
    own samples. Prompts are not learned. As in every term the policy is taken at the temperature of the batch, that of
    its sampled rows (1 without any): beside rows sampled at another one it is not the usual cross-entropy.

    Attributes:
        where: the rows it applies to; `{ rows = "data" }` by default. Sampled rows that a reward calls right make it
            rejection-sampling fine-tuning.
        weight: factor of the term in the objective.
    """

    token_local: ClassVar[bool] = True

    where: Where = Field(default_factory=lambda: Where(rows="data"))
    weight: float = 1.0

    @property
    def needs_entropy(self) -> bool:
        """Never."""
        return False

    @property
    def formula(self) -> str:
        """Loss of a token."""
        return r"-\log \pi_\theta(o_{it})"

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
        return -select(current.logprobs, counted)
