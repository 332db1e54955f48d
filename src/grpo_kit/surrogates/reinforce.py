"""The plain score-function loss."""

from typing import ClassVar

from grpo_kit.parts import part
from grpo_kit.shapes import PerToken


@part("reinforce")
class Reinforce:
    r"""Score-function loss $\ell_{it} = -A_{it} \log \rho_{it}$, whose gradient is $-A_{it} \nabla \log \pi(o_{it})$.

    REINFORCE (Williams, 1992): no clip and no ratio in the gradient, so it is exact only while the tokens come from
    the policy being updated, or with a correction. Subtracting the anchor's log-probability changes the value by a
    constant and the gradient not at all.

    Example:
        >>> import torch
        >>> Reinforce()(torch.tensor([[0.0, 0.5]]), torch.tensor([[1.0, -1.0]]))
        tensor([[-0.0000,  0.5000]])
    """

    token_local: ClassVar[bool] = True

    @property
    def formula(self) -> str:
        """Loss of a token."""
        return r"-A_i \cdot \log \rho_{it}"

    def __call__(self, log_ratio: PerToken, advantages: PerToken) -> PerToken:
        """Loss of each token; see the class."""
        return -advantages * log_ratio
