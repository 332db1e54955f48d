"""Terms: what they read, what they refuse, what they freeze."""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import (
    GMPO,
    Clip,
    DivergenceMask,
    DivergenceTerm,
    EntropyBonus,
    GroupMean,
    ImportanceWeight,
    PolicyGradient,
    Product,
    Reinforce,
    ReverseKL,
    SampledKL,
    Scores,
    SequenceRatio,
    Summand,
    TeacherLogRatio,
    TopK,
    WeightedSum,
    Where,
)
from grpo_kit.batch import NOBODY
from grpo_kit.detail import Detail
from grpo_kit.memory import Memory
from grpo_kit.signals import SignalKey, Signals
from tolerances import EXACT, MODEL_SUM

pytestmark = pytest.mark.usefixtures("float64")
PARTS = {"advantage": GroupMean(), "surrogate": Clip()}


def test_what_each_term_reads():
    assert PolicyGradient(**PARTS).reads("small") == ("small",)
    assert PolicyGradient(**PARTS, anchor="behavior").reads("small") == ()
    assert DivergenceTerm(to="ref", divergence=SampledKL()).reads("small") == ("ref",)
    assert EntropyBonus().reads("small") == ()
    assert EntropyBonus().needs_entropy


def test_a_correction_may_be_left_out_by_name():
    assert PolicyGradient(**PARTS, correction=None) == PolicyGradient(**PARTS)
    assert replace(PolicyGradient(**PARTS), weight=2.0).correction is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**PARTS, "anchor": "behavior", "correction": ImportanceWeight()}, "nothing to do"),
        ({**PARTS, "surrogate": Reinforce(), "ratio": SequenceRatio()}, "no ratio in its gradient"),
        ({**PARTS, "surrogate": Reinforce(), "anchor": "behavior"}, "no ratio in its gradient"),
        ({**PARTS, "anchor": "reference"}, "anchor"),
        ({**PARTS, "clip": 0.2}, "clip"),
    ],
)
def test_idle_or_unknown_options_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        PolicyGradient(**settings)


def test_the_baseline_sees_the_selected_or_the_sampled_rows():
    rows = tiny.rollouts([1, 1, 1], [0, 0, 0])
    experience = tiny.experience(rows, {}, [tiny.policy()])
    rewards, kept = torch.tensor([1.0, 0.0, 5.0]), torch.tensor([True, True, False])
    selected, sampled = (
        PolicyGradient(**PARTS, baseline=baseline).freeze(
            experience, tiny.learner_rewards(rows, rewards, kept), "small", Memory()
        )["advantages"]
        for baseline in ("selected", "sampled")
    )
    assert selected[:, 0].tolist() == [0.5, -0.5, 0.0]  # mean of 1, 0
    assert sampled[:, 0].tolist() == [-1.0, -2.0, 3.0]  # mean of 1, 0, 5


def test_the_correction_is_anchor_over_behavior_and_multiplies_the_loss():
    rows = tiny.rollouts([3, 2], [0, 0])
    experience = tiny.experience(rows, {}, [tiny.policy()])
    part = ImportanceWeight(level="prefix", high=1.3)
    term = PolicyGradient(**PARTS, correction=part)
    frozen = term.freeze(experience, tiny.learner_rewards(rows, [1.0, 0.0]), "small", Memory())
    anchor = experience.signals["small"].logprobs
    weights = part(anchor - rows.behavior.logprobs, rows.mask)
    torch.testing.assert_close(frozen["correction"], weights, **EXACT)
    plain = PolicyGradient(**PARTS)
    current = Scores(logprobs=anchor + 0.05)
    uncorrected = {name: value for name, value in frozen.items() if name != "correction"}
    torch.testing.assert_close(
        term(current, frozen, rows.mask, rows.mask),
        weights * plain(current, uncorrected, rows.mask, rows.mask),
        **EXACT,
    )


