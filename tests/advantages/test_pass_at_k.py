"""What a row adds to the best of k, against sums over all subsets and the exact gradient."""

from itertools import combinations, product

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from advantages.loops import mean
from grpo_kit import PassAtK
from laws.data import grouped_rewards
from tolerances import EXACT

pytestmark = pytest.mark.usefixtures("float64")


def by_subsets(rewards, groups, k):
    """Every set of k rows of the group (all rows of a smaller one) with the row in it, one after the other."""
    out = []
    for row, reward in enumerate(rewards):
        others = [r for other, r in enumerate(rewards) if groups[other] == groups[row] and other != row]
        size = min(k, len(others) + 1) - 1
        leads = [max(reward, *rest) - max(rest) for rest in combinations(others, size)] if size else [0.0]
        out.append(mean(leads))
    return torch.tensor(out)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_pass_at_k_is_the_mean_over_subsets(k):
    @given(st.data())
    def run(data):
        rewards, groups = grouped_rewards(data.draw, distinct=data.draw(st.booleans()))
        found = PassAtK(k=k)(rewards, groups)
        torch.testing.assert_close(found, by_subsets(rewards.tolist(), groups.tolist(), k), **EXACT)

    run()


@pytest.mark.parametrize(("k", "size"), [(2, 2), (2, 3), (3, 3), (2, 4), (3, 4)])
def test_pass_at_k_is_the_gradient_of_the_best_of_k_divided_by_k(k, size):
    """By enumeration of all groups of a policy over three answers."""
    worth, logits = [0.0, 0.4, 1.0], torch.tensor([0.3, -0.2, -0.7]).requires_grad_()
    logprobs = logits.log_softmax(0)
    total = torch.zeros(())
    for answers in product(range(3), repeat=size):
        advantages = PassAtK(k=k)(torch.tensor([worth[a] for a in answers]), torch.zeros(size, dtype=torch.long))
        own = logprobs[list(answers)]
        total = total + own.sum().exp().detach() * (advantages * own).mean()
    best = sum(logprobs[list(a)].sum().exp() * max(worth[each] for each in a) for a in product(range(3), repeat=k))
    found, stated = torch.autograd.grad(total, logits, retain_graph=True), torch.autograd.grad(best / k, logits)
    torch.testing.assert_close(found, stated, **EXACT)


def test_with_k_of_the_whole_group_only_the_best_row_gets_its_lead():
    rewards, groups = torch.tensor([0.25, 3.0, 1.0, 2.0, 2.0]), torch.tensor([0, 0, 0, 1, 1])
    torch.testing.assert_close(PassAtK(k=3)(rewards, groups), torch.tensor([0.0, 2.0, 0, 0, 0]), **EXACT)


def test_too_few_wrong_rows_leave_nothing_to_add():
    groups = torch.zeros(4, dtype=torch.long)
    assert PassAtK(k=3)(torch.tensor([1.0, 1.0, 1.0, 0.0]), groups).tolist() == [0, 0, 0, 0]
    # two wrong: the one set of two others without a right one, of 3
    torch.testing.assert_close(PassAtK(k=3)(torch.tensor([1.0, 1.0, 0.0, 0.0]), groups), torch.tensor([1, 1, 0, 0]) / 3)


def test_a_missing_reward_is_no_member():
    rewards, groups = torch.tensor([0.0, 1.0, torch.nan, 0.0]), torch.zeros(4, dtype=torch.long)
    assert PassAtK(k=3)(rewards, groups).tolist() == [0, 1, 0, 0]


def test_a_large_group_neither_overflows_nor_loses_digits():
    rewards = torch.cat([torch.zeros(256), torch.ones(256)])
    found = PassAtK(k=64)(rewards, torch.zeros(512, dtype=torch.long))
    # A right row is the best alone when all 63 others are among the 256 wrong: a product of 63 quotients.
    chance = 1.0
    for taken in range(63):
        chance *= (256 - taken) / (511 - taken)
    torch.testing.assert_close(found, chance * rewards, rtol=1e-10, atol=0.0)
    single = PassAtK(k=64)(rewards.float(), torch.zeros(512, dtype=torch.long))
    torch.testing.assert_close(single.double(), found, rtol=1e-4, atol=0.0)


def test_best_of_one_is_refused():
    with pytest.raises(ValidationError, match="k"):
        PassAtK(k=1)
