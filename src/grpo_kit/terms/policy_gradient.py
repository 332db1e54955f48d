"""The policy-gradient term: advantage x ratio x surrogate x correction, in one place."""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from einops import repeat
from pydantic import Field, model_validator

from grpo_kit.advantages import ADVANTAGES, Advantage
from grpo_kit.batch import Experience
from grpo_kit.corrections import CORRECTIONS, Correction, factors
from grpo_kit.learner_rewards import LearnerRewards, of_advantage
from grpo_kit.logprobs import LogProbs
from grpo_kit.masked import product, select
from grpo_kit.memory import Memory
from grpo_kit.offers import asks, call_with
from grpo_kit.parts import part
from grpo_kit.ratios import RATIOS, Ratio, TokenRatio
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores
from grpo_kit.surrogates import SURROGATES, Reinforce, Surrogate

FARTHEST = 20.0
"""Largest log-ratio of a dropped token: its ratio, 5e8, is finite in float32."""


@part("policy_gradient")
class PolicyGradient:
    r"""Loss $w_t\, \ell(\log \rho_t, A)$ with $\rho = \pi_\mathrm{current} / \pi_\mathrm{anchor}$, $w$ a correction.

    With `anchor="proximal"` the anchor is the learner's own weights at scoring time: a trust region around itself, for
    rows of any origin, whose origin a `correction` $\pi_\mathrm{anchor} / \mu$ can weigh in. With `anchor="behavior"`
    the anchor is the tokens' writer $\mu$: for rows of another model the clip then pulls the learner toward that
    model even under noise rewards (it drops good tokens that the learner likes better than the writer did and keeps
    bad ones); it is CoDistill-GRPO's form as published (arXiv:2605.08873). A correction there is an error, since it
    would be 1, but for one that is decided at every update and only keeps or drops.

    A token that the correction drops (weight 0) has neither loss nor gradient of its own. What a surrogate takes over
    the whole row (the geometric mean of `gmpo`) still sees its log-ratio, as +-20 nats where it is farther than that:
    a ratio that overflows may be the very reason for dropping it.

    Attributes:
        advantage: rewards of the rows to advantages.
        surrogate: the loss around the ratio.
        ratio: the level of the ratio; the token's own by default.
        anchor: what `current` is compared with.
        correction: detached weight for tokens of another origin; none by default.
        baseline: whether the advantage sees the rows that the selection kept, or all that were sampled.
        weight: factor of the term in the objective.
    """

    advantage: Annotated[Advantage, ADVANTAGES]
    surrogate: Annotated[Surrogate, SURROGATES]
    ratio: Annotated[Ratio, RATIOS] = Field(default_factory=TokenRatio)
    anchor: Literal["proximal", "behavior"] = "proximal"
    correction: Annotated[Correction, CORRECTIONS] | None = None
    baseline: Literal["selected", "sampled"] = "selected"
    weight: float = 1.0

    @model_validator(mode="after")
    def _nothing_is_idle(self) -> "PolicyGradient":
        if self.anchor == "behavior" and any(not is_live for _, is_live in factors(self.correction)):
            raise ValueError(
                "anchor 'behavior' leaves a correction nothing to do (it would always be 1); "
                "remove the correction or use anchor 'proximal'"
            )
        if isinstance(self.surrogate, Reinforce) and not isinstance(self.ratio, TokenRatio):
            raise ValueError("surrogate 'reinforce' has no ratio in its gradient; remove ratio or use surrogate 'clip'")
        if isinstance(self.surrogate, Reinforce) and self.anchor == "behavior":
            raise ValueError(
                "surrogate 'reinforce' has no ratio in its gradient, so anchor 'behavior' would only switch the "
                "correction off; use anchor 'proximal'"
            )
        return self

    @property
    def needs_entropy(self) -> bool:
        """Never: the surrogate sees the sampled tokens alone."""
        return False

    def reads(self, learner: str) -> tuple[str, ...]:
        """The learner's own scores, where they are the anchor."""
        return (learner,) if self.anchor == "proximal" else ()

    def freeze(
        self, experience: Experience, rewards: LearnerRewards, learner: str, memory: Memory
    ) -> Mapping[str, PerToken]:
        """Advantages, anchor, behavior and correction of every row."""
        rollouts = experience.rollouts
        assert rollouts.behavior is not None, "a policy gradient needs rows that somebody sampled"
        behavior = rollouts.behavior.logprobs
        anchor = behavior if self.anchor == "behavior" else experience.signals[learner].logprobs
        advantages = self._advantages(experience, rewards, memory)
        frozen = {"advantages": advantages, "anchor": anchor, "behavior": behavior}
        at_scoring = LogProbs(current=anchor, anchor=anchor, behavior=behavior)
        offers = {"groups": rollouts.groups, "advantages": advantages}
        fixed = [factor for factor, is_live in factors(self.correction) if not is_live]
        if fixed:
            weights = (call_with(factor, at_scoring.log_correction, rewards.counted, **offers) for factor in fixed)
            frozen["correction"] = product(*weights)
        return frozen

    def __call__(
        self, current: Scores, frozen: Mapping[str, PerToken], written: TokenMask, counted: TokenMask
    ) -> PerToken:
        """Loss of each token; see the class."""
        logprobs = LogProbs(
            current=select(current.logprobs, written),
            anchor=select(frozen["anchor"], written),
            behavior=select(frozen["behavior"], written),
        )
        log_ratio = select(self.ratio(logprobs.log_ratio, written), counted)
        advantages = select(frozen["advantages"], counted)
        fixed = select(frozen["correction"], counted) if "correction" in frozen else counted.to(log_ratio)
        moved = (logprobs.current - logprobs.behavior).detach()
        live = [factor for factor, is_live in factors(self.correction) if is_live]
        weights = product(fixed, *(call_with(factor, moved, counted, advantages=advantages) for factor in live))
        # A token that a correction drops may be the very one whose ratio overflows, and inf x 0 is NaN.
        log_ratio = torch.where(weights == 0, log_ratio.clamp(-FARTHEST, FARTHEST), log_ratio)
        return weights * call_with(self.surrogate, log_ratio, advantages, mask=counted, logprobs=logprobs)

    def _advantages(self, experience: Experience, rewards: LearnerRewards, memory: Memory) -> PerToken:
        """The advantage of every token, from the rewards of the rows that its baseline may see."""
        rollouts = experience.rollouts
        in_baseline = rewards.kept if self.baseline == "selected" else ~rollouts.greedy
        total = torch.where(in_baseline, rewards.total, torch.nan)
        offers = of_advantage(asks(self.advantage), experience, rewards, seen=~total.isnan())
        advantages = memory.call("advantage", self.advantage, total, rollouts.groups, **offers)
        if advantages.ndim == 1:
            advantages = repeat(advantages, "row -> row token", token=rollouts.mask.shape[1])
        return advantages
