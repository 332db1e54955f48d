"""Weightings against loops."""

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from grpo_kit import EqualRows, EqualTokens, FixedLength
from laws.data import any_mask, shape


def expected(kind, mask, row):
    lengths = [sum(own) for own in mask.tolist()]
    rows = sum(length > 0 for length in lengths)
    return {"tokens": 1 / sum(lengths), "rows": 1 / (rows * lengths[row]), "fixed": 1 / (rows * 7)}[kind]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("kind", "part"), [("tokens", EqualTokens()), ("rows", EqualRows()), ("fixed", FixedLength(length=7))]
)
def test_weights(kind, part):
    @given(st.data())
    def run(data):
        mask = any_mask(data.draw, *shape(data.draw))
        weights = part(mask)
        for row, token in torch.nonzero(mask).tolist():
            assert float(weights[row, token]) == pytest.approx(expected(kind, mask, row), rel=1e-12)

    run()


def test_a_length_below_one_is_refused():
    with pytest.raises(ValidationError, match="length"):
        FixedLength(length=0)


@pytest.mark.parametrize("part", [EqualTokens(), EqualRows()], ids=["tokens", "rows"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_weights_of_a_step_sum_to_one(part, count):
    """However few tokens there are: a single one weighs 1."""
    mask = torch.arange(3)[None, :] < count
    assert part(mask).sum() == pytest.approx(1.0)
    assert part(torch.cat([mask, torch.zeros(2, 3, dtype=torch.bool)])).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("length", [1, 5])
def test_a_single_token_of_fixed_length_weighs_one_in_that_length(length):
    found = FixedLength(length=length)(torch.tensor([[True, False]]))[0].tolist()
    assert found == pytest.approx([1 / length, 0.0])
