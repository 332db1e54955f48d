"""Numbers to look at: their values on hand-made inputs."""

import math

import pytest
import torch

import tiny
from grpo_kit import (
    CISPO,
    DPPO,
    GMPO,
    SAPO,
    AdamW,
    Clip,
    Component,
    DivergenceMask,
    EqualTokens,
    Experience,
    GroupMean,
    ImportanceWeight,
    Learner,
    PolicyGradient,
    Product,
    Reinforce,
    Rewards,
    Scores,
    Signals,
    TeacherLogRatio,
    diagnostics,
)
from grpo_kit.learner_batch import LearnerBatch

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


def test_chi_square():
    log_weights, mask = torch.tensor([[1.0, 3.0, 99.0]]).log(), torch.tensor([[True, True, False]])
    assert diagnostics.chi_square(log_weights, mask) == pytest.approx((1 + 9) / 2 - 1)


def test_a_low_sample_size_is_named_once():
    sizes = {"learner/a/policy/effective_sample_size": 0.09, "learner/b/policy/effective_sample_size": 0.04}
    said = diagnostics.low_sample_size({**sizes, "learner/a/policy/raw_effective_sample_size": 0.001})
    assert said.startswith("learner/b/policy/effective_sample_size is 0.040, below 0.1: few tokens decide")
    assert diagnostics.low_sample_size(dict.fromkeys(sizes, diagnostics.LOW_SAMPLE_SIZE)) is None
    assert diagnostics.low_sample_size({"learner/a/policy/raw_effective_sample_size": 0.001}) is None


def test_flat_groups():
    rewards, groups = torch.tensor([1.0, 1.0, 0.0, 1.0, torch.nan, 2.0]), torch.tensor([0, 0, 1, 1, 2, 2])
    assert diagnostics.flat_groups(rewards, groups) == pytest.approx(2 / 3)


def test_of_sampling_reports_sampled_lengths():
    found = diagnostics.of_sampling(tiny.rollouts([4, 10, 1], [0, 0, 0]))
    assert found["sampler/length_mean"] == 5.0
    assert found["sampler/length_max"] == 10.0
    assert found["sampler/stop_length"] == pytest.approx(1 / 3)
    assert found["sampler/stop_eos"] == pytest.approx(2 / 3)


PARTS = {"advantage": GroupMean(), "surrogate": Clip()}


def batch_of(rows, frozen, counted=None) -> LearnerBatch:
    """Rows with what a term has fixed of them; all their tokens count unless said otherwise."""
    counted = rows.mask if counted is None else counted
    return LearnerBatch(
        rollouts=rows,
        numbers=tuple(range(len(rows))),
        counted=counted,
        applies={"policy": counted},
        frozen={"policy": frozen},
    )


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
    term = learner(correction=ImportanceWeight()).terms["policy"]
    found = diagnostics.of_term("t", "policy", term, torch.zeros(2, 2) + math.log(3), batch_of(rows, frozen))
    assert all(math.isfinite(value) for value in found.values())
    assert found["t/ratio_mean"] == pytest.approx(3.0)
    assert found["t/log_ratio_to_behavior"] == pytest.approx(math.log(6))
    assert found["t/rows_without_advantage"] == 0.5
    assert found["t/clip_fraction"] == 1.0
    assert found["t/effective_sample_size"] == pytest.approx(1.0)
    assert found["t/log_weight_token"] == pytest.approx(math.log(2))
    assert found["t/log_weight_row"] == pytest.approx(1.5 * math.log(2))  # rows of 2 and 1 tokens


def of_term(term, *, log_ratio, advantages, gap=0.0):
    """The metrics of a term on one row of tokens with these log-ratios to the anchor."""
    rows = tiny.rollouts([log_ratio.shape[1]], [0])
    anchor = torch.full_like(log_ratio, -3.0)
    frozen = {"advantages": advantages, "anchor": anchor, "behavior": anchor - gap}
    if term.correction is not None and not getattr(term.correction, "at_update", False):
        frozen["correction"] = term.correction(anchor - frozen["behavior"], rows.mask)
    if term.anchor == "behavior":
        frozen["anchor"] = frozen["behavior"]
    return diagnostics.of_term("t", "policy", term, anchor + log_ratio, batch_of(rows, frozen))