@pytest.mark.parametrize("surrogate", [Clip(), GMPO()], ids=["clip", "gmpo"])
def test_a_token_that_a_mask_drops_cannot_overflow(surrogate):
    """Its ratio may be the reason for the mask: inf x 0 in value or gradient would be NaN."""
    one = torch.ones(1, 2, dtype=torch.bool)
    frozen = {"anchor": torch.tensor([[-1e4, -1.0]]), "behavior": torch.tensor([[-1.0, -1.0]])}
    frozen |= {"advantages": torch.full((1, 2), -1.0), "correction": torch.tensor([[0.0, 1.0]])}
    current = torch.full((1, 2), -1.0, requires_grad=True)
    loss = PolicyGradient(advantage=GroupMean(), surrogate=surrogate)(Scores(logprobs=current), frozen, one, one)
    (gradient,) = torch.autograd.grad(loss.sum(), current)
    assert loss[0, 0] == gradient[0, 0] == 0
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert gradient[0, 1] > 0


@pytest.mark.parametrize("at", ["scoring", "update"])
def test_a_token_whose_weight_overflows_can_be_dropped(at):
    """A weight of e^1000 (fixed at scoring) on the one token that the mask drops, at scoring or at the update."""
    rows = tiny.rollouts([1, 1], [0, 0])
    experience = tiny.experience(rows, {}, [tiny.policy()])
    anchor = rows.behavior.logprobs + torch.tensor([[1000.0], [0.0]])
    signals = Signals({SignalKey("small", 0): Scores(logprobs=anchor)})
    factors = (ImportanceWeight(high=math.inf), DivergenceMask(level="token", high=0.5, at=at))
    term = PolicyGradient(**PARTS, correction=Product(of=factors))
    rewards = tiny.learner_rewards(rows, [1.0, 0.0])
    frozen = term.freeze(replace(experience, signals=signals), rewards, "small", Memory())
    assert frozen["correction"].tolist() == [[0.0 if at == "scoring" else math.inf], [1.0]]
    loss = term(Scores(logprobs=anchor), frozen, rows.mask, rows.mask)
    assert loss.tolist() == [[0.0], [0.5]]


def test_with_anchor_behavior_the_ratio_is_to_the_writer():
    rows = tiny.rollouts([3], [0])
    experience = tiny.experience(rows, {}, [tiny.policy()])
    term = PolicyGradient(**PARTS, anchor="behavior")
    frozen = term.freeze(experience, tiny.learner_rewards(rows, [1.0]), "small", Memory())
    assert frozen["anchor"] is rows.behavior.logprobs
    frozen = {**frozen, "advantages": torch.ones(1, 3)}
    loss = term(Scores(logprobs=rows.behavior.logprobs - 1), frozen, rows.mask, rows.mask)
    torch.testing.assert_close(loss, torch.full((1, 3), -1.0).exp() * -1, **EXACT)


def test_the_sequence_level_sees_the_whole_row_though_some_tokens_do_not_count():
    mask, counted = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[True, False]])
    frozen = {name: torch.zeros(1, 2) for name in ("anchor", "behavior")} | {"advantages": torch.ones(1, 2)}
    term = PolicyGradient(advantage=GroupMean(), surrogate=Clip(high=9.0), ratio=SequenceRatio())
    loss = term(Scores(logprobs=torch.tensor([[0.2, 0.4]])), frozen, mask, counted)
    torch.testing.assert_close(loss, torch.tensor([[-torch.tensor(0.3).exp(), 0.0]]), **EXACT)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_entropy_is_that_of_the_whole_distribution_and_so_is_its_gradient(temperature):
    own, rows = tiny.policy(), tiny.rollouts([3, 2], [0, 0])
    score = own.score(rows, temperature=temperature, detail=Detail(entropy=True))
    EntropyBonus()(score, {}, rows.mask, rows.mask).sum().backward()
    found = tiny.gradient_of(own)
    own.model.zero_grad()
    logprobs = (own.logits(rows) / temperature).log_softmax(-1)
    exact = -(logprobs.exp() * logprobs).sum(-1)
    torch.testing.assert_close(score.entropy[rows.mask], exact[rows.mask], **EXACT)
    (-exact[rows.mask].sum()).backward()
    torch.testing.assert_close(found, tiny.gradient_of(own), **MODEL_SUM)


def test_the_entropy_bonus_is_minus_the_entropy():
    mask = torch.tensor([[True, False]])
    loss = EntropyBonus()(Scores(logprobs=torch.zeros(1, 2), entropy=torch.tensor([[0.7, 9.0]])), {}, mask, mask)
    assert loss.tolist() == [[-0.7, 0.0]]


