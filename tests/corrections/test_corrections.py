"""Corrections against loops: each level, each action."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from grpo_kit import ImportanceWeight
from laws.data import any_mask, normal, shape

pytestmark = pytest.mark.usefixtures("float64")


def weight(log_ratios, token, part):
    """The weight of one token of a row, given as the log-ratios of its counted tokens."""
    level = {
        "token": log_ratios[token],
        "prefix": sum(log_ratios[: token + 1]),
        "sequence": sum(log_ratios),
        "geometric": sum(log_ratios) / len(log_ratios),
    }[part.level]
    raw = math.exp(level)
    if part.action == "truncate":
        return min(max(raw, part.low), part.high)
    return raw if part.low <= raw <= part.high else 0.0


@pytest.mark.parametrize("level", ["token", "prefix", "sequence", "geometric"])
@pytest.mark.parametrize("action", ["truncate", "mask"])
def test_importance_weight(level, action):
    part = ImportanceWeight(level=level, action=action, low=0.6, high=1.7)

    @given(st.data())
    def run(data):
        mask = any_mask(data.draw, *shape(data.draw))
        values = normal(data.draw, *mask.shape, scale=0.6)
        found = part(values, mask)
        for row in range(len(mask)):
            counted = torch.nonzero(mask[row]).flatten().tolist()
            own = values[row, counted].tolist()
            for place, token in enumerate(counted):
                assert float(found[row, token]) == pytest.approx(weight(own, place, part), rel=1e-12)

    run()


def test_overflow_is_bounded_or_dropped():
    huge, mask = torch.tensor([[1e4, -1e4]]), torch.ones(1, 2, dtype=torch.bool)
    assert ImportanceWeight()(huge, mask).tolist() == [[2.0, 0.0]]
    assert ImportanceWeight(action="mask", low=0.5)(huge, mask).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("wrong", [{"low": 1.5}, {"high": 0.5}, {"level": "row"}, {"action": "clip"}, {"low": -0.1}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        ImportanceWeight(**wrong)
