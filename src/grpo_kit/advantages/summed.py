"""Advantages added up, those of rows and those of tokens."""

from collections.abc import Sequence

from einops import rearrange

from grpo_kit.shapes import PerRow, PerToken


def summed(advantages: Sequence[PerRow | PerToken]) -> PerRow | PerToken:
    """The sum; an advantage of rows counts for every token of the row when another has one a token.

    Example:
        >>> import torch
        >>> summed([torch.tensor([1.0, 2.0]), torch.tensor([[0.0, 0.5], [0.0, 0.0]])])
        tensor([[1.0000, 1.5000],
                [2.0000, 2.0000]])
    """
    if any(each.ndim == 2 for each in advantages):
        advantages = [each if each.ndim == 2 else rearrange(each, "row -> row 1") for each in advantages]
    return sum(advantages[1:], advantages[0])
