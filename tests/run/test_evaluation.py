"""Evaluation in a run: what its numbers mean, and that the same weights give the same ones."""

import math

import pytest
import torch

import tiny
from grpo_kit import Component, PromptSet, TransformersSampler
from grpo_kit.run.evaluation import evaluate_policy

QUESTIONS = PromptSet(ids=((2, 3), (4,), (5, 6, 7)), columns={"answer": ("a", "b", "c")}, skipped=())
SAMPLED = TransformersSampler(policy="small", samples=4, max_new_tokens=5)
GREEDY = TransformersSampler(policy="small", samples=1, max_new_tokens=5, temperature=0.0)


def report_of(values, sampled=SAMPLED):
    policy = tiny.policy(dtype=torch.float32)
    return evaluate_policy(policy, QUESTIONS, by_rows(values), sampled=sampled, greedy=GREEDY, samples=4)


def by_rows(values):
    """A reward that gives the first values to the sampled rows and the others to the greedy ones."""
    left = list(values)

    def reward(rollouts, signals):
        given = [left.pop(0) for _ in range(len(rollouts))]
        return Component(values=torch.tensor(given), statuses=("ok",) * len(given))

    return reward


def test_accuracy_greedy_and_pass_at_k_are_shares_of_the_right():
    nan = math.nan
    sampled = [*[1.0, 0.0, 0.0, 0.0], *[0.0, 0.0, 0.0, nan], *[1.0, 1.0, 0.5, 1.0]]
    report = report_of([*sampled, 1.0, 0.0, nan])
    # Shares of the questions: 1/4, 0 of 3 with a verdict, 3/4; 0.5 is not right.
    shares = torch.tensor([0.25, 0.0, 0.75])
    assert report["accuracy"] == report["pass@1"] == pytest.approx(1 / 3)
    assert report["accuracy_stderr"] == pytest.approx(float(shares.std()) / math.sqrt(3))
    assert report["greedy"] == pytest.approx(1 / 2)
    # 1 - C(3, 2) / C(4, 2) = 1/2; 0; all pairs hold a right one.
    assert report["pass@2"] == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert report["pass@4"] == 1.0  # of the two questions with four verdicts
    assert report["missing"] == pytest.approx(1 / 12)
    assert 1 <= report["length"] <= 5
    assert 0 < report["entropy"] < math.log(tiny.VOCABULARY)


def test_the_same_weights_give_the_same_numbers():
    reports = [report_of([0.0] * 15) for _ in "ab"]
    assert reports[0] == reports[1]


def test_a_question_without_any_verdict_is_left_out():
    nan = math.nan
    report = report_of([*[1.0] * 4, *[nan] * 4, *[1.0] * 4, 1.0, nan, 1.0])
    assert report["accuracy"] == report["pass@4"] == report["greedy"] == 1.0
    assert report["accuracy_stderr"] == 0.0
    assert report["missing"] == pytest.approx(1 / 3)


def test_any_sampler_that_fits_the_interface_will_do():
    def sampler(prompts, policies, generator):
        return SAMPLED(prompts, policies, generator)

    assert report_of([1.0] * 15, sampler) == report_of([1.0] * 15)
