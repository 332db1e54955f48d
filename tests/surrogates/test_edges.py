"""Exactly at an edge nothing is clipped, a hair beyond it is; a bound that makes no sense is named with its numbers."""

from math import exp, inf, log, log1p

import pytest
import torch
from pydantic import ValidationError

from grpo_kit import CISPO, DPPO, GMPO, SAPO, Clip, LogProbs

pytestmark = pytest.mark.usefixtures("float64")
HAIR = 1e-12
EDGES = [
    (Clip(low=0.3, high=0.2), 1.0, log1p(0.2), 1),
    (Clip(low=0.3, high=0.2), 0.0, log1p(0.2), 1),
    (Clip(low=0.3, high=0.2), -1.0, log1p(-0.3), -1),
    (Clip(cap=3.0), -1.0, log(3.0), 1),
    (CISPO(high=5.0, low=0.5), 1.0, log(5.0), 1),
    (CISPO(high=5.0, low=0.5), -1.0, log(0.5), -1),
    (CISPO(bound="relative", high=0.3, low=0.2), 1.0, log(1.3), 1),
    (CISPO(bound="relative", high=0.3, low=0.2), 1.0, log(0.8), -1),
    (GMPO(low=0.3, high=0.4), 1.0, 0.4, 1),
    (GMPO(low=0.3, high=0.4), 0.0, 0.4, 1),
    (GMPO(low=0.3, high=0.4), -1.0, -0.3, -1),
]


@pytest.mark.parametrize(("surrogate", "advantage", "edge", "outward"), EDGES)
def test_the_edge_itself_is_allowed(surrogate, advantage, edge, outward):
    at, beyond, inside = (torch.tensor([[edge + outward * step]]) for step in (0, HAIR, -HAIR))
    advantages = torch.tensor([[advantage]])
    assert not surrogate.clipped(at, advantages)
    assert surrogate.clipped(beyond, advantages)
    assert not surrogate.clipped(inside, advantages)


@pytest.mark.parametrize("surrogate", [Clip(low=0.3, high=0.2), GMPO(low=0.3, high=0.4)], ids=["clip", "gmpo"])
def test_the_other_side_of_an_advantage_is_never_clipped(surrogate):
    far = torch.tensor([[9.0, -9.0, -9.0]])
    assert not surrogate.clipped(far, torch.tensor([[-1.0, 1.0, 0.0]])).any()


def test_without_a_lower_bound_no_weight_is_too_small():
    assert not CISPO().clipped(torch.tensor([[-inf, -1e4, 0.0]]), torch.ones(1, 3)).any()


@pytest.mark.parametrize(("advantage", "now", "then"), [(1.0, 0.75, 0.5), (-1.0, 0.5, 0.75)])
def test_dppo_allows_exactly_its_distance(advantage, now, then):
    """0.75 - 0.5 is 0.25 in binary, too."""
    current, anchor = torch.tensor([[now]]).log(), torch.tensor([[then]]).log()
    record, advantages = LogProbs(current=current, anchor=anchor, behavior=anchor), torch.tensor([[advantage]])
    moved = float((current.exp() - anchor.exp()).abs())
    assert not DPPO(low=moved, high=moved).clipped(record.log_ratio, advantages, record)
    assert DPPO(low=moved - HAIR, high=moved - HAIR).clipped(record.log_ratio, advantages, record)
    assert not DPPO(low=0.0, high=0.0).clipped(record.log_ratio, torch.zeros(1, 1), record)


def test_a_cap_below_the_clip_is_named_with_both_numbers():
    with pytest.raises(ValidationError, match=r"cap = 1\.2 is not above 1 \+ high = 1\.25; raise cap or leave it out"):
        Clip(high=0.25, cap=1.2)


def test_an_absolute_bound_below_one_is_named_with_what_may_be_meant():
    with pytest.raises(ValidationError, match=r"high = 0\.2 bounds the ratio itself .* use bound = 'relative'"):
        CISPO(high=0.2)
    with pytest.raises(ValidationError, match="high"):
        CISPO(bound="relative", high=0.0)
    assert CISPO(high=1.0).edges == (0.0, 1.0)
    assert CISPO(bound="relative", high=0.2).edges == (0.0, 1.2)
    assert CISPO(bound="relative", high=0.2, low=0.25).edges == (0.75, 1.2)


@pytest.mark.parametrize("tau", [0.05, 1.0, 9.0])
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 3.0, 40.0])
def test_sapo_is_its_gate_for_gentle_and_steep_slopes(tau, ratio):
    """The bound against overflow is beyond what the gate can tell apart, whatever its slope."""
    expected = 4 / tau / (1 + exp(-tau * (ratio - 1)))
    log_ratio, one = torch.tensor([[log(ratio)]]), torch.ones(1, 1)
    assert float(SAPO(tau_positive=tau)(log_ratio, one)) == pytest.approx(-expected)
    assert float(SAPO(tau_negative=tau)(log_ratio, -one)) == pytest.approx(expected)
