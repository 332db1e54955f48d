"""A divergence to another policy as a term: a KL to a reference, or a teacher."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import model_validator

from grpo_kit.batch import Experience
from grpo_kit.detail import Detail
from grpo_kit.divergences import DIVERGENCES, AdaptiveCoefficient, Divergence, SampledKL
from grpo_kit.divergences.distance import detail_of, distance, over_vocabulary
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.masked import select
from grpo_kit.memory import Memory
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.terms.where import Where

WRONG = {
    "k2": "the gradient of half the mean square of the log-ratio",
    "k1+": "twice the gradient of the reverse KL",
    "k3+": "twice the gradient of the reverse KL less that of the forward KL",
}
"""What the expected gradient of an estimator becomes by `importance`."""


@part("divergence")
class DivergenceTerm:
    r"""Loss $D(\pi_\mathrm{current}, q)$ on each token, $q$ another policy scored once with its sampling-time weights.

    It pulls on every row, those of groups without spread included (as in GRPO). $q$ may be a reference to stay near, or
    a teacher: distillation on the policy's own rows (GKD, arXiv:2306.13649; KDRL, arXiv:2506.02208).

    Divergences over the vocabulary (`forward_kl`, `reverse_kl`, `jsd`, ...) have their own gradient at every state
    visited, whoever wrote the tokens.

    `sampled_kl` sees the sampled tokens alone. The gradients that its estimators are known by hold for tokens that the
    current policy itself writes: for its own rows at the first update. On tokens of another writer $\mu$ a loss $k$ has
    the gradient of $\mathbb{E}_\mu[k]$, $\mu$ held fixed: $\mathbb{E}_\mu[d\, \nabla \log \pi]$ for `k2`, `k1+` and
    `k3+`, $\mathbb{E}_\mu[(1 - e^{-d}) \nabla \log \pi]$ for `k3`. Both vanish where $\pi = q$, but neither is that of
    a KL of $\pi$. `k1` would push $\pi$ away from the writer, and is refused.

    With `importance` the loss is $\rho\, k$, $\rho = \pi_\mathrm{current} / \mu$ *with* its gradient. Then `k3`
    (DeepSeek-V3.2's form, arXiv:2512.02556) and `k1` have exactly the gradient of the reverse KL, at every update and
    for any $\mu$ that can write what $\pi$ can (no top-p, no top-k), for the states visited. The others have not, and
    are refused. The weight is not bounded, since a bound would bring the bias back: where it overflows the run stops
    and names the row.

    With `adaptive` the loss is multiplied by a coefficient that follows the divergence of the batches before: the mean
    loss over the counted tokens with the learner's weights at sampling time.

    Attributes:
        to: the policy $q$.
        divergence: how the distance is measured.
        importance: weigh each token by current / behavior, with gradient; of sampled rows and `sampled_kl` alone.
        adaptive: a table with `start` and `target`: a coefficient that changes from batch to batch; none by default.
        where: the rows it applies to; all by default.
        weight: factor of the term in the objective, in reward per nat.
    """

    token_local: ClassVar[bool] = True

    to: str
    divergence: Annotated[Divergence, DIVERGENCES]
    importance: bool = False
    adaptive: AdaptiveCoefficient | None = None
    where: Where | None = None
    weight: float = 1.0

    @model_validator(mode="after")
    def _has_the_gradient_of_a_kl(self) -> "DivergenceTerm":
        estimator = self.divergence.estimator if isinstance(self.divergence, SampledKL) else None
        if estimator == "k1" and not self.importance:
            raise ValueError(
                "estimator 'k1' as a loss has an expected gradient of zero: the other policy has no influence. "
                "Use 'k2', 'k1+' or 'k3+' (gradient of the reverse KL), 'k3' (gradient of the forward KL), "
                "or importance = true"
            )
        if estimator in WRONG and self.importance:
            raise ValueError(
                f"estimator '{estimator}' with importance = true has {WRONG[estimator]}. "
                "Use 'k1' or 'k3', or leave importance out"
            )
        return self

    @model_validator(mode="after")
    def _sampled_tokens_alone(self) -> "DivergenceTerm":
        options = [name for name in ("importance", "adaptive") if getattr(self, name)]
        if options and over_vocabulary(self.divergence):
            kind = getattr(self.divergence, "kind", "this divergence")
            why = {
                "importance": "is exact for any writer's tokens without an importance weight",
                "adaptive": "its coefficient would need them of the policy itself at sampling time",
            }[options[0]]
            raise ValueError(f"'{kind}' reads whole distributions and {why}; remove {options[0]}, or use 'sampled_kl'")
        return self

    @model_validator(mode="after")
    def _one_factor(self) -> "DivergenceTerm":
        if self.adaptive is not None and self.weight != 1:
            raise ValueError(
                f"adaptive is the factor of the term, so weight {self.weight:g} would be a second one; "
                "leave weight out and set adaptive.start"
            )
        return self

    @property
    def needs_entropy(self) -> bool:
        """Never: it sees the sampled tokens alone."""
        return False

    @property
    def formula(self) -> str | None:
        """Loss of a token; None when the divergence does not say."""
        latex = getattr(self.divergence, "formula", None)
        if latex is not None and self.importance:
            latex = rf"\frac{{\pi_\theta(o_{{it}})}}{{\mu(o_{{it}})}} \cdot [{latex}]"
        if latex is not None and self.adaptive:
            latex = rf"\beta \cdot {latex}" if self.importance else rf"\beta \cdot [{latex}]"
        return latex

    @property
    def needs_writer(self) -> bool:
        """Whether it applies to sampled rows alone: an importance weight is over their writer's probabilities."""
        return self.importance

    def reads(self, learner: str) -> tuple[str, ...]:
        """The other policy's scores; with `adaptive` the learner's own, too."""
        return (self.to,) if self.adaptive is None else (self.to, learner)

    def details(self, learner: str) -> Mapping[str, Detail]:
        """As much of the other policy's distributions as the divergence reads."""
        return {self.to: detail_of(self.divergence)}

    def freeze(
        self, experience: Experience, rewards: LearnerRewards, learner: str, memory: Memory
    ) -> Mapping[str, Any]:
        """The other policy's scores, and what `importance` and `adaptive` need."""
        other = experience.signals[self.to]
        frozen: dict[str, Any] = {"other": other}
        if self.importance:
            behavior = experience.rollouts.behavior
            assert behavior is not None, "importance weights need rows that somebody sampled"
            frozen["behavior"] = behavior.logprobs
        if self.adaptive is not None:
            counted = rewards.counted
            kl = float(self._loss(experience.signals[learner], frozen, counted)[counted].mean())
            coefficient = memory.call("adaptive", self.adaptive, kl)
            frozen["coefficient"] = torch.full_like(other.logprobs, coefficient)
            frozen["kl"] = torch.full_like(other.logprobs, kl)
        return frozen

    def __call__(self, current: Scores, frozen: Mapping[str, Any], written: TokenMask, counted: TokenMask) -> PerToken:
        """Loss of each token; see the class."""
        loss = self._loss(current, frozen, counted)
        return loss * frozen["coefficient"] if self.adaptive else loss

    def report(self, frozen: Mapping[str, Any]) -> dict[str, float]:
        """The batch's coefficient and the divergence that was measured for it; nothing without `adaptive`."""
        names = ("coefficient", "kl") if self.adaptive else ()
        return {name: float(frozen[name].flatten()[0]) for name in names}

    def _loss(self, current: Scores, frozen: Mapping[str, Any], counted: TokenMask) -> PerToken:
        loss = distance(self.divergence, current, frozen["other"], counted)
        if not self.importance:
            return loss
        return loss * select(current.logprobs - frozen["behavior"], counted).exp()
