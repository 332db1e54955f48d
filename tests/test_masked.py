"""Arithmetic under masks and inside groups."""

import torch

from grpo_kit.masked import group_is_flat, group_sum, row_mean, row_sum, select

MASK = torch.tensor([[True, False, True], [False, False, False]])
VALUES = torch.tensor([[1.0, torch.nan, 2.0], [torch.inf, 5.0, torch.nan]])


def test_select_row_sum_row_mean():
    assert select(VALUES, MASK).tolist() == [[1, 0, 2], [0, 0, 0]]
    assert row_sum(VALUES, MASK).tolist() == [3, 0]
    assert row_mean(VALUES, MASK).tolist() == [1.5, 0]


def test_no_gradient_passes_under_the_mask():
    values = VALUES.clone().requires_grad_()
    row_mean(values.exp(), MASK).sum().backward()
    assert values.grad is not None
    assert values.grad[0, 0] == torch.tensor(1.0).exp() / 2


def test_group_sum_gives_each_row_its_groups_sum():
    assert group_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([9, 5, 9])).tolist() == [5, 2, 5]


def test_a_group_is_flat_by_its_known_values():
    values, groups = torch.tensor([1.0, torch.nan, 1.0, 0.0, 2.0]), torch.tensor([3, 3, 3, 1, 1])
    assert group_is_flat(values, groups, ~values.isnan()).tolist() == [True, True, True, False, False]
    nothing = torch.full((2,), torch.nan)
    assert group_is_flat(nothing, torch.zeros(2, dtype=torch.long), ~nothing.isnan()).all()
