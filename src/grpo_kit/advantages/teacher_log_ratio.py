"""The log-ratio of a teacher to the current policy as a live advantage: on-policy distillation."""

from typing import Annotated, ClassVar

from pydantic import model_validator

from grpo_kit.detail import Detail
from grpo_kit.divergences import DIVERGENCES, Divergence
from grpo_kit.divergences.distance import detail_of, distance
from grpo_kit.divergences.reverse_kl import ReverseKL
from grpo_kit.divergences.top_k import what_is_seen
from grpo_kit.formula import name as in_latex
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores


@part("teacher_log_ratio")
class TeacherLogRatio:
    r"""$A_{it} = \log \pi_T(o_{it}) - \log \pi_\theta(o_{it})$, taken anew at every update and detached.

    It is *live*: $\pi_\theta$ is the policy as it is now, not as it was when the rows were scored. With the surrogate
    `reinforce` and rows of the policy itself the expected gradient of each token is that of the reverse KL
    $\mathrm{KL}(\pi_\theta \| \pi_T)$ at the states visited: on-policy distillation (OPD). With the rows of the
    initial policy it is Semi-OPD (arXiv:2610.11291): its fixed point is the teacher on the tokens of those rows, and an
    advantage kept from the first scoring would have none.

    With `control_variate` the closed-form KL of each state is added (vOPD, arXiv:2605.07865): over the policy's own
    tokens the expectation of the sum is 0, so the gradient stays the same on average and varies less. A top-k KL with
    its tail does as well: any number that does not depend on the token is a baseline. For tokens of another writer a
    baseline has an expected gradient of its own, and the fixed point moves with it.

    It is 0 where the two agree, and not compared with other rows.

    Attributes:
        teacher: the policy $\pi_T$.
        control_variate: a `reverse_kl` whose value is added; none by default.

    Example:
        >>> import torch
        >>> TeacherLogRatio(teacher="large")(torch.tensor([[-2.0, -1.0]]), torch.tensor([[-1.5, -3.0]]))
        tensor([[ 0.5000, -2.0000]])
    """

    at_update: ClassVar[bool] = True

    teacher: str
    control_variate: Annotated[Divergence, DIVERGENCES] | None = None

    @model_validator(mode="after")
    def _is_a_baseline(self) -> "TeacherLogRatio":
        own = self.control_variate
        if own is not None and not (isinstance(own, ReverseKL) and own.temperature == 1):
            raise ValueError(
                "control_variate must be { kind = 'reverse_kl' } at temperature 1, whole or with top_k: that is minus "
                "the mean of this advantage"
            )
        return self

    @property
    def formula(self) -> str:
        """Advantage of a token."""
        teacher = rf"\pi_{{{in_latex(self.teacher)}}}"
        ratio = rf"\operatorname{{sg}}[\log {teacher}(o_{{it}}) - \log \pi_\theta(o_{{it}})"
        if not isinstance(self.control_variate, ReverseKL):
            return f"{ratio}]"
        seen = what_is_seen(1.0, self.control_variate.top_k).replace("q", teacher)
        return rf"{ratio} + \mathrm{{KL}}(\pi_\theta \| {teacher})_{{it}}]{seen}"

    @property
    def detail(self) -> Detail:
        """As much of the teacher's distributions as the control variate reads."""
        return detail_of(self.control_variate)

    def __call__(self, current: PerToken, teacher: PerToken) -> PerToken:
        """The log-ratio of each token, without the control variate."""
        return (teacher - current).detach()

    def baseline(self, current: Scores, teacher: Scores, counted: TokenMask) -> PerToken | None:
        """What the control variate adds to each token; None without one."""
        if self.control_variate is None:
            return None
        return distance(self.control_variate, current, teacher, counted).detach()
