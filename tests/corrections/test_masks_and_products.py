"""Divergence masks and products: loops, OPSM in a whole term, how a recipe writes them, what is refused."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

import tiny
from corrections.loops import LEVELS, WINDOW, at_level, by_loops
from grpo_kit import Clip, DivergenceMask, GroupMean, ImportanceWeight, PolicyGradient, Product, Scores
from grpo_kit.corrections import CORRECTIONS
from grpo_kit.memory import Memory
from laws.data import any_mask, normal, shape
from laws.terms import case
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")
ESTIMATES = {"k1": lambda x: -x, "k2": lambda x: x * x / 2, "k3": lambda x: math.exp(x) - 1 - x}
OPSM = DivergenceMask(metric="k1", high=0.2, only_negative=True, at="update")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("metric", ESTIMATES)
@pytest.mark.parametrize("only_negative", [False, True])
def test_divergence_mask(level, metric, only_negative):
    low, high = (-0.3 if metric == "k1" else None), 0.2
    window = WINDOW if level == "window" else None
    part = DivergenceMask(metric=metric, level=level, window=window, low=low, high=high, only_negative=only_negative)

    @settings(max_examples=20)
    @given(st.data())
    def run(data):
        mask = any_mask(data.draw, *shape(data.draw))
        values, advantages = normal(data.draw, *mask.shape, scale=0.6), normal(data.draw, *mask.shape)

        def kept(own, place, counted, row):
            found = at_level(level, [ESTIMATES[metric](value) for value in own], place, counted)
            inside = found <= high and (low is None or found >= low)
            return float(inside or (only_negative and advantages[row, counted[place]] >= 0))

        assert torch.equal(part(values, mask, advantages), by_loops(values, mask, kept))

    run()


def test_an_overflow_is_dropped_whatever_the_estimate():
    huge, mask = torch.tensor([[1e4, 0.0], [-1e4, 0.0]]), torch.ones(2, 2, dtype=torch.bool)
    for metric, lost in (("k2", [0.0, 0.0]), ("k3", [0.0, 0.0]), ("k1", [1.0, 0.0])):
        assert DivergenceMask(metric=metric, high=1.0)(huge, mask)[:, 0].tolist() == lost
    assert DivergenceMask(metric="k1", low=-1.0, high=1.0)(huge, mask)[0, 0] == 0  # k1 of the first is -1e4 / 2


@given(st.data())
def test_opsm_drops_negative_rows_far_from_the_policy_being_updated(data):
    """DeepSeek-V3.2 (2512.02556): M_i = 0 where A < 0 and mean log(mu / pi) > delta, pi the current policy."""
    given_case = case(data.draw)
    term, plain = (
        PolicyGradient(advantage=GroupMean(), surrogate=Clip(), correction=correction) for correction in (OPSM, None)
    )
    written, counted = given_case.experience.rollouts.mask, given_case.counted
    losses = []
    for each in (term, plain):
        frozen = each.freeze(given_case.experience, given_case.returns, "small", Memory())
        assert "correction" not in frozen
        losses.append(each(Scores(logprobs=given_case.current.logprobs), frozen, written, counted))
    for row in range(len(counted)):
        tokens = counted[row]
        gaps = (frozen["behavior"] - given_case.current.logprobs)[row][tokens].tolist()
        negative = bool(tokens.any()) and frozen["advantages"][row][tokens][0] < 0
        keep = not (negative and sum(gaps) / len(gaps) > OPSM.high)
        torch.testing.assert_close(losses[0][row], losses[1][row] * keep, **EXACT)


def test_one_decided_at_an_update_may_stand_with_the_writer_as_anchor():
    PolicyGradient(advantage=GroupMean(), surrogate=Clip(), anchor="behavior", correction=OPSM)
    for other in (DivergenceMask(high=1.0), Product(of=(OPSM, ImportanceWeight()))):
        with pytest.raises(ValidationError, match="nothing to do"):
            PolicyGradient(advantage=GroupMean(), surrogate=Clip(), anchor="behavior", correction=other)


@given(st.data())
def test_a_product_multiplies_and_hands_on_what_its_factors_ask_for(data):
    mask = any_mask(data.draw, *shape(data.draw))
    values, advantages = normal(data.draw, *mask.shape), normal(data.draw, *mask.shape)
    groups = torch.arange(len(mask)) % 2
    weight = ImportanceWeight(normalize="group")
    found = Product(of=(weight, OPSM))(values, mask, groups=groups, advantages=advantages, more="ignored")
    torch.testing.assert_close(found, weight(values, mask, groups) * OPSM(values, mask, advantages), **EXACT)


def test_the_term_applies_each_factor_once():
    """A weight of 2, fixed at scoring, and a mask of the second row, decided at the update."""
    rows = tiny.rollouts([1, 1], [0, 0])
    anchor, behavior = torch.zeros(2, 1), torch.tensor([[math.log(0.5)], [math.log(0.5)]])
    current = torch.tensor([[0.0], [-2.0]])
    both = Product(of=(ImportanceWeight(), DivergenceMask(level="token", high=0.5, at="update")))
    term = PolicyGradient(advantage=GroupMean(), surrogate=Clip(), correction=both)
    frozen = {"advantages": torch.ones(2, 1), "anchor": anchor, "behavior": behavior}
    frozen["correction"] = ImportanceWeight()(anchor - behavior, rows.mask)
    found = term(Scores(logprobs=current), frozen, rows.mask, rows.mask)
    assert found.tolist() == [[-2.0], [0.0]]


@pytest.mark.parametrize("order", [1, -1])
def test_a_mask_drops_what_overflowed(order):
    """inf x 0 is NaN."""
    factors = (ImportanceWeight(level="sequence", high=math.inf), DivergenceMask(level="token", high=0.5))[::order]
    found = Product(of=factors)(torch.tensor([[100.0, 0.0]]).float(), torch.ones(1, 2, dtype=torch.bool))
    assert found.tolist() == [[0.0, math.inf]]


def test_factors_of_inner_products_are_flat():
    weight, mask = ImportanceWeight(), DivergenceMask(high=1.0)
    assert Product(of=(Product(of=(weight, mask)), mask)).factors == (weight, mask, mask)


def test_a_recipe_writes_a_product_as_a_list():
    table = {"kind": "product", "of": [{"kind": "importance_weight"}, {"kind": "divergence_mask", "high": 0.1}]}
    assert CORRECTIONS.read(table) == Product(of=(ImportanceWeight(), DivergenceMask(high=0.1)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "high"),
        ({"high": -0.1}, "high"),
        ({"high": 1.0, "low": 0.1}, "low"),
        ({"high": 1.0, "low": -0.1}, "low = -0.1 has nothing to do, k3 is never negative"),
        ({"high": float("inf")}, "drops nothing"),
        ({"high": 1.0, "window": 4}, "window = 4 has nothing to do at level 'geometric'"),
        ({"high": 1.0, "level": "window"}, "give window"),
        ({"high": 1.0, "metric": "k4"}, "metric"),
    ],
)
def test_wrong_masks_are_refused(wrong, said):
    with pytest.raises(ValidationError, match=said):
        DivergenceMask(**wrong)


def test_a_product_of_one_is_refused():
    with pytest.raises(ValidationError, match="of has 1 factors, not two or more; name a single correction by itself"):
        Product(of=(ImportanceWeight(),))


def test_a_mask_of_negative_advantages_asks_for_them():
    with pytest.raises(ValueError, match="needs the keyword advantages"):
        OPSM(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool))
