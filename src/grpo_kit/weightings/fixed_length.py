"""Every token counts as one of a fixed number."""

from typing import Annotated

import torch
from einops import reduce
from pydantic import Field

from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("fixed_length")
class FixedLength:
    r"""A constant weight for every token: $w_{it} = 1 / (R\,N)$, $R$ rows with a counted token, $N$ = `length`.

    Dr. GRPO's loss (arXiv:2503.20783): no bias by length, and the only row-level weighting under which CoDistill's
    theorem (arXiv:2605.08873) holds. The divisor never depends on padding. All zeros when nothing counts.

    Attributes:
        length: $N$ in tokens, normally the sampler's `max_new_tokens`; at least 1.

    Example:
        >>> FixedLength(length=4)(torch.tensor([[True, True], [True, False]]))
        tensor([[0.1250, 0.1250],
                [0.1250, 0.0000]])
    """

    length: Annotated[int, Field(ge=1)]

    @property
    def formula(self) -> str:
        """Weight of a counted token."""
        return rf"\frac{{1}}{{{self.length} \cdot R}}"

    @property
    def denominator(self) -> str:
        """What the losses are divided by, in words."""
        return f"{self.length} (length) times the number of rows with a counted token in the optimizer step"

    def __call__(self, mask: TokenMask) -> PerToken:
        """Weights of the tokens; see the class."""
        counts = mask.to(torch.get_default_dtype())
        rows = (reduce(counts, "row token -> row", "sum") > 0).sum()
        return counts / (self.length * rows.clamp(min=1))
