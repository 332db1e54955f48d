"""Baselines from outside the group: the greedy completion, and earlier batches."""

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from grpo_kit import EMABaseline, ReMax
from grpo_kit.memory import Memory
from laws.data import grouped_rewards
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")
NAN = float("nan")


@given(st.data())
def test_remax_is_the_lead_over_the_greedy_completion(data):
    rewards, groups = grouped_rewards(data.draw)
    of_group = {7: 0.5, 3: -1.5, 11: NAN}
    greedy = [of_group[group] for group in groups.tolist()]
    expected = [0.0 if g != g else r - g for r, g in zip(rewards.tolist(), greedy, strict=True)]
    found = ReMax()(rewards, groups, greedy_rewards=torch.tensor(greedy))
    torch.testing.assert_close(found, torch.tensor(expected), **EXACT)


def test_remax_gives_a_missing_reward_zero():
    found = ReMax()(torch.tensor([NAN, 1.0]), torch.tensor([0, 0]), greedy_rewards=torch.tensor([1.0, 0.25]))
    assert found.tolist() == [0.0, 0.75]


@given(st.data())
def test_ema_baseline_is_what_was_known_before_the_batch(data):
    decay = data.draw(st.sampled_from([0.0, 0.5, 0.9]))
    memory, baseline = Memory(), None
    for _ in range(data.draw(st.integers(1, 4))):
        rewards, groups = grouped_rewards(data.draw)
        found = memory.call("here", EMABaseline(decay=decay), rewards, groups)
        average = sum(rewards.tolist()) / len(rewards)
        baseline = average if baseline is None else baseline
        torch.testing.assert_close(found, torch.tensor([r - baseline for r in rewards.tolist()]), **EXACT)
        baseline = decay * baseline + (1 - decay) * average
        assert memory.states["here"] == pytest.approx(baseline, rel=1e-12, abs=1e-12)


def test_a_row_does_not_move_its_own_baseline_after_the_first_batch():
    part, groups = EMABaseline(), torch.tensor([0, 1])
    low, _ = part(torch.tensor([0.0, 0.0]), groups, state=0.5)
    high, _ = part(torch.tensor([0.0, 9.0]), groups, state=0.5)
    assert low[0] == high[0] == -0.5


def test_a_missing_reward_moves_nothing():
    part, groups = EMABaseline(decay=0.5), torch.tensor([0, 1])
    nothing = torch.full((2,), NAN)
    for state in (None, 0.25, 0.0):
        found, after = part(nothing, groups, state=state)
        assert found.tolist() == [0, 0]
        assert after == state
    found, after = part(torch.tensor([NAN, 1.0]), groups, state=0.0)
    assert found.tolist() == [0, 1]
    assert after == 0.5
    assert type(after) is float  # plain data, for a checkpoint


def test_a_decay_of_one_would_never_move():
    with pytest.raises(ValidationError, match="decay"):
        EMABaseline(decay=1.0)
