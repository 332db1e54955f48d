"""Each token's own ratio, as in PPO."""

from typing import ClassVar

from grpo_kit.masked import select
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("token")
class TokenRatio:
    r"""Each token keeps its own log-ratio: $\log \rho_{it} = \log \pi(o_{it}) - \log \pi_\mathrm{anchor}(o_{it})$.

    PPO's and GRPO's choice (arXiv:1707.06347, arXiv:2402.03300). Zero outside the mask.

    Example:
        >>> import torch
        >>> TokenRatio()(torch.tensor([[0.1, 0.3]]), torch.tensor([[True, False]]))
        tensor([[0.1000, 0.0000]])
    """

    token_local: ClassVar[bool] = True

    @property
    def formula(self) -> str:
        """What the surrogate sees, from a token's log-ratio."""
        return r"e^{d_{it}}"

    def __call__(self, log_ratio: PerToken, mask: TokenMask) -> PerToken:
        """Log-ratios for the surrogate; see the class."""
        return select(log_ratio, mask)
