"""Adaptive coefficients through the loop: what the metrics say is what the rows were weighed by."""

from dataclasses import replace

import pytest
import torch

import tiny
from grpo_kit import (
    AdaptiveCoefficient,
    DivergenceTerm,
    KLPenalty,
    PolicySpec,
    PromptSet,
    PromptStream,
    Python,
    RefillSpec,
    SampledKL,
    train,
)
from tiny_recipe import TERM, learner, letters, recipe

ADAPTIVE = AdaptiveCoefficient(start=0.5, target=1e-3, horizon=1.0)


def reports(**changes):
    kl = DivergenceTerm(to="reference", divergence=SampledKL(), adaptive=ADAPTIVE)
    settings = {
        "steps": 3,
        "policies": {"small": PolicySpec(model="tiny:small"), "reference": PolicySpec(model="tiny:large")},
        "rewards": {
            "task": Python(function=letters),
            "kl": KLPenalty(policy="small", reference="reference", adaptive=ADAPTIVE),
        },
        "learners": {"small": learner(rewards={"task": 1.0, "kl": 1.0}, terms={"policy": TERM, "kl": kl})},
    }
    given = recipe(**settings | changes)
    policies = {name: tiny.policy(name, seed=seed, dtype=torch.float32) for seed, name in enumerate(given.policies)}
    prompts = PromptSet(ids=tuple((2 + i, 3 + i) for i in range(8)), columns={}, skipped=())
    return list(train(given, policies, PromptStream(prompts, seed=0)))


def test_the_coefficients_of_each_batch_are_in_its_metrics():
    """Both KLs are far above the target: the coefficient rises by its clip of 0.2 a batch."""
    found = reports()
    for step, report in enumerate(found):
        assert report.metrics["learner/small/kl/coefficient"] == pytest.approx(0.5 * 1.2**step)
        assert report.metrics["coefficient/kl"] == pytest.approx(0.5 * 1.2**step)
        assert report.metrics["learner/small/kl/kl"] > 1e-3
        own, other = (report.experience.signals[name].logprobs for name in ("small", "reference"))
        values = report.experience.rewards.components["kl"].values
        mask = report.experience.rollouts.mask
        torch.testing.assert_close(values[mask], (0.5 * 1.2**step * (other - own))[mask])


def test_all_rounds_of_a_refill_see_one_coefficient():
    wanted = []

    def third_round_only(rewards, groups):
        wanted.append(len(wanted))
        return torch.full_like(groups, len(wanted) % 3 == 0, dtype=torch.bool)

    found = reports(refill=RefillSpec(rule=third_round_only, rewards={"task": 1.0}, tries=3))
    assert [report.metrics["sampler/rounds"] for report in found] == [3, 3, 3]
    assert [report.metrics["coefficient/kl"] for report in found] == pytest.approx([0.5, 0.6, 0.72])


def test_without_an_adaptive_part_there_is_no_coefficient():
    plain = replace(KLPenalty(policy="small", reference="reference"))
    found = reports(steps=1, rewards={"task": Python(function=letters), "kl": plain})
    assert not any(key.startswith("coefficient/") for key in found[0].metrics)
