"""The policy-gradient term: advantage x ratio x surrogate x correction, in one place."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from einops import repeat
from pydantic import Field, model_validator

from grpo_kit.advantages import ADVANTAGES, Advantage
from grpo_kit.advantages.live import is_live, live
from grpo_kit.batch import Experience
from grpo_kit.corrections import CORRECTIONS, Correction, factors
from grpo_kit.detail import Detail
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
from grpo_kit.terms.where import Where

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

    It applies to rows that some policy wrote; rows of a data set have no behavior policy. A live advantage, such as
    `teacher_log_ratio`, is taken at every update on the current log-probabilities. `reinforce` without a correction
    does not look at an anchor, so the learner does not score its rows for one.

    Attributes:
        advantage: rewards of the rows to advantages.
        surrogate: the loss around the ratio.
        ratio: the level of the ratio; the token's own by default.
        anchor: what `current` is compared with.
        correction: detached weight for tokens of another origin; none by default.
        baseline: whether the advantage sees the rows that the selection kept, or all that were sampled.
        where: the rows it applies to, beside that they are sampled; all by default.
        weight: factor of the term in the objective.
    """

    advantage: Annotated[Advantage, ADVANTAGES]
    surrogate: Annotated[Surrogate, SURROGATES]
    ratio: Annotated[Ratio, RATIOS] = Field(default_factory=TokenRatio)
    anchor: Literal["proximal", "behavior"] = "proximal"
    correction: Annotated[Correction, CORRECTIONS] | None = None
    baseline: Literal["selected", "sampled"] = "selected"
    where: Where | None = None
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

    @model_validator(mode="after")
    def _a_live_advantage_is_judged_live(self) -> "PolicyGradient":
        fixed = [own for own, at_update in factors(self.correction) if not at_update]
        if list(live(self.advantage)) and any(getattr(own, "only_negative", False) for own in fixed):
            raise ValueError(
                "only_negative looks at advantages, and a live one is not known at scoring; set at = 'update' on the "
                "correction, or leave only_negative out"
            )
        return self

    @model_validator(mode="after")
    def _distributions_are_at_hand(self) -> "PolicyGradient":
        reads_more = any(own.detail != Detail() for _, own in live(self.advantage))
        if reads_more and not self.token_local:
            raise ValueError(
                "control_variate needs whole distributions, which are at hand where tokens are taken one by one, and "
                "ratio, surrogate or correction couple the tokens of a row; use ratio 'token' with a surrogate and a "
                "correction of single tokens, or leave control_variate out"
            )
        return self

    @property
    def needs_entropy(self) -> bool:
        """Never: the surrogate sees the sampled tokens alone."""
        return False

    @property
    def needs_writer(self) -> bool:
        """Always: it applies to sampled rows alone."""
        return True

    @property
    def needs_anchor(self) -> bool:
        """Whether anything looks at the anchor's log-probabilities."""
        return not isinstance(self.surrogate, Reinforce) or self.correction is not None

    @property
    def token_local(self) -> bool:
        """Whether the loss of a token depends on that token alone, once advantages and corrections are fixed."""
        deciding = (self.ratio, self.surrogate, *(own for own, at_update in factors(self.correction) if at_update))
        return all(getattr(own, "token_local", False) for own in deciding)

    def reads(self, learner: str) -> tuple[str, ...]:
        """The learner's own scores, where they are the anchor, and the teachers of live advantages."""
        own = (learner,) if self.anchor == "proximal" and self.needs_anchor else ()
        return (*own, *(own.teacher for _, own in live(self.advantage)))

    def details(self, learner: str) -> Mapping[str, Detail]:
        """As much of the teachers' distributions as control variates read."""
        found: dict[str, Detail] = {}
        for _, own in live(self.advantage):
            found[own.teacher] = found.get(own.teacher, Detail()) | own.detail
        return found

    def freeze(
        self, experience: Experience, rewards: LearnerRewards, learner: str, memory: Memory
    ) -> Mapping[str, Any]:
        """Advantages, anchor, behavior and correction of every row, and the scores of the teachers."""
        rollouts = experience.rollouts
        assert rollouts.behavior is not None, "a policy gradient needs rows that somebody sampled"
        behavior = rollouts.behavior.logprobs
        advantages = self._advantages(experience, rewards, memory)
        frozen: dict[str, Any] = {"advantages": advantages, "behavior": behavior}
        frozen |= {f"teacher/{own.teacher}": experience.signals[own.teacher] for _, own in live(self.advantage)}
        if not self.needs_anchor:
            return frozen
        anchor = behavior if self.anchor == "behavior" else experience.signals[learner].logprobs
        frozen["anchor"] = anchor
        at_scoring = LogProbs(current=anchor, anchor=anchor, behavior=behavior)
        offers = {"groups": rollouts.groups, "advantages": advantages}
        fixed = [factor for factor, is_live in factors(self.correction) if not is_live]
        if fixed:
            weights = (call_with(factor, at_scoring.log_correction, rewards.counted, **offers) for factor in fixed)
            frozen["correction"] = product(*weights)
        return frozen

    def __call__(self, current: Scores, frozen: Mapping[str, Any], written: TokenMask, counted: TokenMask) -> PerToken:
        """Loss of each token; see the class."""
        logprobs = self.logprobs(current.logprobs, frozen, written)
        log_ratio = select(self.ratio(logprobs.log_ratio, written), counted)
        advantages = self.advantages(current, frozen, counted)
        weights = self.weights(logprobs, frozen, counted, advantages)
        # A token that a correction drops may be the very one whose ratio overflows, and inf x 0 is NaN.
        log_ratio = torch.where(weights == 0, log_ratio.clamp(-FARTHEST, FARTHEST), log_ratio)
        return weights * call_with(self.surrogate, log_ratio, advantages, mask=counted, logprobs=logprobs)

    def logprobs(self, current: PerToken, frozen: Mapping[str, Any], written: TokenMask) -> LogProbs:
        """The three log-probabilities of each token; the current one is the anchor where nothing looks at one."""
        current = select(current, written)
        anchor = select(frozen["anchor"], written) if self.needs_anchor else current.detach()
        return LogProbs(current=current, anchor=anchor, behavior=select(frozen["behavior"], written))

    def advantages(self, current: Scores, frozen: Mapping[str, Any], counted: TokenMask) -> PerToken:
        """The advantage of each token: what was fixed, and what live advantages make of the current policy.

        Where `current` has no distributions control variates are left out: for looking at.
        """
        found = select(frozen["advantages"], counted)
        for weight, own in live(self.advantage):
            teacher: Scores = frozen[f"teacher/{own.teacher}"]
            found = found + weight * own(select(current.logprobs, counted), select(teacher.logprobs, counted))
            baseline = None if current.distributions is None else own.baseline(current, teacher, counted)
            found = found if baseline is None else found + weight * baseline
        return found

    def weights(
        self, logprobs: LogProbs, frozen: Mapping[str, Any], counted: TokenMask, advantages: PerToken
    ) -> PerToken:
        """The correction of each token: what was fixed, times the factors that are decided at every update."""
        fixed = select(frozen["correction"], counted) if "correction" in frozen else counted.to(logprobs.current.dtype)
        moved = (logprobs.current - logprobs.behavior).detach()
        live = [factor for factor, is_live in factors(self.correction) if is_live]
        return product(fixed, *(call_with(factor, moved, counted, advantages=advantages) for factor in live))

    def _advantages(self, experience: Experience, rewards: LearnerRewards, memory: Memory) -> PerToken:
        """The advantage of every token, from the rewards of the rows that its baseline may see."""
        rollouts = experience.rollouts
        if is_live(self.advantage):  # nothing of it is fixed
            return torch.zeros(rollouts.mask.shape, device=rollouts.mask.device)
        in_baseline = rewards.kept if self.baseline == "selected" else ~rollouts.greedy
        total = torch.where(in_baseline, rewards.total, torch.nan)
        offers = of_advantage(asks(self.advantage), experience, rewards, seen=~total.isnan())
        advantages = memory.call("advantage", self.advantage, total, rollouts.groups, **offers)
        if advantages.ndim == 1:
            advantages = repeat(advantages, "row -> row token", token=rollouts.mask.shape[1])
        return advantages