@pytest.mark.parametrize(
    "surrogate", [Clip(cap=5.0), GMPO(), DPPO(high=0.05, low=0.01), CISPO(bound="relative", low=0.3, high=0.3)], ids=str
)
def test_clip_fraction_is_of_the_tokens_with_an_advantage(surrogate):
    log_ratio = torch.tensor([[1.5, 1.5, -0.5, -0.5, 0.0, 1.5, 2.0]])
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0, 0.0, -1.0]])
    clipped = {
        "clip": 3,  # up with A > 0, down with A < 0, and e^2 above the cap
        "gmpo": 2,
        "dppo": 2,  # e^-3 (e^1.5 - 1) = 0.17 above 0.05, e^-3 (1 - e^-0.5) = 0.02 above 0.01
        "cispo": 5,  # e^1.5, e^2 above 1.3, e^-0.5 below 0.7, whatever the advantage
    }[surrogate.kind]
    term = PolicyGradient(advantage=GroupMean(), surrogate=surrogate)
    found = of_term(term, log_ratio=log_ratio, advantages=advantages)
    assert found["t/clip_fraction"] == pytest.approx(clipped / 6)  # one of seven has no advantage


def test_a_surrogate_that_clips_nothing_has_no_clip_fraction():
    for surrogate in (Reinforce(), SAPO()):
        term = PolicyGradient(advantage=GroupMean(), surrogate=surrogate)
        found = of_term(term, log_ratio=torch.ones(1, 2), advantages=torch.ones(1, 2))
        assert "t/clip_fraction" not in found


def test_the_gap_to_the_writer_is_there_without_a_correction():
    gap, ones = torch.tensor([[0.5, -1.0]]), torch.ones(1, 2)
    found = of_term(learner().terms["policy"], log_ratio=0.1 * ones, advantages=ones, gap=gap)
    assert found["t/gap_mean"] == pytest.approx(0.75)
    assert found["t/gap_max"] == 1.0
    assert found["t/gap_kl"] == pytest.approx((math.exp(0.5) - 1.5 + math.exp(-1)) / 2)  # e^x - 1 - x
    assert "t/effective_sample_size" not in found
    # With the writer as anchor it is the current policy's: 0.1 above the proximal one, which is the gap above it.
    found = of_term(learner(anchor="behavior").terms["policy"], log_ratio=0.1 * ones, advantages=ones, gap=gap)
    assert found["t/gap_max"] == pytest.approx(0.9)


def test_weights_before_and_after_the_bounds():
    raw, ones = torch.tensor([[4.0, 1.0]]), torch.ones(1, 2)
    found = of_term(
        learner(correction=ImportanceWeight()).terms["policy"], log_ratio=ones, advantages=ones, gap=raw.log()
    )
    assert found["t/raw_effective_sample_size"] == pytest.approx(5**2 / 17 / 2)
    assert found["t/raw_chi_square"] == pytest.approx((16 + 1) / 2 - 1)
    assert found["t/effective_sample_size"] == pytest.approx(3**2 / 5 / 2)  # 2 and 1
    assert found["t/correction_mean"] == pytest.approx(1.5)
    assert found["t/kept_tokens"] == found["t/kept_rows"] == 1.0
    of_rows = learner(correction=ImportanceWeight(level="sequence", action="mask")).terms["policy"]
    found = of_term(of_rows, log_ratio=ones, advantages=ones, gap=raw.log())
    assert found["t/raw_effective_sample_size"] == pytest.approx(1.0)  # 4 and 4
    assert found["t/raw_chi_square"] == pytest.approx(15.0)
    assert found["t/kept_tokens"] == found["t/kept_rows"] == found["t/effective_sample_size"] == 0.0


