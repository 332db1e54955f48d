"""A divergence to another policy as a term: a KL to a reference, or a teacher."""

from collections.abc import Mapping
from typing import Annotated

from grpo_kit.batch import Experience, Scores
from grpo_kit.divergences import DIVERGENCES, Divergence
from grpo_kit.masked import select
from grpo_kit.memory import Memory
from grpo_kit.parts import part
from grpo_kit.returns import Returns
from grpo_kit.shapes import PerToken, TokenMask


@part("divergence")
class DivergenceTerm:
    r"""Loss $D(\pi_\mathrm{current}, q)$ on each token, $q$ another policy scored once with its sampling-time weights.

    It pulls on every row, those of groups without spread included (as in GRPO). The estimators are exact for tokens
    that the learner itself wrote.

    Attributes:
        to: the policy $q$.
        divergence: how the distance is measured.
        weight: factor of the term in the objective, in reward per nat.
    """

    to: str
    divergence: Annotated[Divergence, DIVERGENCES]
    weight: float = 1.0

    @property
    def needs_entropy(self) -> bool:
        """Never: it sees the sampled tokens alone."""
        return False

    def reads(self, learner: str) -> tuple[str, ...]:
        """The other policy's scores."""
        return (self.to,)

    def freeze(self, experience: Experience, returns: Returns, learner: str, memory: Memory) -> Mapping[str, PerToken]:
        """The other policy's log-probabilities."""
        return {"other": experience.signals[self.to].logprobs}

    def __call__(
        self, current: Scores, frozen: Mapping[str, PerToken], written: TokenMask, counted: TokenMask
    ) -> PerToken:
        """Loss of each token; see the class."""
        return self.divergence(select(current.logprobs, counted), select(frozen["other"], counted))
