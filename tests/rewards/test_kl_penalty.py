"""The KL in the reward: its values, and by enumeration of a small tree of completions what it makes a learner do."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import (
    AdaptiveCoefficient,
    Behavior,
    Clip,
    Experience,
    KLPenalty,
    LeaveOneOut,
    PolicyGradient,
    Rewards,
    Sampling,
    Scores,
    SignalKey,
    Signals,
    Writer,
)
from grpo_kit.formula import plain
from grpo_kit.memory import Memory
from laws.divergences import forward_kl, reverse_kl
from laws.theorem import Tree, mask_of, task_rewards
from tolerances import CLEARLY_DIFFERENT, EXACT, THEOREM

pytestmark = pytest.mark.usefixtures("float64")
BETA = 0.6
SCORES = {"small": [[-1.0, -2.0, -3.0], [-1.0, -1.0, torch.nan]], "ref": [[-2.0, -2.5, -1.0], [-0.5, -0.5, torch.nan]]}
PENALTY = KLPenalty(policy="small", reference="ref")


def signals():
    return Signals({SignalKey(name, 0): Scores(logprobs=torch.tensor(v)) for name, v in SCORES.items()})


def test_each_token_has_the_negative_log_ratio():
    found = PENALTY(tiny.rollouts([3, 2], [0, 0]), signals())
    torch.testing.assert_close(found.values, torch.tensor([[-1.0, -0.5, 2.0], [0.5, 0.5, 0.0]]), **EXACT)
    torch.testing.assert_close(found.per_row(), torch.tensor([0.5, 1.0]), **EXACT)
    assert found.statuses == ("ok", "ok")
    assert PENALTY.reads == ("small", "ref")
    assert plain(PENALTY.formula) == "Σ_t [log π_ref(o_it) - log π_small(o_it)]"


def mixed(rows, first: str, *, temperature: float = 1.0):
    """Rows whose first token was written by somebody else."""
    writers = tuple(
        Writer(policy=name, version=0, sampling=Sampling(temperature=t))
        for name, t in ((first, temperature), ("small", 1))
    )
    writer = torch.ones_like(rows.tokens)
    writer[:, 0] = 0
    return replace(rows, behavior=Behavior(writers=writers, writer=writer, logprobs=rows.behavior.logprobs))


def test_tokens_of_another_writer_are_left_out():
    found = PENALTY(mixed(tiny.rollouts([3, 2], [0, 0]), "ref"), signals())
    torch.testing.assert_close(found.values, torch.tensor([[0.0, -0.5, 2.0], [0.0, 0.5, 0.0]]), **EXACT)


def test_no_gradient_passes():
    leaf = torch.tensor(SCORES["small"], requires_grad=True)
    given = dict(signals().scores) | {SignalKey("small", 0): Scores(logprobs=leaf)}
    assert not PENALTY(tiny.rollouts([3, 2], [0, 0]), Signals(given)).values.requires_grad


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_other_estimators_are_refused_with_the_reason(estimator):
    with pytest.raises(
        ValidationError, match=f"'{estimator}' in a reward has the gradient of.*near the reference noth"
    ):
        KLPenalty(policy="small", reference="ref", estimator=estimator)


def test_an_adaptive_factor_follows_the_kl_of_the_policys_tokens():
    reward = replace(PENALTY, adaptive=AdaptiveCoefficient(start=0.5, target=0.1))
    rows, memory = tiny.rollouts([3, 2], [0, 0]), Memory()
    plain_values = PENALTY(rows, signals()).values
    first, second = (memory.call("rewards.kl", reward, rows, signals()) for _ in range(2))
    torch.testing.assert_close(first.values, 0.5 * plain_values, **EXACT)
    # the KL is (1 + .5 - 2 - .5 - .5) / 5 = -0.3, far below the target: 20 % at most, a tenth of it a batch
    torch.testing.assert_close(second.values, 0.5 * 0.98 * plain_values, **EXACT)
    assert memory.states == {"rewards.kl": pytest.approx(0.5 * 0.98**2)}
    assert plain(reward.formula) == "β · Σ_t [log π_ref(o_it) - log π_small(o_it)]"
    assert not hasattr(PENALTY, "init")


def test_greedy_tokens_do_not_measure_the_kl():
    reward = replace(PENALTY, adaptive=AdaptiveCoefficient(start=1.0, target=1.0, clip=0.99))
    rows, memory = tiny.rollouts([3, 2], [0, 0]), Memory()
    greedy = mixed(rows, "small", temperature=0.0)
    greedy = replace(greedy, behavior=replace(greedy.behavior, writer=torch.tensor([[1, 1, 1], [0, 0, 0]])))
    assert greedy.greedy.tolist() == [False, True]
    memory.call("rewards.kl", reward, greedy, signals())
    assert memory.states["rewards.kl"] == pytest.approx(1 - 0.99 / 10)  # (1 + .5 - 2) / 3 is below 0.01
    nobody = replace(
        greedy.behavior, writers=(greedy.behavior.writers[0], replace(greedy.behavior.writers[1], policy="x"))
    )
    memory.call("rewards.kl", reward, replace(greedy, behavior=nobody), signals())
    assert memory.states["rewards.kl"] == pytest.approx(1 - 0.99 / 10)  # nothing measured


# By enumeration ------------------------------------------------------------------------------------------------------


def trees():
    return Tree(3, 3, 0), Tree(3, 3, 1)


def exact_gradient(small, ref, task, beta):
    """Of J - beta KL(small || ref), from the definitions alone."""
    of_small, of_ref = (tree.logprobs(tree.completions).sum(1) for tree in (small, ref))
    target = (of_small.exp() * (task - beta * (of_small - of_ref.detach()))).sum()
    return torch.autograd.grad(target, small.logits)[0]


def expected_gradient(advantage, group: int, vocabulary: int = 3, longest: int = 2):
    """The expectation over all groups of completions of the policy gradient with the penalty in the reward."""
    small, ref = Tree(vocabulary, longest, 0), Tree(vocabulary, longest, 1)
    chosen = list(product(range(len(small.completions)), repeat=group))
    rows = [small.completions[index] for each in chosen for index in each]
    of_small = small.logprobs(rows)
    lengths = [len(row) for row in rows]
    rollouts = tiny.rollouts(lengths, [number for number, each in enumerate(chosen) for _ in each])
    rollouts = replace(rollouts, behavior=replace(rollouts.behavior, logprobs=of_small.detach()))
    scores = {"small": of_small.detach(), "ref": ref.logprobs(rows).detach()}
    given = Signals({SignalKey(name, 0): Scores(logprobs=values) for name, values in scores.items()})
    task = task_rewards(small)
    components = {
        "task": tiny.component(task[[index for each in chosen for index in each]]),
        "kl": PENALTY(rollouts, given),
    }
    weights = {"task": 1.0, "kl": BETA}
    experience = Experience(rollouts=rollouts, signals=given, rewards=Rewards(components))
    returns = tiny.learner_rewards(rollouts, experience.rewards.total(weights), weights=weights)
    term = PolicyGradient(advantage=advantage, surrogate=Clip())
    mask = mask_of(rows, longest)
    frozen = term.freeze(experience, returns, "small", Memory())
    loss = term(Scores(logprobs=of_small), frozen, mask, mask).sum(1)
    probability = of_small.detach().sum(1).reshape(len(chosen), group).sum(1).exp().repeat_interleave(group)
    (found,) = torch.autograd.grad(-(probability * loss).sum() / group, small.logits)
    return found, exact_gradient(small, ref, task, BETA)


def no_baseline(rewards, groups):
    return rewards


def returns_to_go(rewards, groups, token_rewards):
    return token_rewards.flip(1).cumsum(1).flip(1)


def own_token_alone(rewards, groups, token_rewards):
    return token_rewards


@pytest.mark.parametrize(
    ("advantage", "group"),
    [(LeaveOneOut(), 2), (LeaveOneOut(), 3), (no_baseline, 1), (returns_to_go, 1)],
    ids=["leave_one_out-2", "leave_one_out-3", "no_baseline", "returns_to_go"],
)
def test_a_learner_maximizes_the_task_less_beta_times_the_kl(advantage, group):
    found, exact = expected_gradient(advantage, group)
    torch.testing.assert_close(found, exact, **THEOREM)


def test_credit_to_the_own_token_alone_is_another_objective():
    found, exact = expected_gradient(own_token_alone, 1)
    assert (found - exact).abs().max() > CLEARLY_DIFFERENT


def in_the_reward(small, ref, k):
    """The score-function gradient with minus the sum of an estimator as each row's reward."""
    rows = small.completions
    of_small, of_ref = small.logprobs(rows), ref.logprobs(rows).detach()
    reward = -k((of_small - of_ref).detach()).sum(1)
    probability = of_small.detach().sum(1).exp()
    return torch.autograd.grad((probability * reward * of_small.sum(1)).sum(), small.logits)[0]


