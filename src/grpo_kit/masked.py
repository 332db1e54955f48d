"""Arithmetic under masks and inside groups. Inputs are selected before they are used; products are never masked."""

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from grpo_kit.shapes import GroupId, PerRow, PerToken, RowMask, TokenMask


def wide(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The values in float32 at least, in which counts and sums of half-precision numbers are right."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def select(values: PerToken, mask: TokenMask) -> PerToken:
    """The values where the mask is True, else 0; NaN or inf under the mask reaches neither value nor gradient."""
    return torch.where(mask, values, torch.zeros_like(values))


def row_sum(values: PerToken, mask: TokenMask) -> PerRow:
    """Sum over each row's counted tokens."""
    return reduce(select(wide(values), mask), "row token -> row", "sum")


def row_mean(values: PerToken, mask: TokenMask) -> PerRow:
    """Mean over each row's counted tokens; 0 for a row without any."""
    return row_sum(values, mask) / reduce(mask.long(), "row token -> row", "sum").clamp(min=1)


def product(*weights: PerToken) -> PerToken:
    """The product of detached weights; 0 where one of them is, though another overflowed (inf x 0 would be NaN)."""
    stacked = torch.stack(weights)
    return torch.where((stacked == 0).any(dim=0), 0, stacked.prod(dim=0))


def group_sum(values: PerRow, groups: GroupId) -> PerRow:
    """The sum over its group, given back to every row."""
    ids, index = torch.unique(groups, return_inverse=True)
    values = wide(values)
    return values.new_zeros(len(ids)).index_add(0, index, values)[index]


def group_max(values: PerRow, groups: GroupId, known: RowMask) -> PerRow:
    """The largest known value of its group, given back to every row; -inf where there is none."""
    ids, index = torch.unique(groups, return_inverse=True)
    least = values.new_full((len(ids),), -torch.inf)
    return least.scatter_reduce(0, index, torch.where(known, values, -torch.inf), "amax")[index]


def centered(values: PerRow, groups: GroupId, known: RowMask) -> PerRow:
    """The known values less the mean of those in their group, 0 elsewhere; exactly 0 where a group's are all equal.

    The largest is subtracted first, so that an offset costs no digits.
    """
    below = torch.where(known, wide(values) - group_max(wide(values), groups, known), 0)
    count = group_sum(known.to(below), groups).clamp(min=1)
    return torch.where(known, below - group_sum(below, groups) / count, 0)


def group_is_flat(values: PerRow, groups: GroupId, known: RowMask) -> RowMask:
    """True for the rows of groups whose known values are all the same, decided by max == min (never by a spread)."""
    return group_max(values, groups, known) <= -group_max(-values, groups, known)
