"""Weightings broken in ways that trainers shipped, each with the law that finds it."""

import torch
from einops import reduce

from laws import weightings


def by_padded_width(mask):
    """Dr. GRPO's constant taken from the width of the padded mask (verl: loss_mask.shape[-1])."""
    return mask.to(torch.get_default_dtype()) / (len(mask) * mask.shape[1])


def unguarded(mask):
    """A mean over the mask without a guard: 0/0 when every row was cut (B010, trl#3248)."""
    return mask.to(torch.get_default_dtype()) / mask.sum()


def empty_rows_count(mask):
    """The mean over rows counts the rows with nothing to train (B010's kind)."""
    counts = mask.to(torch.get_default_dtype())
    return counts / reduce(counts, "row token -> row 1", "sum").clamp(min=1) / len(mask)


def by_position(mask):
    """Earlier rows count more: the order matters."""
    counts = mask.to(torch.get_default_dtype())
    return counts / (1 + torch.arange(len(mask)))[:, None]


BROKEN = [
    (weightings.padding_changes_nothing, by_padded_width),
    (weightings.nothing_counts_outside_the_mask, unguarded),
    (weightings.absent_rows_change_nothing, empty_rows_count),
    (weightings.absent_rows_change_nothing, by_padded_width),
    (weightings.rows_may_be_permuted, by_position),
]
