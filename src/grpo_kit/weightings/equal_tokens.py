"""Every token of the optimizer step counts the same."""

import torch

from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("equal_tokens")
class EqualTokens:
    r"""The same weight for every counted token: $w_{it} = 1 / \sum_j |o_j|$.

    DAPO's token-level loss (arXiv:2503.14476): long rows count more than short ones. All zeros when nothing counts.

    Example:
        >>> EqualTokens()(torch.tensor([[True, True], [True, False]]))
        tensor([[0.3333, 0.3333],
                [0.3333, 0.0000]])
    """

    @property
    def formula(self) -> str:
        """Weight of a counted token."""
        return r"\frac{1}{\sum_{j} |o_j|}"

    @property
    def denominator(self) -> str:
        """What the losses are divided by, in words."""
        return "the number of counted tokens in the optimizer step"

    def __call__(self, mask: TokenMask) -> PerToken:
        """Weights of the tokens; see the class."""
        counts = mask.to(torch.get_default_dtype())
        return counts / counts.sum().clamp(min=1)