def token_wise(small, ref, divergence):
    """The gradient of a divergence at each state, weighed by how often the policy comes there (held fixed)."""
    probability = small.logprobs(small.completions).detach().sum(1).exp().tolist()
    visits = dict.fromkeys(small.state, 0.0)
    for row, p in zip(small.completions, probability, strict=True):
        for t in range(len(row)):
            visits[row[:t]] += p
    total = sum(
        often * divergence(small.logits[small.state[state]], ref.logits[ref.state[state]].detach())
        for state, often in visits.items()
    )
    return torch.autograd.grad(total, small.logits)[0]


def k1(d):
    return d


def k2(d):
    return d.square() / 2


def k3(d):
    return (-d).exp() - 1 + d


def gradient_of_mean(small, ref, k):
    rows = small.completions
    of_small, of_ref = small.logprobs(rows), ref.logprobs(rows).detach()
    return torch.autograd.grad((of_small.sum(1).exp() * k(of_small - of_ref).sum(1)).sum(), small.logits)[0]


def test_the_reason_why_k2_and_k3_are_refused_is_true():
    small, ref = trees()
    kl = -exact_gradient(small, ref, 0.0, 1.0)
    torch.testing.assert_close(in_the_reward(small, ref, k1), -kl, **THEOREM)
    torch.testing.assert_close(in_the_reward(small, ref, k3), -(kl - token_wise(small, ref, forward_kl)), **THEOREM)
    stated = -(gradient_of_mean(small, ref, k2) - token_wise(small, ref, reverse_kl))
    torch.testing.assert_close(in_the_reward(small, ref, k2), stated, **THEOREM)


@pytest.mark.parametrize(("k", "power"), [(k1, 1), (k2, 2), (k3, 2)])
def test_near_the_reference_k2_and_k3_do_not_pull(k, power):
    """At a tenth of the distance the pull of k1 is a tenth, that of the others a hundredth."""
    small, ref = trees()
    away = small.logits.detach() - ref.logits.detach()
    norms = []
    for step in (1e-2, 1e-3):
        small.logits = (ref.logits.detach() + step * away).requires_grad_()
        norms.append(float(in_the_reward(small, ref, k).norm()))
    assert norms[0] / norms[1] == pytest.approx(10**power, rel=0.1)
