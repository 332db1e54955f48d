"""Corrections against loops: each level, each action, power and normalization; which settings are refused."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from corrections.loops import LEVELS, WINDOW, at_level, by_loops
from grpo_kit import ImportanceWeight
from laws.data import any_mask, normal, shape
from tolerances import EXACT, FLOAT32

pytestmark = pytest.mark.usefixtures("float64")


def weight(part, values, place, positions):
    """The weight of one token of a row before it is normalized."""
    raw = math.exp(at_level(part.level, values, place, positions))
    if part.action == "truncate":
        return min(max(raw, part.low), part.high) ** part.temper
    return raw**part.temper if part.low <= raw <= part.high else 0.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("action", "temper"), [("truncate", 1.0), ("mask", 1.0), ("truncate", 0.4), ("mask", 0.0)])
def test_importance_weight(level, action, temper):
    part = ImportanceWeight(
        level=level, window=WINDOW if level == "window" else None, action=action, low=0.6, high=1.7, temper=temper
    )

    @given(st.data())
    def run(data):
        mask = any_mask(data.draw, *shape(data.draw))
        values = normal(data.draw, *mask.shape, scale=0.6)
        expected = by_loops(values, mask, lambda own, place, counted, row: weight(part, own, place, counted))
        torch.testing.assert_close(part(values, mask), expected, **EXACT)

    run()


@pytest.mark.parametrize("level", ["token", "window", "sequence", "geometric"])
@pytest.mark.parametrize("scope", ["group", "batch"])
@pytest.mark.parametrize("action", ["truncate", "mask"])
def test_normalized_weights(level, scope, action):
    """Divided by the mean over the group's (or batch's) rows for one weight a row, else over its counted tokens."""
    options = {"level": level, "window": WINDOW if level == "window" else None, "action": action, "low": 0.6}
    plain, part = ImportanceWeight(**options), ImportanceWeight(**options, normalize=scope)

    @given(st.data())
    def run(data):
        mask = any_mask(data.draw, *shape(data.draw))
        values, groups = normal(data.draw, *mask.shape), torch.tensor([4, 9, 4, 9])[: len(mask)]
        bounded, found = plain(values, mask), part(values, mask, groups)
        for row in range(len(mask)):
            together = [other for other in range(len(mask)) if scope == "batch" or groups[other] == groups[row]]
            tokens = [bounded[other][mask[other]].tolist() for other in together]
            one_a_row = level in ("sequence", "geometric")
            pooled = [weight for own in tokens for weight in (own[:1] if one_a_row else own)]
            mean = sum(pooled) / len(pooled) if pooled else 1.0
            torch.testing.assert_close(found[row], bounded[row] / (mean or 1.0), **EXACT)

    run()


def test_the_bounds_are_of_the_weight_before_the_power():
    """Geo-RS: a row is kept by its geometric mean, 1.1 or 3, and then weighs 1."""
    rows, mask = torch.tensor([[1.1, 1.1], [9.0, 1.0]]).log(), torch.ones(2, 2, dtype=torch.bool)
    geo_rs = ImportanceWeight(level="geometric", action="mask", temper=0, low=0.8, high=1.2)
    assert geo_rs(rows, mask).tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert ImportanceWeight(high=4.0, temper=0.5)(rows, mask)[1].tolist() == [pytest.approx(2.0), pytest.approx(1.0)]


def test_overflow_is_bounded_or_dropped():
    huge, mask = torch.tensor([[1e4, -1e4]]), torch.ones(1, 2, dtype=torch.bool)
    assert ImportanceWeight()(huge, mask).tolist() == [[2.0, 0.0]]
    assert ImportanceWeight(action="mask", low=0.5)(huge, mask).tolist() == [[0.0, 0.0]]
    assert ImportanceWeight(action="mask", temper=0.5, low=0.5)(huge, mask).tolist() == [[0.0, 0.0]]
    assert ImportanceWeight(temper=0.5, high=4.0)(huge, mask).tolist() == [[2.0, 0.0]]


@pytest.mark.parametrize("scope", ["group", "batch"])
@pytest.mark.parametrize(("rows", "gap"), [((-110.0, -111.0), 1.0), ((-102.0, -102.5), 0.5), ((400.0, 401.0), -1.0)])
def test_normalized_weights_neither_underflow_nor_overflow(scope, rows, gap):
    """Two rows a whole factor e^gap apart: 2 / (1 + e^-gap) and 2 / (1 + e^gap), however far both are from 1."""
    values, mask = torch.tensor([[row, 0.0] for row in rows]).float(), torch.ones(2, 2, dtype=torch.bool)
    part = ImportanceWeight(level="sequence", high=math.inf, normalize=scope)
    found = part(values, mask, torch.zeros(2, dtype=torch.long))
    expected = torch.tensor([2 / (1 + math.exp(-gap)), 2 / (1 + math.exp(gap))]).float()
    torch.testing.assert_close(found, expected[:, None].expand(2, 2), **FLOAT32)


def test_a_dropped_weight_is_not_the_largest():
    """Beside one of e^200 that is dropped, e^-110 and e^-111 would both underflow."""
    values, mask = torch.tensor([[200.0], [-110.0], [-111.0]]).float(), torch.ones(3, 1, dtype=torch.bool)
    found = ImportanceWeight(level="sequence", action="mask", normalize="batch")(values, mask)
    expected = torch.tensor([[0.0], [3 / (1 + math.exp(-1))], [3 / (1 + math.exp(1))]]).float()
    torch.testing.assert_close(found, expected, **FLOAT32)


@pytest.mark.parametrize("scope", ["group", "batch"])
def test_when_all_is_dropped_nothing_is_divided_by_zero(scope):
    far, mask = torch.full((2, 2), 9.0), torch.ones(2, 2, dtype=torch.bool)
    assert (ImportanceWeight(action="mask", normalize=scope)(far, mask, torch.zeros(2, dtype=torch.long)) == 0).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"low": 1.5}, "low"),
        ({"low": -0.1}, "low"),
        ({"high": 0.5}, "high"),
        ({"level": "row"}, "level"),
        ({"action": "clip"}, "action"),
        ({"temper": 1.5}, "temper"),
        ({"window": 0, "level": "window"}, "window"),
        ({"level": "window"}, "give window, for example window = 16"),
        ({"window": 3}, "window = 3 has nothing to do at level 'token'"),
        ({"temper": 0}, "use action = 'mask' or a larger temper"),
        ({"low": 1, "high": 1}, "low = high = 1 makes every truncated weight 1"),
        ({"action": "mask", "high": math.inf}, "drops nothing; give a bound, or use action = 'truncate'"),
        ({"action": "mask", "high": math.inf, "temper": 0}, "drops nothing"),
        ({"normalize": "row"}, "normalize"),
    ],
)
def test_wrong_settings_are_refused(wrong, said):
    with pytest.raises(ValidationError, match=said):
        ImportanceWeight(**wrong)


def test_a_normalization_by_group_asks_for_the_groups():
    with pytest.raises(ValueError, match="needs the keyword groups"):
        ImportanceWeight(normalize="group")(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool))
