"""Which two policies are compared, and what is recommended."""

import re
from dataclasses import dataclass, replace

import pytest
import torch

from grpo_kit import PolicySpec, read_recipe
from grpo_kit.batch import Rollouts
from grpo_kit.overlap.advice import advise
from grpo_kit.overlap.choice import choose
from grpo_kit.overlap.measure import Measured
from grpo_kit.overlap.ratio import Comparison
from grpo_kit.overlap.result import conclude
from grpo_kit.rewards import OnPolicyKD

CODISTILL = read_recipe("codistill")


@dataclass(frozen=True)
class Replay:
    """A sampler that replays what another one wrote."""

    of: object

    def __call__(self, prompts, policies, generator) -> Rollouts: ...


def with_third(**spec):
    """codistill with a third policy, which the small one's learner distills from, too."""
    third = OnPolicyKD(teacher="third", student="small", length=48)
    policies = {**CODISTILL.policies, "third": PolicySpec(**spec)}
    learners = {**CODISTILL.learners}
    learners["small"] = replace(learners["small"], rewards={**learners["small"].rewards, "third": 1.0})
    return replace(CODISTILL, policies=policies, learners=learners, rewards={**CODISTILL.rewards, "third": third})


def test_the_student_samples_and_its_learner_names_the_teacher():
    assert choose(CODISTILL) == ("small", "large", CODISTILL.sampler, ("small",))


def test_a_sampler_that_replays_gives_the_one_that_wrote():
    assert choose(replace(CODISTILL, sampler=Replay(of=CODISTILL.sampler))).sampler == CODISTILL.sampler


def test_the_only_frozen_policy_is_the_teacher():
    assert choose(with_third(model="tiny:large")).teacher == "third"


def test_of_a_mixture_the_sampler_of_the_student_is_taken():
    recipe = read_recipe("gkd")
    assert choose(recipe) == ("small", "large", recipe.sampler.of[0].sampler, ("small",))


