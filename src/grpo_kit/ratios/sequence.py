"""One ratio a row, as in GSPO."""

from einops import rearrange

from grpo_kit.masked import row_mean, select
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("sequence")
class SequenceRatio:
    r"""Every token takes its row's length-normalized ratio: $\log s_i = \frac{1}{|o_i|} \sum_t \log \rho_{it}$.

    GSPO (arXiv:2507.18071) in its stop-gradient form, $\log s_{it} = \mathrm{sg}[\log s_i] + \log \pi_{it} -
    \mathrm{sg}[\log \pi_{it}]$: the value is the row's, the gradient each token's own, so that per-token advantages
    keep their credit; with one advantage a row it is GSPO's gradient. Zero outside the mask.

    Example:
        >>> import torch
        >>> SequenceRatio()(torch.tensor([[0.1, 0.3]]), torch.tensor([[True, True]]))
        tensor([[0.2000, 0.2000]])
    """

    @property
    def formula(self) -> str:
        """What the surrogate sees, from a row's log-ratios; sg stops the gradient."""
        return r"e^{\operatorname{sg}[\operatorname{mean}_t(d_{it}) - d_{it}] + d_{it}}"

    def __call__(self, log_ratio: PerToken, mask: TokenMask) -> PerToken:
        """Log-ratios for the surrogate; see the class."""
        own = select(log_ratio, mask)
        level = rearrange(row_mean(own.detach(), mask), "row -> row 1")
        return select(level + (own - own.detach()), mask)
