"""Mistakes of distillation recipes, and what the loop does with rows that come with their teacher's scores."""

from dataclasses import replace

import pytest
from pydantic import ValidationError
from rich.console import Console

from grpo_kit import (
    Clip,
    DivergenceMask,
    GroupMean,
    PolicyGradient,
    RecipeError,
    Reinforce,
    ReverseKL,
    SequenceRatio,
    TeacherLogRatio,
    read_recipe,
    train,
)
from grpo_kit.buffers import Refresh
from grpo_kit.run.buffering import fill_buffer, idle_policies
from grpo_kit.run.interrupt import Interrupt
from grpo_kit.run.setup import load_inputs, load_policies, prompt_stream

TERM = "learners.small.terms.distillation"
MISTAKES = {
    "its own teacher": ("opd", [f"{TERM}.advantage.teacher=small"], "its teacher is 'small' itself"),
    "rewards that nothing sees": ("opd", ["learners.small.rewards={correctness=1}"], "no term of this learner reads"),
    "data rows for a policy gradient": (
        "gkd",
        ["learners.small.terms.pg={kind='policy_gradient', advantage={kind='teacher_log_ratio', teacher='large'}, "
         "surrogate={kind='reinforce'}, where={rows='data'}}"],
        "terms.pg.where.rows: the term needs rows that a policy wrote",
    ),
    "sampled rows where all are": (
        "kdrl",
        ["learners.small.terms.teacher.where={rows='sampled'}"],
        "terms.teacher.where.rows: all rows that it could apply to are sampled",
    ),
    "a live advantage by component": (
        "kdrl",
        ["learners.small.terms.policy.advantage={kind='per_component', "
         "advantage={kind='teacher_log_ratio', teacher='large'}}"],
        "looks at no reward",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name):
    recipe, settings, message = MISTAKES[name]
    with pytest.raises(RecipeError, match=message):
        read_recipe(recipe, settings=settings)
    read_recipe(recipe)


def test_a_control_variate_needs_tokens_that_are_taken_one_by_one():
    controlled = TeacherLogRatio(teacher="large", control_variate=ReverseKL())
    with pytest.raises(ValidationError, match="control_variate needs whole distributions"):
        PolicyGradient(advantage=controlled, surrogate=Clip(), ratio=SequenceRatio())
    PolicyGradient(advantage=controlled, surrogate=Clip())
    PolicyGradient(advantage=TeacherLogRatio(teacher="large"), surrogate=Clip(), ratio=SequenceRatio())


def test_a_correction_cannot_look_at_a_live_advantage_before_there_is_one():
    mask = DivergenceMask(level="token", high=0.1, only_negative=True, at="scoring")
    with pytest.raises(ValidationError, match="set at = 'update'"):
        PolicyGradient(advantage=TeacherLogRatio(teacher="large"), surrogate=Reinforce(), correction=mask)
    PolicyGradient(advantage=GroupMean(), surrogate=Reinforce(), correction=mask)
    live = replace(mask, at="update")
    PolicyGradient(advantage=TeacherLogRatio(teacher="large"), surrogate=Reinforce(), correction=live)


def test_more_of_the_likeliest_tokens_than_there_are_is_a_mistake():
    setting = "learners.small.terms.teacher.divergence.top_k={k=%d}"
    with pytest.raises(RecipeError, match="top_k of 'large': 20 of a vocabulary of 19"):
        load_inputs(read_recipe("dgrpo", settings=[setting % 20]))
    load_inputs(read_recipe("dgrpo", settings=[setting % 19]))


def replayed(folder, *settings, **changes):
    """A short run on rows of a buffer: its policies and the metrics of its steps."""
    short = ("steps=3", "prompts_per_step=4", "data.rows=16", "evaluation.questions=1")
    recipe = read_recipe("semi_opd", settings=[*short, *settings])
    recipe = replace(recipe, sampler=replace(recipe.sampler, buffer=str(folder), **changes))
    inputs = load_inputs(recipe)
    fill_buffer(recipe, inputs, load_policies(recipe), console=Console(quiet=True), interrupt=Interrupt())
    policies = load_policies(recipe, idle=idle_policies(recipe, inputs))
    return policies, [report.metrics for report in train(recipe, policies, prompt_stream(recipe, inputs))]


def test_the_teacher_is_not_there_when_all_its_scores_are(tmp_path):
    policies, _ = replayed(tmp_path)
    assert list(policies) == ["small"]


def test_a_teacher_is_scored_at_every_step_where_the_buffer_has_less_than_is_read(tmp_path):
    replayed(tmp_path)  # its log-probabilities of the rows are there now
    full = f"{TERM}={{kind='divergence', to='large', divergence={{kind='reverse_kl'}}}}"
    policies, metrics = replayed(tmp_path, full)
    assert list(policies) == ["small", "large"]
    assert all(line["learner/small/distillation/loss"] > 1e-3 for line in metrics)


def test_the_loop_lets_the_buffer_be_written_anew(tmp_path):
    _, metrics = replayed(tmp_path, refresh=Refresh(every=1))
    assert [line["sampler/refreshed"] for line in metrics] == [0.0, 1.0, 1.0]


def test_a_follower_is_not_given_the_scores_of_a_frozen_policy_of_its_name(tmp_path):
    replayed(tmp_path)  # 'large' is the large model there
    follower = "policies.large={follows='small', every=100}"
    _, metrics = replayed(tmp_path, follower, "steps=1")
    assert abs(metrics[0]["learner/small/distillation/log_ratio_of_large"]) < 1e-6


REFRESHED = {
    "no teacher to overlap with": (
        ["sampler.refresh={overlap_below=0.5, check_every=2}", "policies.large={follows='small'}"],
        "there is no teacher to overlap with",
    ),
    "rows that are soon too old": (["sampler.refresh={every=50}", "sampler.max_age=3"], "to 49"),
    "data rows behind a policy gradient": (
        ["sampler.of={kind='data_rows', policy='small', max_new_tokens=48}"],
        "'policy_gradient' needs rows that a policy wrote",
    ),
}


@pytest.mark.parametrize("name", REFRESHED)
def test_a_buffer_that_cannot_serve_is_a_mistake(name):
    settings, message = REFRESHED[name]
    with pytest.raises(RecipeError, match=message):
        read_recipe("semi_opd", settings=settings)


def test_supervised_rows_may_come_from_a_buffer():
    rows = "sampler.of={kind='data_rows', policy='small', max_new_tokens=48}"
    learned = "learners.small.terms={sft={kind='cross_entropy'}}"
    teacher = "learners.small.terms.kd={kind='divergence', to='large', divergence={kind='reverse_kl'}}"
    read_recipe("semi_opd", settings=[rows, learned, teacher])
    read_recipe("semi_opd", settings=["sampler.refresh={every=50}", "sampler.max_age=49"])


def test_a_buffer_that_cannot_be_written_is_a_mistake(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match="is no folder"):
        load_inputs(read_recipe("semi_opd", settings=[f"sampler.buffer={tmp_path / 'file'}"]))
    with pytest.raises(ValueError, match="cannot be written"):
        replayed("/proc/none")


def test_the_overlap_is_measured_on_a_small_vocabulary(tmp_path):
    _, metrics = replayed(tmp_path, refresh=Refresh(overlap_below=0.01, check_every=1))
    assert 0.4 < metrics[-1]["sampler/overlap"] < 0.8
