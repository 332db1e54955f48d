"""Corrections: detached importance weights for tokens that another distribution wrote."""

from grpo_kit.corrections.divergence_mask import DivergenceMask
from grpo_kit.corrections.importance_weight import ImportanceWeight
from grpo_kit.corrections.product import Product
from grpo_kit.corrections.role import CORRECTIONS, Correction

CORRECTIONS.built_in |= {
    "importance_weight": ImportanceWeight,
    "divergence_mask": DivergenceMask,
    "product": Product,
}


def factors(correction: Correction | None) -> list[tuple[Correction, bool]]:
    """A correction as its factors, each with whether it is decided anew at every update."""
    parts = () if correction is None else getattr(correction, "factors", (correction,))
    return [(part, bool(getattr(part, "at_update", False))) for part in parts]


__all__ = ["CORRECTIONS", "Correction", "DivergenceMask", "ImportanceWeight", "Product"]