@pytest.mark.parametrize(
    ("recipe", "named", "said"),
    [
        (
            CODISTILL,
            {"student": "smal"},
            "--student smal: no such policy. Did you mean 'small'? There are small, ",
        ),
        (CODISTILL, {"teacher": "x"}, "--teacher x: no such policy. There are small, large."),
        (CODISTILL, {"teacher": "small"}, "student and teacher are both 'small', so that their overlap is 1. Name two"),
        (
            CODISTILL,
            {"student": "large"},
            "the learner of 'large' reads no policy but itself, so that the teacher is unknown. Give --teacher: small.",
        ),
        (
            with_third(follows="small"),
            {},
            "the learner of 'small' reads several others: large, third, so that the teacher is unknown. Give "
            "--teacher: large or third.",
        ),
        (
            with_third(follows="small"),
            {"teacher": "third"},
            "policy 'third' starts as a copy of 'small', so that their overlap is 1 at the start.",
        ),
        (read_recipe("grpo"), {}, "the recipe has one policy, 'small', and nothing to compare it with. Add a teacher."),
        (read_recipe("sft"), {}, "no policy writes rollouts in this recipe: all rows are those of a data set."),
        (
            replace(CODISTILL, sampler=lambda prompts, policies, generator: None),
            {},
            "the sampler does not say who writes. Give --student: small or large.",
        ),
    ],
)
def test_what_cannot_be_told_is_asked(recipe, named, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        choose(recipe, **named)


def found(overlap, *, log_ratio=0.0, at_end=None, cut=0, prompts=100):
    """A result of prompts with a completion of ten tokens each; `at_end` is the log-ratio of the last ones."""
    tokens = prompts * 10
    values = torch.full((len(Comparison._fields), tokens), 0.9, dtype=torch.float64)
    values[Comparison._fields.index("overlap")] = overlap
    values[Comparison._fields.index("log_ratio")] = log_ratio
    values[Comparison._fields.index("log_ratio"), 9::10] = log_ratio if at_end is None else at_end
    measured = Measured(
        values=Comparison(*values),
        prompts=torch.arange(prompts).repeat_interleave(10),
        positions=torch.arange(10).repeat(prompts),
        lengths=torch.full((prompts,), 10),
        stop_reasons=("length",) * cut + ("eos",) * (prompts - cut),
    )
    return conclude(measured, student="s", teacher="t", k=4, vocabulary=19)


def test_positions_are_binned_by_doubling():
    bins = found(0.5).by_position
    assert [(each.first, each.last, each.tokens) for each in bins] == [
        (1, 1, 100),
        (2, 2, 100),
        (3, 4, 200),
        (5, 8, 400),
        (9, 10, 200),
    ]
    assert all(each.prompts == 100 for each in bins)


@pytest.mark.parametrize(
    ("result", "threshold", "choice", "said"),
    [
        (found(0.9), 0.75, "OPD", "the overlap 0.900 is above the threshold 0.75: the student already proposes"),
        (found(0.9), 0.95, "Semi-OPD", "the overlap 0.900 is below the threshold 0.95: rollouts written once by"),
        (found(0.74, prompts=9), 0.75, "undecided", "the 95 % interval of the overlap, "),
        (found(0.5, cut=25), 0.75, "undecided", "the overlap 0.500 is below the threshold 0.75, which speaks for Semi"),
        (found(0.5, cut=24), 0.75, "Semi-OPD", ""),
        (found(0.5, log_ratio=-1.0), 0.75, "undecided", "the overlap 0.500 is below"),
        (found(0.5, log_ratio=-0.99), 0.75, "Semi-OPD", ""),
        (found(0.9, log_ratio=-3.0), 0.75, "OPD", ""),
    ],
)
def test_the_recommendation(result, threshold, choice, said):
    advice = advise(result, threshold)
    assert advice.choice == choice
    assert advice.reason.startswith(said)


def test_a_teacher_that_does_not_end_where_the_student_does_is_warned_of():
    result = found(0.5, at_end=-3.0, cut=10)
    assert result.log_ratio_at_end.value == -3.0  # of 90 completions; those that were cut end nowhere
    advice = advise(result)
    assert advice.choice == "Semi-OPD"  # no sign of a weak student
    (warning,) = advice.warnings
    assert warning.startswith("'t' hardly ever ends where 's' does: -3.00 nats of log teacher / student at the tokens")
    assert advise(found(0.5, at_end=-2.99)).warnings == ()
    assert found(0.5, cut=100).log_ratio_at_end is None


def test_the_tokens_that_end_a_rollout_are_the_last_of_those_that_ended_by_themselves():
    measured = Measured(
        values=Comparison(*torch.zeros(len(Comparison._fields), 6, dtype=torch.float64)),
        prompts=torch.tensor([0, 0, 0, 1, 1, 2]),
        positions=torch.tensor([0, 1, 2, 0, 1, 0]),
        lengths=torch.tensor([3, 0, 2, 1]),
        stop_reasons=("eos", "eos", "length", "eos"),
    )
    assert measured.ends.tolist() == [2, 5]


def test_signs_of_a_weak_student_are_warned_of():
    assert advise(found(0.9)).warnings == ()
    assert advise(found(0.9, cut=30, log_ratio=-1.5)).warnings == (
        "30.0% of the rollouts were cut at the length limit. Raise max_new_tokens, or the student does not know how to "
        "end.",
        "'t' gives the rollouts very low probability: -1.50 nats a token against that of 's'.",
    )
    assert found(0.9, cut=30).cut == 0.3


def test_nothing_written_is_nothing_to_compare():
    empty = torch.zeros(0, dtype=torch.long)
    values = Comparison(*torch.zeros((len(Comparison._fields), 0), dtype=torch.float64))
    measured = Measured(
        values=values, prompts=empty, positions=empty, lengths=torch.zeros(1).long(), stop_reasons=("eos",)
    )
    with pytest.raises(ValueError, match="no completion has a token, so there is nothing to compare"):
        conclude(measured, student="s", teacher="t", k=4, vocabulary=19)
