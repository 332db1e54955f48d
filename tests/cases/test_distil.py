"""Faults of other trainers' distillation, by the id of the report: a small input and the right value."""

import math
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import tiny
from grpo_kit import (
    JSD,
    AdamW,
    Clip,
    CrossEntropy,
    DivergenceTerm,
    EqualTokens,
    ForwardKL,
    GroupMean,
    Learner,
    PolicyGradient,
    PolicySpec,
    Reinforce,
    ReverseKL,
    SampledKL,
    Scores,
    SignalKey,
    Signals,
    TeacherLogRatio,
    TopK,
    TopKCrossEntropy,
    Where,
)
from grpo_kit.checks import shared_vocabulary
from grpo_kit.detail import Detail
from grpo_kit.divergences.distance import detail_of, distance
from grpo_kit.learner import LiveLearner
from grpo_kit.learner_batch import freeze
from grpo_kit.memory import Memory
from grpo_kit.objective import accumulate
from grpo_kit.policies import load_policy
from grpo_kit.run.setup import load_policies
from laws.distributions import loss_and_slope
from tiny_recipe import recipe
from tolerances import CLEARLY_DIFFERENT, EXACT, FLOAT32, MODEL_SUM

TEACHER, STUDENT = torch.tensor([[0.7, 0.2, 0.1]]).log(), torch.tensor([[0.2, 0.5, 0.3]]).log()
WHOLE = [ForwardKL(), ReverseKL(), JSD(), JSD(beta=0.0), JSD(beta=1.0), ForwardKL(temperature=2.0)]
TAILS = [ForwardKL(top_k=TopK(k=3)), ReverseKL(top_k=TopK(k=3)), JSD(beta=0.2, top_k=TopK(k=3))]


