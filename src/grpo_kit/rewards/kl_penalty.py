"""The KL to a reference as a reward: what the policy itself wrote, token by token."""

from collections.abc import Callable
from typing import Literal

from pydantic import model_validator

from grpo_kit.batch import Component, Rollouts
from grpo_kit.divergences import AdaptiveCoefficient
from grpo_kit.formula import name
from grpo_kit.masked import select
from grpo_kit.parts import part
from grpo_kit.signals import Signals

WRONG = {
    "k2": "the gradient of half the mean square of the log-ratios less that of the token-wise reverse KL",
    "k3": "the gradient of the reverse KL less that of the token-wise forward KL",
}
"""What the score function makes of the negative of an estimator in the reward."""


@part("kl_penalty")
class KLPenalty:
    r"""Reward $\log \pi_\mathrm{reference}(o_t) - \log \pi_\mathrm{policy}(o_t)$ on each token that the policy wrote.

    The learner's weight $\beta$ on it is the coefficient of the KL, as in InstructGPT (arXiv:2203.02155): with a
    baseline that leaves the row itself out, or none, no clip and no selection, the expected gradient at the first
    update is that of $J - \beta\, \mathrm{KL}(\pi_\mathrm{policy} \| \pi_\mathrm{reference})$, the KL of whole
    completions (a test of the suite, by enumeration). An advantage a row sees the sum over the row; one that asks for
    rewards token by token sees each where it stands, and by returns to go has the same expected gradient.

    Both log-probabilities are those scored once with the sampling-time weights, at the sampling temperature; no
    gradient passes. Only `k1`, the log-ratio itself, belongs in a reward. Of `k3` the score function makes the
    gradient of the reverse KL less that of the forward KL a token (states held fixed), which cancel near the
    reference; of `k2` it makes that of half the mean square less that of the reverse KL a token, which do so, too.
    Both are refused.

    Attributes:
        policy: the policy that wrote the rows and is to stay near.
        reference: the policy it is to stay near to.
        estimator: `k1`, the only one that is not refused.
        adaptive: a table with `start` and `target`: a factor on the reward that follows the KL of the batches before,
            the mean over the policy's tokens (those of greedy rows left out); the learner's weight is 1 then.
    """

    policy: str
    reference: str
    estimator: Literal["k1", "k2", "k3"] = "k1"
    adaptive: AdaptiveCoefficient | None = None

    @model_validator(mode="after")
    def _has_the_gradient_of_the_kl(self) -> "KLPenalty":
        if self.estimator in WRONG:
            raise ValueError(
                f"estimator '{self.estimator}' in a reward has {WRONG[self.estimator]}: near the reference nothing. "
                "Leave estimator out, or use a term of kind 'divergence'"
            )
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The policies whose signals it needs."""
        return (self.policy, self.reference)

    @property
    def formula(self) -> str:
        """The reward of a row."""
        factor = r"\beta \cdot " if self.adaptive else ""
        of_reference, of_policy = (rf"\log \pi_{{{name(own)}}}(o_{{it}})" for own in (self.reference, self.policy))
        return rf"{factor}\sum_{{t}} [{of_reference} - {of_policy}]"

    @property
    def init(self) -> Callable[[], float]:
        """The first state, an adaptive coefficient; without one the reward has no memory and no such attribute."""
        if self.adaptive is None:
            raise AttributeError("init")
        return self.adaptive.init

    def __call__(
        self, rollouts: Rollouts, signals: Signals, state: float | None = None
    ) -> Component | tuple[Component, float]:
        """Score every token; with `adaptive` also the next state. See the class."""
        mask = rollouts.written_by(self.policy)
        log_ratio = select((signals[self.policy].logprobs - signals[self.reference].logprobs).detach(), mask)
        statuses = ("ok",) * len(rollouts)
        if self.adaptive is None:
            return Component(values=-log_ratio, statuses=statuses)
        assert state is not None, "call an adaptive penalty through a Memory"
        kl = log_ratio[mask & ~rollouts.greedy[:, None]].mean()
        coefficient, state = self.adaptive(float(kl), state)
        return Component(values=-coefficient * log_ratio, statuses=statuses), state