def test_a_weight_too_large_for_its_type_leaves_the_sample_size_finite():
    far = torch.tensor([[400.0, 0.0]])
    term = learner(correction=ImportanceWeight()).terms["policy"]
    found = of_term(term, log_ratio=torch.zeros(1, 2), advantages=torch.ones(1, 2), gap=far)
    assert found["t/raw_effective_sample_size"] == pytest.approx(0.5)
    assert found["t/raw_chi_square"] == math.inf


def test_what_is_decided_at_an_update_counts_with_the_current_policy():
    both = Product(of=(ImportanceWeight(), DivergenceMask(level="token", metric="k1", high=0.5, at="update")))
    rows = tiny.rollouts([2, 1], [0, 0])
    zeros = torch.zeros(2, 2)
    frozen = {"advantages": zeros + 1, "anchor": zeros, "behavior": zeros - math.log(1.5), "correction": zeros + 1.5}
    current = torch.tensor([[0.0, -1.0], [-1.0, 0.0]])  # -1 is 1 - log 1.5 = 0.59 below the writer
    term = learner(correction=both).terms["policy"]
    found = diagnostics.of_term("t", "policy", term, current, batch_of(rows, frozen))
    assert found["t/kept_tokens"] == pytest.approx(1 / 3)
    assert found["t/kept_rows"] == 0.5
    assert found["t/correction_mean"] == pytest.approx(1.5 / 3)
    assert found["t/raw_effective_sample_size"] == pytest.approx(1.0)


def test_of_term_says_nothing_when_nothing_counts():
    rows = tiny.rollouts([2], [0])
    batch = batch_of(rows, {}, counted=torch.zeros(1, 2, dtype=torch.bool))
    assert diagnostics.of_term("t", "policy", learner().terms["policy"], torch.zeros(1, 2), batch) == {}


def test_the_log_ratio_of_a_teacher_is_shown_and_an_anchor_that_nobody_looks_at_is_not():
    rows = tiny.rollouts([2, 1], [0, 0])
    current = torch.tensor([[-1.0, -2.0], [-3.0, torch.nan]])
    teacher = Scores(logprobs=torch.tensor([[-0.5, -3.0], [-1.0, torch.nan]]))
    frozen = {"advantages": torch.zeros(2, 2), "behavior": current - 0.25, "teacher/large": teacher}
    term = PolicyGradient(advantage=TeacherLogRatio(teacher="large"), surrogate=Reinforce())
    found = diagnostics.of_term("t", "policy", term, current, batch_of(rows, frozen))
    assert found["t/log_ratio_of_large"] == pytest.approx((0.5 - 1 + 2) / 3)
    assert found["t/advantage_abs"] == pytest.approx((0.5 + 1 + 2) / 3)
    assert found["t/log_ratio_to_behavior"] == pytest.approx(0.25)
    assert found["t/rows_without_advantage"] == 0.0
    assert "t/ratio_mean" not in found


def test_a_correction_decided_at_an_update_sees_the_live_advantage():
    """Off-policy sequence masking drops tokens whose advantage is negative, far from the writer: here the second."""
    mask = DivergenceMask(level="token", metric="k1", high=0.5, at="update", only_negative=True)
    term = PolicyGradient(advantage=TeacherLogRatio(teacher="large"), surrogate=Reinforce(), correction=mask)
    rows, zeros = tiny.rollouts([2], [0]), torch.zeros(1, 2)
    frozen = {"advantages": zeros, "anchor": zeros - 1, "behavior": zeros, "correction": zeros + 1}
    frozen["teacher/large"] = Scores(logprobs=torch.tensor([[-0.5, -1.5]]))
    found = diagnostics.of_term("t", "policy", term, zeros - 1, batch_of(rows, frozen))
    assert found["t/kept_tokens"] == 0.5
