"""Exactly at a bound a weight is kept; what is dropped or padded decides nothing."""

import pytest
import torch

from grpo_kit import DivergenceMask, ImportanceWeight

ONE = torch.ones(1, 1, dtype=torch.bool)


@pytest.mark.parametrize(("low", "high"), [(0.5, 1.0), (1.0, 2.0)])
def test_a_weight_exactly_at_its_bound_is_kept(low, high):
    assert ImportanceWeight(action="mask", low=low, high=high)(torch.zeros(1, 1), ONE).tolist() == [[1.0]]


def test_a_divergence_exactly_at_its_bound_is_kept():
    mask = DivergenceMask(metric="k1", level="token", low=-0.25, high=0.25)
    log_ratio = torch.tensor([[-0.25, 0.25, -0.375, 0.375]])  # k1 is minus this
    assert mask(log_ratio, torch.ones(1, 4, dtype=torch.bool)).tolist() == [[1.0, 1.0, 0.0, 0.0]]


def test_only_negative_leaves_an_advantage_of_zero_alone():
    mask = DivergenceMask(metric="k1", level="token", high=0.1, only_negative=True)
    advantages = torch.tensor([[1.0, 0.0, -1.0]])
    far = torch.full((1, 3), -5.0)
    assert mask(far, torch.ones(1, 3, dtype=torch.bool), advantages=advantages).tolist() == [[1.0, 1.0, 0.0]]


@pytest.mark.parametrize("normalize", ["group", "batch"])
def test_padding_does_not_bring_the_underflow_back(normalize):
    """exp(-110) is 0 in float32; the ratio of exp(-110) to exp(-111) is not."""
    weight = ImportanceWeight(level="sequence", high=float("inf"), normalize=normalize)
    mask = torch.tensor([[True, True], [True, False]])
    found = weight(torch.tensor([[-110.0, 0.0], [-111.0, 0.0]]), mask, groups=torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(found[:, 0], torch.tensor([1.4621, 0.5379]), rtol=1e-4, atol=0)


def test_formulas_say_what_is_averaged_and_when_it_is_measured():
    assert "rows" in ImportanceWeight(level="sequence", normalize="batch").formula
    assert "tokens" in ImportanceWeight(level="token", normalize="batch").formula
    plain, tempered = (ImportanceWeight(level="token", temper=temper).formula for temper in (1.0, 0.5))
    assert "0.5" in tempered
    assert plain == r"\operatorname{clip}(e^{b_{it}}, 0, 2)"
    masks = (ImportanceWeight(level="token", action="mask", low=0.5, temper=temper).formula for temper in (1.0, 0.5))
    assert [mask.startswith("e^{b_{it}}") for mask in masks] == [True, False]
    assert "d_{iu}" not in DivergenceMask(metric="k1", high=0.1).formula
    assert "b_{iu} + d_{iu}" in DivergenceMask(metric="k1", high=0.1, at="update").formula
