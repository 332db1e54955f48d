"""The other policy's most likely tokens as soft labels, and nothing else."""

from typing import Annotated, ClassVar

import torch
from einops import reduce
from pydantic import Field

from grpo_kit.divergences.distributions import EachToken, Events
from grpo_kit.divergences.top_k import Alone
from grpo_kit.masked import wide
from grpo_kit.parts import part


@part("top_k_cross_entropy")
class TopKCrossEntropy:
    r"""$-\sum_{v \in K} q(v) \log \pi(v)$ at each token, $K$ the `k` likeliest tokens of the other policy $q$.

    Soft labels of a teacher cut at the top k. It is no divergence: where the two policies agree, neither value nor
    gradient is zero, for it is least where $\pi$ gives the top k all of its probability, in the proportions of $q$.
    What $q$ gives to other tokens is unlearned: the smaller the mass of its top k, the faster. `forward_kl` with a
    `top_k` is the form without that pull.

    Attributes:
        k: how many tokens; at least 1.

    Example:
        >>> import torch
        >>> TopKCrossEntropy(k=1)(torch.tensor([[0.5]]).log(), torch.tensor([[0.6]]).log())  # 0.6 log 2
        tensor([0.4159])
    """

    over_vocabulary: ClassVar[bool] = True

    k: Annotated[int, Field(ge=1)]

    @property
    def top_k(self) -> Alone:
        """What it sees of the distributions."""
        return Alone(k=self.k)

    @property
    def formula(self) -> str:
        """Loss of a token."""
        return rf"-\sum_v q_v \cdot \log \pi_v\text{{, over the top {self.k} of }} q"

    def __call__(self, current: Events, other: Events) -> EachToken:
        """Loss of each token, from log-probabilities of the top k; see the class."""
        labels = wide(other).exp()
        return reduce(-labels * torch.where(labels > 0, wide(current), 0), "... event -> ...", "sum")
