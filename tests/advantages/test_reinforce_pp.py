"""REINFORCE++ and its form with a baseline against loops written from the paper."""

import pytest
import torch
from hypothesis import given, strategies as st

from advantages.loops import deviation, drawn_lengths, flat, mean, members
from grpo_kit import ReinforcePP, ReinforcePPBaseline
from laws.data import grouped_rewards, normal
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")


def whitened(by_row, eps, shift=True):
    """Lists of tokens a row, less the mean of all tokens and over their deviation."""
    tokens = [value for row in by_row for value in row]
    if len(tokens) < 2 or flat(tokens):
        return [[0.0] * len(row) for row in by_row]
    return [[(value - shift * mean(tokens)) / (deviation(tokens) + eps) for value in row] for row in by_row]


def padded(by_row, width=4):
    return torch.tensor([row + [0.0] * (width - len(row)) for row in by_row])


@pytest.mark.parametrize("gamma", [1.0, 0.5])
@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_reinforce_pp(gamma, eps):
    @given(st.data())
    def run(data):
        lengths, mask = drawn_lengths(data.draw, data.draw(st.integers(1, 5)))
        by_token = torch.where(mask, normal(data.draw, *mask.shape), 0)
        returns = [
            [sum(gamma ** (u - t) * float(row[u]) for u in range(t, length)) for t in range(length)]
            for row, length in zip(by_token, lengths, strict=True)
        ]
        found = ReinforcePP(gamma=gamma, eps=eps)(
            by_token.sum(1), torch.zeros(len(lengths), dtype=torch.long), token_rewards=by_token, mask=mask
        )
        torch.testing.assert_close(found, padded(whitened(returns, eps)), **EXACT)

    run()


def test_equal_returns_everywhere_are_exactly_zero():
    mask = torch.arange(4) < torch.tensor([4, 1, 2])[:, None]
    by_token = torch.where(torch.arange(4) == torch.tensor([3, 0, 1])[:, None], 0.1, 0.0)
    rewards, groups = torch.full((3,), 0.1), torch.tensor([0, 0, 1])
    assert (ReinforcePP(eps=0.0)(rewards, groups, token_rewards=by_token, mask=mask) == 0).all()


def test_rows_without_reward_and_tokens_outside_the_mask_do_not_count():
    mask = torch.tensor([[True, False], [True, True], [True, True]])
    by_token = torch.tensor([[1.0, 50.0], [0.0, 0.0], [torch.nan, torch.nan]])
    rewards = torch.tensor([1.0, 0.0, torch.nan])
    found = ReinforcePP(eps=0.0)(rewards, torch.tensor([0, 0, 0]), token_rewards=by_token, mask=mask)
    # tokens 1, 0, 0: mean 1/3, deviation sqrt((4/9 + 1/9 + 1/9) / 2) = sqrt(1/3)
    expected = torch.tensor([[2.0, 0.0], [-1.0, -1.0], [0.0, 0.0]]) / 3 / (1 / 3) ** 0.5
    torch.testing.assert_close(found, expected, **EXACT)
    absent = ReinforcePP()(torch.full((3,), torch.nan), torch.tensor([0, 0, 0]), token_rewards=by_token, mask=mask)
    assert (absent == 0).all()


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_reinforce_pp_with_a_baseline(shift, eps):
    @given(st.data())
    def run(data):
        rewards, groups = grouped_rewards(data.draw)
        lengths, mask = drawn_lengths(data.draw, len(rewards))
        centered = []
        for row, reward in enumerate(rewards.tolist()):
            own = members(rewards, groups, row)
            centered.append([0.0 if flat(own) else reward - mean(own)] * lengths[row])
        expected = torch.tensor([row[0] for row in whitened(centered, eps, shift)])
        found = ReinforcePPBaseline(shift=shift, eps=eps)(rewards, groups, mask=mask)
        torch.testing.assert_close(found, expected, **EXACT)

    run()


def test_only_the_shift_pushes_a_group_with_nothing_to_tell():
    rewards, groups = torch.tensor([1.0, 0.0, 5.0, 5.0, torch.nan]), torch.tensor([0, 0, 1, 1, 1])
    mask = torch.arange(3) < torch.tensor([3, 1, 2, 2, 3])[:, None]
    plain, shifted = (ReinforcePPBaseline(shift=shift)(rewards, groups, mask=mask) for shift in (False, True))
    assert plain[2:].tolist() == [0, 0, 0]
    torch.testing.assert_close(plain[:4], ReinforcePPBaseline()(rewards[:4], groups[:4], mask=mask[:4]), **EXACT)
    assert (shifted[2:4] < 0).all()  # the good row was longer, so that the tokens' mean is above 0
    assert shifted[4] == 0


def test_rows_without_any_token_are_finite():
    found = ReinforcePPBaseline(shift=True)(
        torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), mask=torch.zeros(2, 3, dtype=torch.bool)
    )
    assert found.tolist() == [0, 0]