def words(*given: str) -> PreTrainedTokenizerFast:
    """A tokenizer that splits at white space."""
    known = {word: number for number, word in enumerate(("<pad>", "<eos>", *given))}
    inner = Tokenizer(models.WordLevel(known, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def saved(folder, vocabulary: int, tokenizer) -> str:
    """The folder of a random Llama with that many logits."""
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(vocabulary)
        config = LlamaConfig(vocab_size=vocabulary, initializer_range=0.5, eos_token_id=1, pad_token_id=0, **shape)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_b076_b099_padded_vocabularies_are_cut_to_their_common_part(tmp_path):
    """10 logits and 8 of one tokenizer of 8: the teacher is the one cut to 8 and renormalized."""
    folders = {name: saved(tmp_path / name, size, words(*"abcdef")) for name, size in (("small", 8), ("large", 10))}
    policies = load_policies(recipe(policies={name: PolicySpec(model=folder) for name, folder in folders.items()}))
    student, teacher = policies["small"], policies["large"]
    assert (student.vocabulary, teacher.vocabulary) == (8, 8)
    rows = replace(tiny.rollouts([3, 2], [0, 0]), prompts=((2, 3), (4,)), tokens=torch.tensor([[5, 6, 1], [7, 1, 0]]))
    seen = teacher.score_all(rows, detail=Detail(top_k=8, full=True))
    logits = teacher.model(input_ids=torch.tensor([[2, 3, 5, 6, 1]])).logits[0, 1:4]
    assert logits.shape[-1] == 10
    expected = logits[:, :8].softmax(-1)
    torch.testing.assert_close(seen.distributions.logprobs()[0].exp(), expected, **FLOAT32)
    torch.testing.assert_close(seen.logprobs[0].exp(), expected[range(3), [5, 6, 1]], **FLOAT32)
    assert int(seen.top.ids.max()) == 7
    current = student.score(rows, detail=Detail(full=True))
    of_student = student.model(input_ids=torch.tensor([[2, 3, 5, 6, 1]])).logits[0, 1:4].log_softmax(-1)
    kl = (expected * (expected.log() - of_student)).sum(-1)
    torch.testing.assert_close(distance(ForwardKL(), current, seen, rows.mask)[0], kl, **FLOAT32)


@pytest.mark.parametrize("others", ["cba", "xyz"], ids=["ids moved", "other words"])
def test_b077_b078_other_id_maps_are_refused(others):
    """So says `run` before it loads a model (tests/test_cli.py)."""
    (mistake,) = shared_vocabulary({"small": words(*"abc"), "large": words(*others)})
    assert mistake.startswith("policies.large: its tokenizer differs from that of 'small' in ")
    assert mistake.endswith("Policies that share rollouts need the same tokenizer.")
    assert shared_vocabulary({"small": words(*"abc"), "large": words(*"abc")}) == []


@pytest.mark.parametrize(
    ("beta", "value"),
    # beta KL(T || M) + (1 - beta) KL(S || M), M = beta T + (1 - beta) S; at 0.1 the other mixture would give 0.3852
    [(0.1, 0.05100), (0.5, 0.13292), (0.9, 0.04786)],
)
def test_b080_beta_is_the_teachers_share_of_the_mixture(beta, value):
    assert float(JSD(beta=beta)(STUDENT, TEACHER)) == pytest.approx(value, abs=5e-6)


def test_b081_b082_the_ends_of_a_jsd_are_the_two_kls():
    assert float(JSD(beta=0.0)(STUDENT, TEACHER)) == pytest.approx(0.58381, abs=5e-6)  # KL(T || S)
    assert float(JSD(beta=1.0)(STUDENT, TEACHER)) == pytest.approx(0.53718, abs=5e-6)  # KL(S || T)
    assert float(JSD(beta=1 - 1e-6)(STUDENT.double(), TEACHER.double())) == pytest.approx(0.53718e-6, rel=1e-4)


def test_b083_which_argument_is_which():
    assert float(ForwardKL()(STUDENT, TEACHER)) == pytest.approx(0.58381, abs=5e-6)
    assert float(ReverseKL()(STUDENT, TEACHER)) == pytest.approx(0.53718, abs=5e-6)


@pytest.mark.parametrize(("temperature", "norm"), [(1.0, 0.5746), (2.0, 0.1437)])  # times 2^2: 0.5750
def test_b084_the_gradient_at_a_temperature_is_the_raw_one(temperature, norm):
    student, teacher = torch.tensor([[[1.0, 0.0, -1.0]]]), torch.tensor([[[0.0, 1.0, 0.0]]])
    _, slope = loss_and_slope(ForwardKL(temperature=temperature), student, teacher)
    assert float(slope.norm()) == pytest.approx(norm, abs=5e-5)


def raw_top_k(current, other):
    """The reverse KL over the teacher's top 3 and nothing else, as it is not offered."""
    top = other.topk(3)
    mine = current.gather(-1, top.indices)
    return (mine.exp() * (mine - top.values)).sum(-1)


def mass_of_the_top(loss, steps: int, moved: float = 0.0) -> tuple[float, float]:
    """The student's mass in the teacher's top 3 before and after gradient steps from the teacher, or beside it."""
    teacher = torch.tensor([[[2.0, 1.5, 1.0, 0.0, -0.5, -1.0, -1.0, -2.0]]])
    student, masses = teacher + moved * torch.tensor([-2.0, 1.0, -1.0, 0.0, 1.0, 2.0, 0.0, 1.0]), []
    for _ in range(steps + 1):
        masses.append(float(student.softmax(-1)[..., :3].sum()))
        student = student - 4 * loss_and_slope(loss, student, teacher)[1]
    return masses[0], masses[-1]


def test_b087_a_top_k_does_not_empty_itself():
    of_teacher, after = mass_of_the_top(raw_top_k, 1)
    assert after < of_teacher - 0.01
    # c log c, c the top k's mass by the teacher's, is least at 1 / e: most of it ends up where nothing is seen.
    assert mass_of_the_top(raw_top_k, 80)[1] == pytest.approx(of_teacher / math.e, abs=5e-3)
    for part in (ReverseKL, ForwardKL, JSD):
        for outside in ("tail", "renormalized"):
            assert mass_of_the_top(part(top_k=TopK(k=3, outside=outside)), 20)[1] == pytest.approx(of_teacher, abs=1e-4)
        before, after = mass_of_the_top(part(top_k=TopK(k=3)), 100, moved=2.0)
        assert before < 0.6
        assert after == pytest.approx(of_teacher, abs=1e-2)


@pytest.mark.parametrize("part", [SampledKL(estimator="k3"), *WHOLE, *TAILS, TopKCrossEntropy(k=3)], ids=repr)
def test_b089_padding_is_never_exponentiated(part):
    """At the padded place the teacher says 0 and the student -1e10, or its hidden states are NaN."""
    rows, own = tiny.rollouts([1], [0], width=2), tiny.policy(dtype=torch.float32)
    current = own.score(rows, detail=Detail(full=True))
    poisoned = current.distributions.map(lambda states: torch.where(rows.mask[..., None], states, torch.nan))
    padded = torch.where(rows.mask, current.logprobs, -1e10)
    other = tiny.policy(seed=1, dtype=torch.float32).score_all(rows, detail=detail_of(part))
    found = distance(part, Scores(logprobs=padded, distributions=poisoned), other, rows.mask)
    assert found.isfinite().all()
    assert found[0, 0] != 0
    assert found[0, 1] == 0


@pytest.mark.parametrize("part", [SampledKL(estimator="k3"), *WHOLE, *TAILS], ids=repr)
def test_b094_a_teacher_that_is_the_student_is_at_distance_zero(part):
    rows = tiny.rollouts([3, 2, 4], [0, 0, 1])
    current = tiny.policy("small").score(rows, detail=Detail(full=True))
    teacher = tiny.policy("large").score_all(rows, detail=detail_of(part))
    found = distance(part, current, teacher, rows.mask)
    torch.testing.assert_close(found, torch.zeros_like(found), **EXACT)
    late = teacher.map(lambda values: values.roll(1, dims=1))  # what a teacher shifted by one would give
    assert distance(part, current, late, rows.mask)[rows.mask].abs().max() > 0.01


def with_dropout(folder) -> str:
    """The folder of a random GPT-2 that drops half of everything while it trains."""
    drops = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=12, n_positions=32, n_embd=16, n_layer=1, n_head=2, initializer_range=0.5, **drops
        )
        GPT2LMHeadModel(config).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


def test_b095_a_teacher_has_no_dropout_and_leaves_the_student_alone(tmp_path):
    spec = PolicySpec(model=with_dropout(tmp_path))
    student, teacher = load_policy("small", spec, live=True), load_policy("large", spec, live=False)
    rows, everything = tiny.rollouts([3, 2], [0, 0]), Detail(entropy=True, top_k=3, full=True)
    once, again = (teacher.score_all(rows, detail=everything) for _ in range(2))
    assert torch.equal(once.logprobs, again.logprobs)
    assert torch.equal(once.top.logprobs, again.top.logprobs)
    assert torch.equal(once.distributions.logprobs(), again.distributions.logprobs())
    student.model.train()
    shared = replace(student, name="shared")
    teacher.score_all(rows)
    shared.score_all(rows)
    assert student.model.training  # scoring decides nothing about how the student trains
    assert not torch.equal(student.score_all(rows).logprobs, student.score_all(rows).logprobs)  # the dropout is there
    assert not teacher.model.training


def learner_of(**terms) -> Learner:
    return Learner(
        rewards={"task": 1.0}, terms=terms, weighting=EqualTokens(), optimizer=AdamW(lr=1e-3, max_grad_norm=1e9)
    )


def prepared(settings: Learner, rows):
    """A learner at work on rows that it wrote itself, and what is fixed of them."""
    experience = tiny.experience(rows, {"task": [1.0, 0.0]}, [tiny.policy("small"), tiny.policy("large", seed=1)])
    batch = freeze("small", settings, experience, torch.ones(len(rows), dtype=torch.bool), Memory())
    return LiveLearner.start("small", settings, tiny.policy("small"), loop_steps=1), batch


def test_b096_the_advantage_of_a_teacher_is_detached():
    """Not detached the gradient would be -lp_t + 2 lp_s = 0 here."""
    term = PolicyGradient(advantage=TeacherLogRatio(teacher="large"), surrogate=Reinforce())
    student, place = torch.tensor([[-1.0]], requires_grad=True), torch.ones(1, 1, dtype=torch.bool)
    zero = torch.zeros(1, 1)
    frozen = {"advantages": zero, "behavior": zero, "teacher/large": Scores(logprobs=torch.tensor([[-2.0]]))}
    loss = term(Scores(logprobs=student), frozen, place, place)
    (gradient,) = torch.autograd.grad(loss.sum(), student)
    assert float(gradient) == 1.0


def test_b098_supervised_learning_beside_a_policy_s_own_rows_leaves_them_alone():
    policy = PolicyGradient(advantage=GroupMean(), surrogate=Clip())
    rows = tiny.rollouts([3, 2], [0, 0])
    gradients = []
    for terms in ({"policy": policy}, {"policy": policy, "sft": CrossEntropy(weight=0.5)}):
        live, batch = prepared(learner_of(**terms), rows)
        found = accumulate(live, batch, range(2), step=1)
        gradients.append(tiny.gradient_of(live.policy))
    assert found.losses["sft"] == 0.0
    torch.testing.assert_close(*gradients, **EXACT)
    taught = replace(CrossEntropy(weight=0.5), where=Where(rows="sampled"))
    live, batch = prepared(learner_of(policy=policy, sft=taught), rows)
    assert accumulate(live, batch, range(2), step=1).losses["sft"] > 0


@pytest.mark.parametrize("part", [SampledKL(estimator="k3"), ReverseKL()], ids=repr)
def test_b101_the_weight_of_a_teacher_changes_the_gradient(part):
    policy, rows = PolicyGradient(advantage=GroupMean(), surrogate=Clip()), tiny.rollouts([3, 2], [0, 0])
    gradients = []
    for weight in (0.0, 0.1, 0.2):
        settings = learner_of(policy=policy, teacher=DivergenceTerm(to="large", divergence=part, weight=weight))
        experience = tiny.experience(rows, {"task": [1.0, 0.0]}, [tiny.policy("small")])
        teacher = tiny.policy("large", seed=1).score_all(rows, detail=detail_of(part))
        signals = Signals({**experience.signals.scores, SignalKey("large", 0): teacher})
        experience = replace(experience, signals=signals)
        batch = freeze("small", settings, experience, torch.ones(2, dtype=torch.bool), Memory())
        live = LiveLearner.start("small", settings, tiny.policy("small"), loop_steps=1)
        assert accumulate(live, batch, range(2), step=1).losses["teacher"] > 0
        gradients.append(tiny.gradient_of(live.policy))
    none, some, more = gradients
    assert (some - none).norm() > CLEARLY_DIFFERENT
    torch.testing.assert_close(more - none, 2 * (some - none), **MODEL_SUM)