def test_a_plain_score_function_does_not_score_its_own_rows():
    plain = PolicyGradient(advantage=GroupMean(), surrogate=Reinforce())
    assert plain.reads("small") == ()
    assert replace(plain, correction=ImportanceWeight()).reads("small") == ("small",)
    assert replace(plain, surrogate=Clip()).reads("small") == ("small",)
    taught = replace(plain, advantage=TeacherLogRatio(teacher="large"))
    assert taught.reads("small") == ("large",)
    assert replace(taught, surrogate=Clip()).reads("small") == ("small", "large")


def test_what_a_control_variate_reads_of_the_teacher():
    def details(**settings):
        advantage = TeacherLogRatio(teacher="large", **settings)
        both = WeightedSum(of=(Summand(advantage=GroupMean()), Summand(weight=0.1, advantage=advantage)))
        found = [PolicyGradient(advantage=own, surrogate=Reinforce()).details("small") for own in (advantage, both)]
        assert found[0] == found[1]
        return found[0]

    assert details() == {"large": Detail()}
    assert details(control_variate=ReverseKL()) == {"large": Detail(full=True)}
    assert details(control_variate=ReverseKL(top_k=TopK(k=5))) == {"large": Detail(top_k=5)}


@pytest.mark.parametrize(
    "settings",
    [
        {"surrogate": Clip(), "ratio": SequenceRatio()},
        {"surrogate": GMPO()},
        {"surrogate": Reinforce(), "correction": DivergenceMask(level="geometric", high=0.1, at="update")},
    ],
    ids=["ratio", "surrogate", "correction"],
)
def test_a_control_variate_needs_tokens_that_are_taken_one_by_one(settings):
    plain = TeacherLogRatio(teacher="large")
    assert not PolicyGradient(advantage=plain, **settings).token_local
    with pytest.raises(ValidationError, match=r"couple the tokens of a row.*or leave control_variate out"):
        PolicyGradient(advantage=replace(plain, control_variate=ReverseKL()), **settings)


@pytest.mark.parametrize("variate", [SampledKL(), ReverseKL(temperature=2.0)], ids=repr)
def test_a_control_variate_is_the_reverse_kl(variate):
    with pytest.raises(ValidationError, match=r"must be { kind = 'reverse_kl' } at temperature 1"):
        TeacherLogRatio(teacher="large", control_variate=variate)


def test_live_and_fixed_advantages_add_up_by_their_weights():
    rows = tiny.rollouts([2, 1], [0, 0])
    experience = tiny.experience(rows, {}, [tiny.policy("large", seed=1)])
    live = Summand(weight=0.1, advantage=TeacherLogRatio(teacher="large"))
    term = PolicyGradient(
        advantage=WeightedSum(of=(Summand(weight=2.0, advantage=GroupMean()), live)), surrogate=Reinforce()
    )
    frozen = term.freeze(experience, tiny.learner_rewards(rows, [1.0, 0.0]), "small", Memory())
    now = tiny.policy("small", seed=3).score_all(rows)
    log_ratio = experience.signals["large"].logprobs - now.logprobs
    expected = 2 * torch.tensor([[0.5], [-0.5]]) + 0.1 * log_ratio
    found = term.advantages(now, frozen, rows.mask)
    torch.testing.assert_close(found, torch.where(rows.mask, expected, 0), **EXACT)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "leaves no row out"),
        ({"reward": "task"}, "reward needs at_least or at_most"),
        ({"at_least": 1.0}, "they need a reward"),
    ],
)
def test_a_where_that_decides_nothing_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Where(**settings)


def test_which_rows_a_where_keeps():
    rows = tiny.rollouts([1] * 4, [0] * 4)
    data = torch.tensor([False, False, False, True])[:, None]
    rows = replace(rows, behavior=replace(rows.behavior, writer=torch.where(data, NOBODY, rows.behavior.writer)))
    experience = tiny.experience(rows, {"task": [0.0, 1.0, torch.nan, torch.nan]}, [])
    for settings, kept in (
        ({"rows": "sampled"}, [True, True, True, False]),
        ({"rows": "data"}, [False, False, False, True]),
        ({"reward": "task", "at_least": 1.0}, [False, True, False, False]),
        ({"reward": "task", "at_most": 0.0}, [True, False, False, False]),
        ({"reward": "task", "at_least": 0.0, "at_most": 1.0, "rows": "sampled"}, [True, True, False, False]),
    ):
        assert Where(**settings)(experience).tolist() == kept
