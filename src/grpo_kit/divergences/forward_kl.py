"""The KL divergence from the other policy to the current one, over whole distributions."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from grpo_kit.divergences.distributions import EachToken, Events, kullback_leibler, softened
from grpo_kit.divergences.top_k import TopK, refuse_temperature, what_is_seen
from grpo_kit.parts import part


@part("forward_kl")
class ForwardKL:
    r"""$\mathrm{KL}(q \| \pi) = \sum_v q(v) [\log q(v) - \log \pi(v)]$ at each token, $q$ the other policy.

    It makes $\pi$ cover whatever $q$ (a teacher) may say. Its gradient is that of the cross-entropy with $q$ as soft
    labels (Hinton et al., arXiv:1503.02531); on the policy's own rows it is one of GKD's losses (arXiv:2306.13649).
    Infinite where $\pi$ calls impossible what $q$ does not.

    Attributes:
        top_k: a table with `k`: see the likeliest tokens of the other policy alone; the whole vocabulary by default.
        temperature: divides the logits of both once more, above 0; not with `top_k`. The gradient is the raw one, about
            $1/T^2$ of that at 1: for logits (1, 0, -1) and (0, 1, 0) of the other its norm is 0.5746 at 1, 0.1437 at 2.
            Where the literature multiplies by $T^2$, raise the term's `weight`.

    Example:
        >>> import torch
        >>> ForwardKL()(torch.tensor([[0.2, 0.5, 0.3]]).log(), torch.tensor([[0.7, 0.2, 0.1]]).log())
        tensor([0.5838])
    """

    over_vocabulary: ClassVar[bool] = True

    top_k: TopK | None = None
    temperature: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _softens_whole_distributions(self) -> "ForwardKL":
        refuse_temperature(self.temperature, self.top_k)
        return self

    @property
    def formula(self) -> str:
        """Loss of a token."""
        return r"\sum_v q_v \cdot [\log q_v - \log \pi_v]" + what_is_seen(self.temperature, self.top_k)

    def __call__(self, current: Events, other: Events) -> EachToken:
        """Loss of each token, from log-probabilities; see the class."""
        return kullback_leibler(softened(other, self.temperature), softened(current, self.temperature))
