"""Ratios: the sequence level is GSPO's, value and gradient."""

import pytest
import torch
from hypothesis import given, strategies as st

from grpo_kit import Clip, SequenceRatio, TokenRatio
from laws.data import any_mask, normal, shape
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")


@given(st.data())
def test_token_ratio_is_the_log_ratio_inside_the_mask(data):
    mask = any_mask(data.draw, *shape(data.draw))
    values = normal(data.draw, *mask.shape)
    for row in range(len(mask)):
        for token in range(mask.shape[1]):
            expected = values[row, token] if mask[row, token] else 0
            assert TokenRatio()(values, mask)[row, token] == expected


@given(st.data())
def test_sequence_ratio_is_the_mean_over_the_rows_tokens(data):
    mask = any_mask(data.draw, *shape(data.draw))
    values = normal(data.draw, *mask.shape)
    found = SequenceRatio()(values, mask)
    for row in range(len(mask)):
        own = [float(v) for v, counts in zip(values[row], mask[row], strict=True) if counts]
        for token in range(mask.shape[1]):
            expected = sum(own) / len(own) if mask[row, token] else 0.0
            assert float(found[row, token]) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_with_one_advantage_a_row_it_is_gspos_gradient():
    """GSPO (2507.18071): the row's loss is -s A with s = exp(mean log ratio), counted once per token over |o|."""
    values = torch.tensor([[0.1, -0.3, 0.2]], requires_grad=True)
    mask, advantages = torch.ones(1, 3, dtype=torch.bool), torch.full((1, 3), 0.7)
    loss = Clip(high=10.0)(SequenceRatio()(values, mask), advantages).sum() / 3
    (found,) = torch.autograd.grad(loss, values)
    (expected,) = torch.autograd.grad(-0.7 * values.mean().exp(), values)
    torch.testing.assert_close(found, expected, **EXACT)


def test_per_token_advantages_keep_their_credit():
    values = torch.zeros(1, 2, requires_grad=True)
    level = SequenceRatio()(values, torch.ones(1, 2, dtype=torch.bool))
    (gradient,) = torch.autograd.grad((level * torch.tensor([[1.0, -1.0]])).sum(), values)
    assert gradient.tolist() == [[1.0, -1.0]]
