"""Faults of other trainers' losses, by the id of the report: a small input and the right value."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import tiny
from grpo_kit import (
    AdamW,
    Clip,
    DivergenceTerm,
    EqualRows,
    EqualTokens,
    FixedLength,
    GroupMean,
    Learner,
    LeaveOneOut,
    OnPolicyKD,
    Policy,
    PolicyGradient,
    Rewards,
    SampledKL,
    Scores,
    SignalKey,
    Signals,
    diagnostics,
)
from grpo_kit.batch import Sampling
from grpo_kit.learner import LiveLearner
from grpo_kit.learner_batch import freeze
from grpo_kit.memory import Memory
from grpo_kit.objective import accumulate
from grpo_kit.samplers.decoding import decode
from tolerances import EXACT, PRINTED

BASELINES = [GroupMean(), GroupMean(scale="group"), GroupMean(scale="batch"), LeaveOneOut()]
WEIGHTINGS = [EqualTokens(), EqualRows(), FixedLength(length=5)]


def group(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.long)


@pytest.mark.parametrize("advantage", BASELINES, ids=repr)
@pytest.mark.parametrize("rewards", [[1.3] * 7, [1.0] * 4, [0.0, 0.0]])
def test_b001_equal_rewards(advantage, rewards):
    rewards = torch.tensor(rewards, dtype=torch.float32)  # the mean of 1.3 is off by 1.2e-7
    assert (advantage(rewards, group(len(rewards))) == 0).all()


@pytest.mark.parametrize("advantage", BASELINES, ids=repr)
def test_b002_a_group_of_one(advantage):
    assert advantage(torch.tensor([0.4]), group(1)).tolist() == [0.0]


def test_b003_a_missing_reward_does_not_shift_the_baseline():
    rewards = torch.tensor([1.0, torch.nan, 0.0, 1.0])
    found = GroupMean(scale="group")(rewards, group(4))
    torch.testing.assert_close(found, torch.tensor([0.577, 0.0, -1.155, 0.577]), **PRINTED)
    assert (GroupMean(scale="group")(torch.full((4,), torch.nan), group(4)) == 0).all()


@pytest.mark.parametrize("advantage", BASELINES, ids=repr)
def test_b004_one_missing_component_silences_only_its_row(advantage):
    rewards = Rewards({"f1": tiny.component([1.0, 0.0, torch.nan]), "f2": tiny.component([0.0, 1.0, 1.0])})
    found = advantage(rewards.total({"f1": 1.0, "f2": 0.5}), group(3))
    assert found.isfinite().all()
    assert found[2] == 0
    assert found[0] == -found[1] > 0  # 1 against 0.5


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("lengths", [[2, 2, 2, 2], [1, 4, 2, 3]])
def test_b008_accumulation_does_not_change_the_scale(lengths):
    """Every token's loss is 1: one update's loss is 1, in one window or in four."""

    def one(current, other):
        return torch.ones_like(current) + 0 * current

    own, settings = tiny.policy(), learner(terms={"one": DivergenceTerm(to="small", divergence=one)})
    experience = tiny.experience(tiny.rollouts(lengths, [0] * 4), {"task": [0.0] * 4}, [own])
    batch = freeze("small", settings, experience, torch.ones(4, dtype=torch.bool), Memory())
    for budget in (10**6, 1):
        own.micro_batch_tokens = budget
        live = LiveLearner.start("small", settings, own, loop_steps=1)
        assert accumulate(live, batch, range(4), step=1).losses["one"] == pytest.approx(1.0)


def learner(**changes) -> Learner:
    settings = {
        "rewards": {"task": 1.0},
        "terms": {"policy": PolicyGradient(advantage=GroupMean(), surrogate=Clip())},
        "weighting": EqualTokens(),
        "optimizer": AdamW(lr=1e-3),
    }
    return Learner(**settings | changes)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
def test_b010_every_completion_was_cut(weighting):
    kl = DivergenceTerm(to="other", divergence=SampledKL(estimator="k3"), weight=0.1)
    terms = {"policy": PolicyGradient(advantage=GroupMean(), surrogate=Clip()), "kl": kl}
    settings = learner(weighting=weighting, mask_truncated=True, terms=terms)
    rows = replace(tiny.rollouts([2, 3], [0, 0]), stop_reasons=("length", "length"))
    scored = [tiny.policy("small"), tiny.policy("other", seed=1)]
    experience = tiny.experience(rows, {"task": [1.0, 0.0]}, scored)
    batch = freeze("small", settings, experience, torch.ones(2, dtype=torch.bool), Memory())
    live = LiveLearner.start("small", settings, scored[0], loop_steps=1)
    found = accumulate(live, batch, range(2), step=1)
    assert found.losses == {"policy": 0.0, "kl": 0.0}
    assert (tiny.gradient_of(scored[0]) == 0).all()


def test_b011_a_row_without_tokens_leaves_metrics_finite():
    mask = torch.tensor([[True, True, False], [False, False, False]])
    weights = torch.tensor([[0.5, 1.5, torch.nan], [torch.nan] * 3])
    assert diagnostics.effective_sample_size(weights, mask) == pytest.approx(
        4 / 2.5 / 2
    )  # (0.5+1.5)^2 / (.25+2.25) / 2


@pytest.mark.parametrize("lengths", [[3, 1], [5, 2]])
def test_b014_dr_grpo_is_divided_by_the_number_of_rows(lengths):
    """Losses of 0.3 N in each row: 0.3 for the pair, and 0.3 for the pair twice."""
    width = max(lengths)
    mask = torch.arange(width)[None, :] < torch.tensor(lengths)[:, None]
    losses = torch.tensor([[0.3 * 5 / length] for length in lengths]).expand(mask.shape)
    weighting = FixedLength(length=5)
    assert float((losses * weighting(mask)).sum()) == pytest.approx(0.3)
    twice, doubled = mask.repeat(2, 1), losses.repeat(2, 1)
    assert float((doubled * weighting(twice)).sum()) == pytest.approx(0.3)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("estimator", "importance"),
    [("k2", False), ("k3", False), ("k1+", False), ("k3+", False), ("k1", True), ("k3", True)],
)
def test_b015_and_b033_the_kl_pulls_toward_the_reference_in_groups_without_spread(estimator, importance):
    terms = {
        "policy": PolicyGradient(advantage=GroupMean(), surrogate=Clip()),
        "kl": DivergenceTerm(to="ref", divergence=SampledKL(estimator=estimator), importance=importance, weight=0.1),
    }
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    rows = tiny.rollouts([1], [0])
    signals = {
        SignalKey("small", 0): Scores(logprobs=logprobs.detach()),
        SignalKey("ref", 0): Scores(logprobs=torch.tensor([[-2.0]])),
    }
    experience = replace(tiny.experience(rows, {}, []), signals=Signals(signals))
    loss = torch.zeros(())
    for term in terms.values():
        frozen = term.freeze(experience, tiny.learner_rewards(rows, [1.0]), "small", Memory())
        loss = loss + term.weight * term(Scores(logprobs=logprobs), frozen, rows.mask, rows.mask).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    after = logprobs.detach() - 0.1 * gradient
    assert abs(float(after) + 2) < 1  # nearer to the reference's -2 than -1 was


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    # e^-1 + 1 - 1; 1 - e^-1; d^2/2; d; straight through: the value of the one, the slope of k2
    [("k3", 0.3679, 0.6321), ("k2", 0.5, 1.0), ("k3+", 0.3679, 1.0), ("k1+", 1.0, 1.0), ("k1", 1.0, 1.0)],
)
def test_b016_each_estimator_has_its_own_gradient(estimator, value, slope):
    current = torch.tensor([[-1.0]], requires_grad=True)
    loss = SampledKL(estimator=estimator)(current, torch.tensor([[-2.0]]))
    (gradient,) = torch.autograd.grad(loss.sum(), current)
    assert float(loss.detach()) == pytest.approx(value, abs=1e-4)
    assert float(gradient) == pytest.approx(slope, abs=1e-4)


@pytest.mark.usefixtures("float64")
def test_b018_an_overflow_under_the_mask_reaches_neither_loss_nor_gradient():
    current = torch.tensor([[-1.0, 0.0]], requires_grad=True)
    old, mask = torch.tensor([[-1.0, -2000.0]]), torch.tensor([[True, False]])  # e^2000 overflows in float64
    term = PolicyGradient(advantage=GroupMean(), surrogate=Clip(low=0.2, high=0.2))
    frozen = {"anchor": old, "behavior": old, "advantages": torch.ones(1, 2)}
    loss = term(Scores(logprobs=current), frozen, mask, mask).sum()
    (gradient,) = torch.autograd.grad(loss, current)
    assert float(loss.detach()) == -1.0
    assert gradient.tolist() == [[-1.0, 0.0]]


@pytest.mark.usefixtures("float64")
def test_b021_and_b036_the_sides_of_the_clip():
    ratios, advantages = torch.tensor([[0.5, 1.5, 1.5, 0.5, 10.0]]), torch.tensor([[-1.0, -1.0, 1.0, 1.0, -1.0]])
    log_ratio = ratios.log().requires_grad_()
    loss = Clip()(log_ratio, advantages)
    (gradient,) = torch.autograd.grad(loss.sum(), log_ratio)
    torch.testing.assert_close(loss, torch.tensor([[0.8, 1.5, -1.2, -0.5, 10.0]]), **EXACT)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 1.5, 0.0, -0.5, 10.0]]), **EXACT)
    capped = Clip(cap=3.0)(log_ratio, advantages)
    (gradient,) = torch.autograd.grad(capped.sum(), log_ratio)
    assert float(capped[0, 4].detach()) == pytest.approx(3.0)
    assert float(gradient[0, 4]) == 0.0
    far = torch.tensor([[-5.0, 5.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(Clip(low=0.4, high=0.4)(far, -torch.ones(1, 2)).sum(), far)
    assert float(gradient[0, 0]) == 0.0  # clipped
    assert float(gradient[0, 1]) == pytest.approx(torch.tensor(5.0).exp())  # only a cap would bound it


def scripted(own: Policy, logits) -> Policy:
    """The policy with a forward pass of hand-made logits, a function of the ids."""

    def forward(input_ids, logits_to_keep=0, **_):
        return SimpleNamespace(logits=logits(input_ids)[:, -logits_to_keep:])

    own.model.forward = forward
    return own


def test_b025_log_probabilities_are_computed_in_float32():
    generator = torch.Generator().manual_seed(0)
    values = 3 * torch.randn(150_000, generator=generator)
    half = values.bfloat16()
    own = replace(tiny.policy(dtype=torch.bfloat16), vocabulary=len(values))
    scripted(own, lambda ids: half.expand(*ids.shape, -1))
    rows = replace(tiny.rollouts([1], [0]), tokens=torch.tensor([[5]]))
    found = own.score(rows).logprobs
    assert found.dtype == torch.float32
    exact = half.double().log_softmax(0)[5]
    assert float(found) == pytest.approx(float(exact), abs=1e-3)
    assert abs(float(half.log_softmax(0)[5]) - float(exact)) > 1e-3  # what bfloat16 would give


def decoded(own: Policy, rows: int = 24, steps: int = 8):
    uniforms = torch.rand((rows, steps), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return decode(own, [(3, 4)], sampling=Sampling(), uniforms=uniforms)


@pytest.mark.parametrize("ends", [[1], [1, 7]], ids=["B026", "B027"])
def test_b026_b027_a_completion_ends_with_its_first_eos_of_any_id(ends):
    own = tiny.policy(seed=3)
    own.model.generation_config.eos_token_id = ends
    found = decoded(own)
    assert own.eos_ids == frozenset(ends)
    lengths = found.mask.sum(1).tolist()
    assert min(lengths) < 8
    for row, length in zip(found.tokens.tolist(), lengths, strict=True):
        assert not set(row[: length - 1]) & set(ends)
        assert length == 8 or row[length - 1] in ends  # trained on the eos, on nothing after it
    assert found.mask.tolist() == [[t < length for t in range(found.mask.shape[1])] for length in lengths]


def test_b028_the_pad_id_may_be_the_eos_id():
    own = tiny.policy(seed=3)
    own.tokenizer = type(own.tokenizer)(tokenizer_object=own.tokenizer.backend_tokenizer, eos_token="<eos>")
    assert own.tokenizer.pad_token_id is None
    assert own.pad_id in own.eos_ids
    found = decoded(own)
    ended = [row[: int(length)] for row, length in zip(found.tokens.tolist(), found.mask.sum(1), strict=True)]
    assert any(row[-1] == own.pad_id for row in ended)  # the eos itself counts
    # A prompt that holds the id keeps its attention: alone and padded it scores alike.
    rows = tiny.rollouts([2, 2], [0, 0], prompt_lengths=[2, 4])
    rows = replace(rows, prompts=((own.pad_id, 5), rows.prompts[1]))
    together, alone = own.score(rows).logprobs[:1], own.score(rows.take([0])).logprobs
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    other = replace(rows, prompts=((6, 5), rows.prompts[1]))
    assert (own.score(other).logprobs[0] - together[0]).abs().max() > 1e-3


def test_b029_absolute_positions_do_not_shift_with_left_padding():
    config = GPT2Config(vocab_size=12, n_positions=32, n_embd=16, n_layer=1, n_head=2, initializer_range=0.5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        own = replace(tiny.policy(), model=GPT2LMHeadModel(config).eval())
    rows = tiny.rollouts([3, 3], [0, 0], prompt_lengths=[2, 5])  # padded by 3 beside the longer one
    torch.testing.assert_close(own.score(rows).logprobs[:1], own.score(rows.take([0])).logprobs, rtol=0, atol=1e-4)


def test_b030_a_log_probability_belongs_to_its_own_token():
    a, b, c = 3, 4, 5
    table = torch.full((12, 12), 1e-9)
    table[a, b], table[a, c] = 0.9, 0.1
    table[b, c], table[b, a] = 0.1, 0.9
    own = scripted(tiny.policy(dtype=torch.float32), lambda ids: table.log()[ids])
    rows = replace(tiny.rollouts([2], [0]), prompts=((a,),), tokens=torch.tensor([[b, c]]))
    torch.testing.assert_close(own.score(rows).logprobs, torch.tensor([[0.9, 0.1]]).log(), rtol=0, atol=1e-5)


def test_b031_groups_go_by_id_and_not_by_place():
    rewards, groups = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 1, 0, 1])  # a1, b1, a2, b2
    found = GroupMean(scale="group", eps=0.0)(rewards, groups)
    torch.testing.assert_close(found, torch.tensor([0.707, 0.0, -0.707, 0.0]), **PRINTED)


def test_b089_padding_is_selected_before_it_is_used():
    rows = tiny.rollouts([1], [0], width=2)
    signals = {
        SignalKey("large", 0): Scores(logprobs=torch.tensor([[-1.0, 0.0]])),
        SignalKey("small", 0): Scores(logprobs=torch.tensor([[-2.0, -torch.inf]])),
    }
    found = OnPolicyKD(teacher="large", student="small", length=4)(rows, Signals(signals))
    assert found.values.tolist() == [0.25]  # 1/4 x (-1 + 2)


def test_b094_teacher_and_student_are_shifted_alike():
    rows = tiny.rollouts([3, 2], [0, 0])
    signals = Signals({SignalKey(name, 0): tiny.policy(name).score_all(rows) for name in ("large", "small")})
    assert OnPolicyKD(teacher="large", student="small", length=4)(rows, signals).values.tolist() == [0.0, 0.0]


def test_b101_the_distillation_reward_is_used():
    rows = tiny.rollouts([3, 2], [0, 0])
    scored = [tiny.policy("small"), tiny.policy("large", seed=1)]
    signals = Signals({SignalKey(own.name, 0): own.score_all(rows) for own in scored})
    values = [
        OnPolicyKD(teacher="large", student="small", alpha=alpha, length=4)(rows, signals).values
        for alpha in (0.0, 0.1, 0.2)
    ]
    assert (values[0] == 0).all()
    assert (values[1] != 0).all()
    torch.testing.assert_close(values[2], 2 * values[1])


def test_b119_lengths_are_those_sampled_before_truncation_masking():
    rows = replace(tiny.rollouts([4, 10], [0, 0]), stop_reasons=("eos", "length"))
    found = diagnostics.of_sampling(rows)
    assert (found["sampler/length_mean"], found["sampler/length_max"]) == (7.0, 10.0)


def test_b150_statistics_and_rows_are_from_the_same_set():
    """A row without a trainable token: still in the baseline by its reward, never in the loss's count."""
    settings = learner(weighting=EqualRows(), mask_truncated=True)
    experience = tiny.experience(tiny.rollouts([2, 2, 2], [0, 0, 0]), {"task": [1.0, 0.0, 0.5]}, [tiny.policy()])
    batch = freeze("small", settings, experience, torch.ones(3, dtype=torch.bool), Memory())
    assert batch.frozen["policy"]["advantages"][:, 0].tolist() == [0.5, -0.5, 0.0]
    assert settings.weighting(batch.counted).sum(1).tolist() == [0.5, 0.5, 0.0]
