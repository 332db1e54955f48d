"""Arithmetic under masks and inside groups. Inputs are selected before they are used; products are never masked."""

import torch
from einops import reduce

from grpo_kit.shapes import GroupId, PerRow, PerToken, RowMask, TokenMask


def select(values: PerToken, mask: TokenMask) -> PerToken:
    """The values where the mask is True, else 0; NaN or inf under the mask reaches neither value nor gradient."""
    return torch.where(mask, values, torch.zeros_like(values))


def row_sum(values: PerToken, mask: TokenMask) -> PerRow:
    """Sum over each row's counted tokens."""
    return reduce(select(values, mask), "row token -> row", "sum")


def row_mean(values: PerToken, mask: TokenMask) -> PerRow:
    """Mean over each row's counted tokens; 0 for a row without any."""
    return row_sum(values, mask) / reduce(mask.to(values), "row token -> row", "sum").clamp(min=1)


def group_sum(values: PerRow, groups: GroupId) -> PerRow:
    """The sum over its group, given back to every row."""
    ids, index = torch.unique(groups, return_inverse=True)
    return values.new_zeros(len(ids)).index_add(0, index, values)[index]


def group_is_flat(values: PerRow, groups: GroupId, known: RowMask) -> RowMask:
    """True for the rows of groups whose known values are all the same, decided by max == min (never by a spread)."""
    ids, index = torch.unique(groups, return_inverse=True)
    lowest = values.new_full((len(ids),), torch.inf)
    lowest = lowest.scatter_reduce(0, index, torch.where(known, values, torch.inf), "amin")
    highest = values.new_full((len(ids),), -torch.inf)
    highest = highest.scatter_reduce(0, index, torch.where(known, values, -torch.inf), "amax")
    return (highest <= lowest)[index]
