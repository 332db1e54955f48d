"""Right, wrong and unknown: what evaluation makes of a reward."""

import math

import torch

import tiny
from grpo_kit import Component
from grpo_kit.evaluation.estimates import Tally
from grpo_kit.evaluation.verdicts import Verdict, judge, tally


def giving(values, statuses):
    return lambda rollouts, signals: Component(values=torch.tensor(values), statuses=tuple(statuses))


def test_only_one_is_right_and_a_missing_reward_is_not_wrong():
    reward = giving([1.0, 0.5, 0.0, math.nan], ["ok", "ok", "no_answer", "timeout"])
    found = judge(reward, tiny.with_texts(["a", "b", "c", "d"]))
    assert found == [Verdict(1.0, "ok"), Verdict(0.0, "ok"), Verdict(0.0, "no_answer"), Verdict(None, "timeout")]


def test_rewards_a_token_are_summed_over_the_row():
    rows = tiny.rollouts([2, 1], [0, 1])
    reward = giving([[0.5, 0.5], [0.5, 0.0]], ["ok", "ok"])
    assert [verdict.right for verdict in judge(reward, rows)] == [1.0, 0.0]


def test_the_rows_of_a_question_follow_each_other():
    verdicts = [Verdict(value, "ok") for value in (1.0, 0.0, None, 1.0, 1.0, 1.0)]
    assert tally(verdicts, 3) == [Tally(1, 2), Tally(3, 3)]
    assert tally(verdicts, 1) == [Tally(1, 1), Tally(0, 1), Tally(0, 0), Tally(1, 1), Tally(1, 1), Tally(1, 1)]
