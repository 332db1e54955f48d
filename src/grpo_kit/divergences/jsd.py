"""The generalized Jensen-Shannon divergence, between the forward and the reverse KL."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from grpo_kit.divergences.distributions import EachToken, Events, kullback_leibler, mixture, softened
from grpo_kit.divergences.top_k import TopK, refuse_temperature, what_is_seen
from grpo_kit.formula import number
from grpo_kit.parts import part


@part("jsd")
class JSD:
    r"""$\beta\, \mathrm{KL}(q \| m) + (1 - \beta)\, \mathrm{KL}(\pi \| m)$ a token, $m = \beta q + (1 - \beta) \pi$.

    The generalized Jensen-Shannon divergence of GKD (arXiv:2306.13649): $\beta$ is the share of the other policy $q$ (a
    teacher) in the mixture $m$. Never infinite inside (0, 1), and at most the entropy of $(\beta, 1 - \beta)$.

    Its ends are the two KLs: 0 is exactly $\mathrm{KL}(q \| \pi)$ and 1 exactly $\mathrm{KL}(\pi \| q)$, as in GKD. The
    formula itself vanishes there: near 0 it is $\beta\, \mathrm{KL}(q \| \pi)$, near 1 it is
    $(1 - \beta)\, \mathrm{KL}(\pi \| q)$. So value and gradient *jump* at the ends, and a `beta` of 0.01 trains a
    hundred times more slowly than one of 0, unless the term's `weight` makes up for it.

    Attributes:
        beta: share of the other policy in the mixture, in [0, 1].
        top_k: a table with `k`: see the likeliest tokens of the other policy alone; the whole vocabulary by default.
        temperature: divides the logits of both once more, above 0; not with `top_k`. The gradient is the raw one,
            without a factor $T^2$, as said of `forward_kl`.

    Example:
        >>> import torch
        >>> JSD(beta=0.1)(torch.tensor([[0.2, 0.5, 0.3]]).log(), torch.tensor([[0.7, 0.2, 0.1]]).log())
        tensor([0.0510])
    """

    over_vocabulary: ClassVar[bool] = True

    beta: Annotated[float, Field(ge=0, le=1)] = 0.5
    top_k: TopK | None = None
    temperature: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _softens_whole_distributions(self) -> "JSD":
        refuse_temperature(self.temperature, self.top_k)
        return self

    @property
    def formula(self) -> str:
        """Loss of a token."""
        how = what_is_seen(self.temperature, self.top_k)
        if self.beta == 0:
            return r"\sum_v q_v \cdot [\log q_v - \log \pi_v]" + how
        if self.beta == 1:
            return r"\sum_v \pi_v \cdot [\log \pi_v - \log q_v]" + how
        teacher, student = number(self.beta), number(1 - self.beta)
        return (
            rf"{teacher} \cdot \sum_v q_v \cdot [\log q_v - \log m_v]"
            rf" + {student} \cdot \sum_v \pi_v \cdot [\log \pi_v - \log m_v]"
            rf"\text{{, with }} m_v = {teacher} \cdot q_v + {student} \cdot \pi_v" + how
        )

    def __call__(self, current: Events, other: Events) -> EachToken:
        """Loss of each token, from log-probabilities; see the class."""
        student, teacher = softened(current, self.temperature), softened(other, self.temperature)
        if self.beta == 0:
            return kullback_leibler(teacher, student)
        if self.beta == 1:
            return kullback_leibler(student, teacher)
        middle = mixture(teacher, student, self.beta)
        return self.beta * kullback_leibler(teacher, middle) + (1 - self.beta) * kullback_leibler(student, middle)
