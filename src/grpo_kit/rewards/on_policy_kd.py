"""CoDistill's distillation reward: the teacher's log-ratio over the student's own rollout."""

from typing import Annotated, Literal

from einops import reduce
from pydantic import Field, model_validator

from grpo_kit.batch import Component, Rollouts
from grpo_kit.formula import name, number
from grpo_kit.masked import row_sum
from grpo_kit.parts import part
from grpo_kit.signals import Signals


@part("on_policy_kd")
class OnPolicyKD:
    r"""Reward $\frac{\alpha}{N} \sum_t \left[\log \pi_\mathrm{teacher}(o_t) - \log \pi_\mathrm{student}(o_t)\right]$.

    One number a row, added to the task reward before centering (CoDistill-GRPO, arXiv:2605.08873). Both
    log-probabilities are those scored once with the sampling-time weights; no gradient passes. The sum runs over the
    tokens the student wrote: over the teacher's own tokens (hints) it would estimate the other KL.

    With the group's mean as baseline, no clip and no selection, the expected gradient at the first update is
    $\frac{G-1}{GN} \nabla [J - \frac{\alpha}{N} \mathrm{KL}(\pi_\mathrm{student} \| \pi_\mathrm{teacher})]$, $J$ the
    task reward (a law of the test suite). That holds only for a *constant* $N$: with `length_norm="sequence"` $N$ is
    the row's own length, and the gradient is neither that of this objective nor of any other we know.

    Attributes:
        teacher: the policy whose log-probabilities are wanted; may itself be learning.
        student: the policy that wrote the rows.
        alpha: $\alpha$, weight of the KL; at least 0.
        length_norm: what $N$ is; `constant` needs `length`, `sequence` takes the row's number of student tokens.
        length: the constant $N$ in tokens, normally the sampler's `max_new_tokens`.
    """

    teacher: str
    student: str
    alpha: Annotated[float, Field(ge=0)] = 1.0
    length_norm: Literal["constant", "sequence"] = "constant"
    length: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _length_is_used(self) -> "OnPolicyKD":
        if self.length_norm == "constant" and self.length is None:
            raise ValueError("length_norm 'constant' needs length; give the sampler's max_new_tokens")
        if self.length_norm == "sequence" and self.length is not None:
            raise ValueError("length_norm 'sequence' does not use length; leave length out")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The policies whose signals it needs."""
        return (self.teacher, self.student)

    @property
    def formula(self) -> str:
        """The reward of a row."""
        norm = number(self.length) if self.length else r"|o_i|"
        quotient = rf"\log \pi_{{{name(self.teacher)}}}(o_{{it}}) - \log \pi_{{{name(self.student)}}}(o_{{it}})"
        return rf"\frac{{{number(self.alpha)}}}{{{norm}}} \cdot \sum_{{t}} [{quotient}]"

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Score every row; see the class."""
        mask = rollouts.written_by(self.student)
        log_ratio = signals[self.teacher].logprobs.detach() - signals[self.student].logprobs.detach()
        norm = self.length or reduce(mask.to(log_ratio), "row token -> row", "sum").clamp(min=1)
        return Component(values=self.alpha / norm * row_sum(log_ratio, mask), statuses=("ok",) * len(rollouts))
