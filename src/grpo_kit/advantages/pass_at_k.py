"""What each row adds to the best of k: the gradient of pass@k."""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from grpo_kit.masked import wide
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow


@part("pass_at_k")
class PassAtK:
    r"""What a row adds to the best of `k`: $A_i = \operatorname{mean}_{S} [\max r_S - \max r_{S \text{ without } i}]$.

    The mean is over all sets $S$ of `k` rows of the group with $i$ in them. With equal rows it is the unbiased gradient
    of the expected best of `k` (pass@k for rewards 0 and 1), divided by `k` (arXiv:2503.19595, arXiv:2505.15201).
    No advantage is negative: a right row gets the chance that the `k` - 1 others are all wrong, so that a group with
    fewer wrong rows than that gives 0. With `k` = n only the best row gets something, its lead over the second.

    A group with fewer than `k` rewards uses all it has. A group whose rewards are all equal gets exactly 0, so does a
    group of one. A missing reward (NaN) is left out of its group and gets 0.

    Attributes:
        k: how many rows the best is taken of; at least 2, at most the group's size.

    Example:
        >>> PassAtK(k=2)(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0, 0, 0]))
        tensor([1., 0., 0.])
    """

    compares_rows = True
    k: Annotated[int, Field(ge=2)]

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        return rf"\operatorname{{mean}}_{{i \in S, |S| = {self.k}}} [\max r_S - \max r_{{S \text{{ without }} i}}]"

    def __call__(self, rewards: PerRow, groups: GroupId) -> PerRow:
        """Advantages of the rows; see the class."""
        rewards = wide(rewards)
        advantages = torch.zeros_like(rewards)
        for group in groups[~rewards.isnan()].unique():
            rows = torch.nonzero((groups == group) & ~rewards.isnan())[:, 0]
            ascending, order = rewards[rows].sort()
            advantages[rows[order]] = _of_sorted(ascending, min(self.k, len(rows)))
        return advantages


def _of_sorted(rewards: Float[Tensor, " row"], k: int) -> Float[Tensor, " row"]:
    r"""Advantages of one group's rewards in ascending order.

    The step from the j-th to the next reward counts for all rows above it, each time that the k - 1 others come from
    the j lowest of the n - 1 others: with the chance $\binom{j}{k-1} / \binom{n-1}{k-1}$, which is 1 for j = n - 1 and
    falls by the factor (j - k + 1) / j from j to j - 1, to 0 at j = k - 2.
    """
    below = torch.arange(1, len(rewards), device=rewards.device, dtype=rewards.dtype)  # j
    shrink = (below - k + 1) / below
    chance = torch.cat([shrink[1:], shrink.new_ones(1)]).flip(0).cumprod(0).flip(0)[: len(below)]
    return torch.cat([rewards.new_zeros(1), (chance * rewards.diff()).cumsum(0)])
