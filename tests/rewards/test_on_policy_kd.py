"""The distillation reward."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import Behavior, OnPolicyKD, Sampling, Scores, SignalKey, Signals, Writer
from tolerances import EXACT

SIGNALS = {"teacher": [[-1.0, -2.0, -3.0], [-1.0, -1.0, -9.0]], "student": [[-2.0, -2.5, -1.0], [-0.5, -0.5, -9.0]]}


def signals():
    return Signals({SignalKey(name, 0): Scores(logprobs=torch.tensor(v)) for name, v in SIGNALS.items()})


@pytest.mark.usefixtures("float64")
def test_on_policy_kd_is_the_sum_of_log_ratios_over_n():
    rows = tiny.rollouts([3, 2], [0, 0], writer="student")
    sums = torch.tensor([1.0 + 0.5 - 2.0, -0.5 - 0.5])
    kd = {"teacher": "teacher", "student": "student", "alpha": 2.0}
    torch.testing.assert_close(OnPolicyKD(**kd, length=8)(rows, signals()).values, 2 / 8 * sums, **EXACT)
    by_row = OnPolicyKD(**kd, length_norm="sequence")(rows, signals()).values
    torch.testing.assert_close(by_row, 2 * sums / torch.tensor([3.0, 2.0]), **EXACT)
    assert OnPolicyKD(**kd, length=8).reads == ("teacher", "student")


@pytest.mark.usefixtures("float64")
def test_on_policy_kd_leaves_the_teachers_own_tokens_out():
    rows = tiny.rollouts([3, 2], [0, 0])
    writers = tuple(Writer(policy=name, version=0, sampling=Sampling()) for name in ("student", "teacher"))
    hinted = Behavior(writers=writers, writer=torch.tensor([[1, 0, 0], [1, 1, 0]]), logprobs=rows.behavior.logprobs)
    rows = replace(rows, behavior=hinted)
    kd = {"teacher": "teacher", "student": "student"}
    torch.testing.assert_close(
        OnPolicyKD(**kd, length=4)(rows, signals()).values, torch.tensor([(0.5 - 2.0) / 4, 0.0]), **EXACT
    )
    by_row = OnPolicyKD(**kd, length_norm="sequence")(rows, signals()).values
    torch.testing.assert_close(by_row, torch.tensor([(0.5 - 2.0) / 2, 0.0]), **EXACT)


def test_on_policy_kd_passes_no_gradient():
    leaf = torch.tensor(SIGNALS["teacher"], requires_grad=True)
    given = dict(signals().scores) | {SignalKey("teacher", 0): Scores(logprobs=leaf)}
    rows = tiny.rollouts([3, 2], [0, 0], writer="student")
    assert not OnPolicyKD(teacher="teacher", student="student", length=4)(rows, Signals(given)).values.requires_grad


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs length"),
        ({"length_norm": "sequence", "length": 4}, "does not use length"),
        ({"alpha": -1.0, "length": 4}, "alpha"),
        ({"length": 0}, "length"),
    ],
)
def test_on_policy_kd_refuses_idle_and_wrong_options(settings, message):
    with pytest.raises(ValidationError, match=message):
        OnPolicyKD(teacher="t", student="s", **settings)
