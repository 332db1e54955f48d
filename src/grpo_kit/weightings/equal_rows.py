"""Every row of the optimizer step counts the same."""

import torch
from einops import reduce

from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("equal_rows")
class EqualRows:
    r"""The same weight for every row, shared by its tokens: $w_{it} = 1 / (R\,|o_i|)$, $R$ rows with a counted token.

    GRPO's loss (arXiv:2402.03300): a token of a long row counts less than one of a short row. All zeros when nothing
    counts.

    Example:
        >>> EqualRows()(torch.tensor([[True, True], [True, False]]))
        tensor([[0.2500, 0.2500],
                [0.5000, 0.0000]])
    """

    @property
    def formula(self) -> str:
        """Weight of a counted token."""
        return r"\frac{1}{R \cdot |o_i|}"

    @property
    def denominator(self) -> str:
        """What the losses are divided by, in words."""
        return "the number of rows with a counted token in the optimizer step, times the row's own counted tokens"

    def __call__(self, mask: TokenMask) -> PerToken:
        """Weights of the tokens; see the class."""
        counts = mask.to(torch.get_default_dtype())
        lengths = reduce(counts, "row token -> row 1", "sum")
        return counts / lengths.clamp(min=1) / (lengths > 0).sum().clamp(min=1)
