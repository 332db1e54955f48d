"""Numbers to look at: their values on hand-made inputs."""

import math

import pytest
import torch

import tiny
from grpo_kit import (
    AdamW,
    Clip,
    Component,
    EqualTokens,
    Experience,
    GroupMean,
    ImportanceWeight,
    Learner,
    PolicyGradient,
    Rewards,
    Signals,
    diagnostics,
)
from grpo_kit.objective import Batch

pytestmark = pytest.mark.usefixtures("float64")


def test_mean_leaves_missing_values_out():
    assert diagnostics.mean(torch.tensor([1.0, torch.nan, 3.0])) == 2.0
    assert math.isnan(diagnostics.mean(torch.tensor([torch.nan])))


def test_effective_sample_size():
    mask = torch.tensor([[True, True], [True, False]])
    assert diagnostics.effective_sample_size(torch.ones(2, 2), mask) == 1.0
    # one of three tokens has all the weight: (1)^2 / 1 / 3
    assert diagnostics.effective_sample_size(torch.tensor([[1.0, 0], [0, 9]]), mask) == pytest.approx(1 / 3)
    assert diagnostics.effective_sample_size(torch.zeros(2, 2), mask) == 0.0


def test_clip_fraction_counts_tokens_whose_gradient_the_clip_removed():
    log_ratio = torch.tensor([[0.5, 0.5, -0.5, -0.5, 0.0, 0.5, 2.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0, 0.0, -1.0]])
    clip = Clip(cap=3.0)
    (gradient,) = torch.autograd.grad(clip(log_ratio, advantages).sum(), log_ratio)
    dropped = int(((gradient == 0) & (advantages != 0)).sum())
    assert dropped == 3  # +0.5 up, -0.5 down, and e^2 over the cap
    found = diagnostics.clip_fraction(log_ratio.detach(), advantages, torch.ones(1, 7, dtype=torch.bool), clip)
    assert found == pytest.approx(dropped / 6)  # one of seven has no advantage


def test_flat_groups():
    rewards, groups = torch.tensor([1.0, 1.0, 0.0, 1.0, torch.nan, 2.0]), torch.tensor([0, 0, 1, 1, 2, 2])
    assert diagnostics.flat_groups(rewards, groups) == pytest.approx(2 / 3)


def test_of_sampling_reports_sampled_lengths():
    found = diagnostics.of_sampling(tiny.rollouts([4, 10, 1], [0, 0, 0]), seconds=2.0)
    assert found["sampler/length_mean"] == 5.0
    assert found["sampler/length_max"] == 10.0
    assert found["time/tokens_per_second"] == 7.5  # 15 tokens in 2 s
    assert found["sampler/stop_length"] == pytest.approx(1 / 3)
    assert found["sampler/stop_eos"] == pytest.approx(2 / 3)


PARTS = {"advantage": GroupMean(), "surrogate": Clip()}


def learner(**changes) -> Learner:
    terms = {"policy": PolicyGradient(**PARTS, **changes)}
    return Learner(rewards={"task": 1.0}, terms=terms, weighting=EqualTokens(), optimizer=AdamW(lr=1e-3))


def test_of_rewards_counts_what_is_missing():
    task = Component(values=torch.tensor([1.0, 0.0, torch.nan, 1.0]), statuses=("ok", "no_answer", "timeout", "ok"))
    experience = Experience(
        rollouts=tiny.rollouts([1] * 4, [0, 0, 1, 1]), signals=Signals({}), rewards=Rewards({"task": task})
    )
    found = diagnostics.of_rewards("small", learner(), experience, torch.tensor([True, False, True, True]))
    assert found["reward/small/total"] == pytest.approx(2 / 3)
    assert found["reward/small/kept"] == 1.0
    assert found["reward/small/missing"] == 0.25
    assert found["reward/small/flat_groups"] == 1.0
    assert found["reward/small/task_timeout"] == found["reward/small/task_no_answer"] == 0.25
    assert "reward/small/task_ok" not in found


def test_of_term_ignores_what_is_masked():
    rows = tiny.rollouts([2, 1], [0, 0])
    bad = torch.tensor([[0.0, 0.0], [0.0, torch.nan]])
    frozen = {"advantages": torch.tensor([[1.0, 1.0], [0.0, 0.0]]), "anchor": bad, "behavior": bad - math.log(2)}
    frozen["correction"] = torch.tensor([[2.0, 2.0], [2.0, torch.nan]])
    batch = Batch(rollouts=rows, numbers=tuple(range(len(rows))), counted=rows.mask, frozen={"policy": frozen})
    term = learner(correction=ImportanceWeight()).terms["policy"]
    found = diagnostics.of_term("t", term, frozen, torch.zeros(2, 2) + math.log(3), batch)
    assert all(math.isfinite(value) for value in found.values())
    assert found["t/ratio_mean"] == pytest.approx(3.0)
    assert found["t/log_ratio_to_behavior"] == pytest.approx(math.log(6))
    assert found["t/rows_without_advantage"] == 0.5
    assert found["t/clip_fraction"] == 1.0
    assert found["t/effective_sample_size"] == pytest.approx(1.0)
    assert found["t/log_weight_token"] == pytest.approx(math.log(2))
    assert found["t/log_weight_row"] == pytest.approx(1.5 * math.log(2))  # rows of 2 and 1 tokens


def test_of_term_says_nothing_when_nothing_counts():
    rows = tiny.rollouts([2], [0])
    batch = Batch(rollouts=rows, numbers=(0,), counted=torch.zeros(1, 2, dtype=torch.bool), frozen={})
    assert diagnostics.of_term("t", learner().terms["policy"], {}, torch.zeros(1, 2), batch) == {}
