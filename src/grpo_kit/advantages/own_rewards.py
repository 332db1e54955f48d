"""Rewards of an advantage of its own: some of the learner's components, in place of their sum."""

from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import AfterValidator, Field

from grpo_kit.masked import wide
from grpo_kit.offers import asks, inside
from grpo_kit.parts import Name
from grpo_kit.shapes import PerRow


class Weights(dict[str, float]):
    """Weights of components by name, as data that hashes."""

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the pairs, in any order."""
        return hash(frozenset(self.items()))


OwnRewards = Annotated[Mapping[Name, float], Field(min_length=1), AfterValidator(Weights)]
"""A recipe's table of weights by component."""


def weighted(components: Mapping[str, PerRow], weights: Mapping[str, float]) -> PerRow:
    """The weighted sum a row, without the missing components; NaN where all are missing.

    Example:
        >>> a, b = torch.tensor([1.0, torch.nan]), torch.tensor([torch.nan, torch.nan])
        >>> weighted({"a": a, "b": b}, {"a": 0.5, "b": 1.0})
        tensor([0.5000,    nan])
    """
    unknown = [name for name in weights if name not in components]
    if unknown:
        raise ValueError(
            f"there is no reward component '{unknown[0]}' here. Known: {', '.join(components) or 'none'}. "
            "An advantage can only use rewards that its learner weighs."
        )
    values = torch.stack([weight * wide(components[name]) for name, weight in weights.items()])
    return torch.where(values.isnan().all(0), torch.nan, values.nansum(0))


def refuse_what_only_totals_have(advantage: object) -> None:
    """Refuse an advantage of single components that asks for what is known of the learner's whole reward alone."""
    asked = {name for part in inside(advantage) for name in asks(part)}
    for name in ("token_rewards", "greedy_rewards"):
        if name in asked:
            raise ValueError(
                f"the advantage '{getattr(advantage, 'kind', advantage)}' needs {name}, which there are of the "
                "learner's whole reward alone, not of single components; use another, such as 'group_mean'"
            )
