"""The KL divergence from the current policy to the other one, over whole distributions."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from grpo_kit.divergences.distributions import EachToken, Events, kullback_leibler, softened
from grpo_kit.divergences.top_k import TopK, refuse_temperature, what_is_seen
from grpo_kit.parts import part


@part("reverse_kl")
class ReverseKL:
    r"""$\mathrm{KL}(\pi \| q) = \sum_v \pi(v) [\log \pi(v) - \log q(v)]$ at each token, $q$ the other policy.

    It makes $\pi$ say only what $q$ (a teacher) may say (MiniLLM, arXiv:2306.08543). It is the mean, over all tokens
    that $\pi$ could have written, of the log-ratio that on-policy distillation sees at the one sampled, and has its
    expected gradient without its noise. Infinite where $q$ calls impossible what $\pi$ does not.

    Attributes:
        top_k: a table with `k`: see the likeliest tokens of the other policy alone; the whole vocabulary by default.
        temperature: divides the logits of both once more, above 0; not with `top_k`. The gradient is the raw one,
            without a factor $T^2$, as said of `forward_kl`.

    Example:
        >>> import torch
        >>> ReverseKL()(torch.tensor([[0.2, 0.5, 0.3]]).log(), torch.tensor([[0.7, 0.2, 0.1]]).log())
        tensor([0.5372])
    """

    over_vocabulary: ClassVar[bool] = True

    top_k: TopK | None = None
    temperature: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _softens_whole_distributions(self) -> "ReverseKL":
        refuse_temperature(self.temperature, self.top_k)
        return self

    @property
    def formula(self) -> str:
        """Loss of a token."""
        return r"\sum_v \pi_v \cdot [\log \pi_v - \log q_v]" + what_is_seen(self.temperature, self.top_k)

    def __call__(self, current: Events, other: Events) -> EachToken:
        """Loss of each token, from log-probabilities; see the class."""
        return kullback_leibler(softened(current, self.temperature), softened(other, self.temperature))
