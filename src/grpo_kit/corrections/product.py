"""Several corrections, one after the other."""

from typing import Annotated, Any

from pydantic import model_validator

from grpo_kit.corrections.role import CORRECTIONS, Correction
from grpo_kit.masked import product
from grpo_kit.offers import call_with
from grpo_kit.parts import part
from grpo_kit.shapes import PerToken, TokenMask


@part("product")
class Product:
    r"""The product of corrections, $w = \prod_k w_k$: a weight with a mask, or several masks that all must keep.

    Each factor sees the log-ratios as they are, not what an earlier one made of them; a token that one drops weighs 0
    whatever the others say. Factors that are decided at every
    update may stand beside others that are fixed at scoring.

    Attributes:
        of: the factors, at least two.

    Example:
        >>> import torch
        >>> from grpo_kit.corrections import DivergenceMask, ImportanceWeight
        >>> both = Product(of=(ImportanceWeight(), DivergenceMask(level="token", high=0.5)))
        >>> both(torch.tensor([[1.5, 4.0]]).log(), torch.tensor([[True, True]]))
        tensor([[1.5000, 0.0000]])
    """

    of: tuple[Annotated[Correction, CORRECTIONS], ...]

    @model_validator(mode="after")
    def _there_are_several(self) -> "Product":
        if len(self.of) < 2:
            raise ValueError(f"of has {len(self.of)} factors, not two or more; name a single correction by itself")
        return self

    @property
    def factors(self) -> tuple[Correction, ...]:
        """The factors, those of inner products among them."""
        return tuple(factor for part in self.of for factor in getattr(part, "factors", (part,)))

    @property
    def formula(self) -> str:
        """Weight of a token."""
        return r" \cdot ".join(f"[{getattr(part, 'formula', 'w_{it}')}]" for part in self.of)

    def __call__(self, log_ratio: PerToken, mask: TokenMask, **offers: Any) -> PerToken:
        """Detached weights; see the class."""
        return product(*(call_with(factor, log_ratio, mask, **offers) for factor in self.factors))
