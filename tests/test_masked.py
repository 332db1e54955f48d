"""Arithmetic under masks and inside groups."""

import torch

from grpo_kit.masked import (
    centered,
    group_is_flat,
    group_max,
    group_sum,
    product,
    row_mean,
    row_sum,
    select,
    wide,
)

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


def test_sums_and_counts_of_half_precision_are_float32():
    """In bfloat16 256 + 1 is 256."""
    ones, mask = torch.ones(1, 257, dtype=torch.bfloat16), torch.ones(1, 257, dtype=torch.bool)
    assert row_sum(ones, mask).tolist() == [257]
    assert row_mean(ones, mask).tolist() == [1]
    assert group_sum(ones[0], torch.zeros(257, dtype=torch.long))[0] == 257
    assert wide(ones).dtype == torch.float32
    assert wide(ones.double()).dtype == torch.float64


def test_group_max_and_centered_see_the_known_values_alone():
    values, groups = torch.tensor([1.0, torch.nan, 4.0, 0.0, torch.nan]), torch.tensor([3, 3, 3, 1, 2])
    known = ~values.isnan()
    assert group_max(values, groups, known).tolist() == [4, 4, 4, 0, -torch.inf]
    assert centered(values, groups, known).tolist() == [-1.5, 0, 1.5, 0, 0]
    known[2] = False
    assert group_max(values, groups, known).tolist() == [1, 1, 1, 0, -torch.inf]
    assert centered(values, groups, known).tolist() == [0, 0, 0, 0, 0]


def test_equal_values_are_centered_to_exact_zeros():
    values, groups = torch.full((7,), 0.1), torch.zeros(7, dtype=torch.long)
    assert (centered(values, groups, values > 0) == 0).all()


def test_a_zero_wins_in_a_product():
    found = product(torch.tensor([[torch.inf, 2.0, 0.0]]), torch.tensor([[0.0, 3.0, torch.inf]]))
    assert found.tolist() == [[0, 6, 0]]
