"""From a batch to a gradient: mini-batches, masks, and numbers that are not finite."""

from dataclasses import replace

import pytest
import torch

import tiny
from grpo_kit import (
    JSD,
    AdamW,
    Clip,
    CrossEntropy,
    DivergenceTerm,
    EntropyBonus,
    EqualRows,
    EqualTokens,
    FixedLength,
    GroupMean,
    Learner,
    NonFiniteError,
    PolicyGradient,
    Reinforce,
    ReverseKL,
    SampledKL,
    Sampling,
    Scores,
    SequenceRatio,
    SignalKey,
    Signals,
    TeacherLogRatio,
    TopK,
    Where,
    head,
)
from grpo_kit.batch import NOBODY
from grpo_kit.detail import Detail
from grpo_kit.learner import LiveLearner
from grpo_kit.learner_batch import freeze
from grpo_kit.memory import Memory
from grpo_kit.objective import accumulate, mini_batches, token_weights
from tolerances import CLEARLY_DIFFERENT, EXACT, MODEL, MODEL_SUM

pytestmark = pytest.mark.usefixtures("float64")


def learner(**changes) -> Learner:
    settings = {
        "rewards": {"task": 1.0},
        "terms": {"policy": PolicyGradient(advantage=GroupMean(), surrogate=Clip())},
        "weighting": EqualTokens(),
        "optimizer": AdamW(lr=1e-3, max_grad_norm=1e9),
    }
    return Learner(**settings | changes)


def prepared(settings: Learner, lengths=(3, 2, 4), rewards=(1.0, 0.0, 0.5), policies=("small",), **changes):
    rows = tiny.rollouts(list(lengths), [0] * len(lengths), **changes)
    scored = [tiny.policy(name, seed=number) for number, name in enumerate(policies)]
    experience = tiny.experience(rows, {"task": list(rewards)}, scored)
    batch = freeze("small", settings, experience, torch.ones(len(rows), dtype=torch.bool), Memory())
    live = LiveLearner.start("small", settings, tiny.policy(seed=0), loop_steps=1)
    return live, batch


def test_mini_batches_deal_every_row_once_and_evenly():
    dealt = list(mini_batches(10, 4, torch.Generator().manual_seed(0)))
    assert sorted(row for rows in dealt for row in rows) == list(range(10))
    assert sorted(map(len, dealt)) == [2, 2, 3, 3]
    assert dealt != list(mini_batches(10, 4, torch.Generator().manual_seed(1)))
    assert list(mini_batches(2, 4, torch.Generator().manual_seed(0))) in ([[0], [1]], [[1], [0]])
    assert list(mini_batches(0, 2, torch.Generator())) == []


def test_the_gradient_of_a_mini_batch_is_that_of_its_rows_alone():
    live, batch = prepared(learner())
    accumulate(live, batch, [0, 2], step=1)
    part = tiny.gradient_of(live.policy)
    accumulate(live, batch.take([0, 2]), [0, 1], step=1)
    torch.testing.assert_close(tiny.gradient_of(live.policy), part, **MODEL)


def test_terms_add_up_by_their_weights():
    both = {
        "policy": PolicyGradient(advantage=GroupMean(), surrogate=Clip(), weight=2.0),
        "entropy": EntropyBonus(weight=-3.0),
    }
    total = 0
    for name, term in both.items():
        live, batch = prepared(learner(terms={name: replace(term, weight=1.0)}))
        accumulate(live, batch, range(3), step=1)
        total = total + term.weight * tiny.gradient_of(live.policy)
    live, batch = prepared(learner(terms=both))
    found = accumulate(live, batch, range(3), step=1)
    torch.testing.assert_close(tiny.gradient_of(live.policy), total, **MODEL_SUM)
    assert set(found.losses) == {"policy", "entropy"}
    assert found.norm == pytest.approx(float(total.norm()))


def test_a_long_gradient_is_scaled_down_to_the_largest_norm():
    settings = learner(optimizer=AdamW(lr=1e-3, max_grad_norm=1e-3))
    live, batch = prepared(settings)
    found = accumulate(live, batch, range(3), step=1)
    assert found.norm > 1e-3
    assert float(tiny.gradient_of(live.policy).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_truncated_rows_leave_the_loss_but_stay_in_the_baseline():
    settings = learner(mask_truncated=True, weighting=FixedLength(length=4))
    live, batch = prepared(settings)  # row 2 was cut at the limit
    assert batch.counted.any(1).tolist() == [True, True, False]
    assert batch.frozen["policy"]["advantages"][:, 0].tolist() == [0.5, -0.5, 0.0]  # mean of 1, 0, 0.5
    accumulate(live, batch, range(3), step=1)
    masked = tiny.gradient_of(live.policy)
    kept, without = prepared(replace(settings, mask_truncated=False))
    accumulate(kept, without, [0, 1], step=1)
    torch.testing.assert_close(masked, tiny.gradient_of(kept.policy), **MODEL)


def test_the_log_probabilities_seen_are_those_of_the_current_policy():
    live, batch = prepared(learner())
    live.policy.micro_batch_tokens = 1
    found = accumulate(live, batch, [2, 0], step=1)
    expected = live.policy.score_all(batch.rollouts).logprobs
    for row in (0, 2):
        length = int(batch.rollouts.lengths[row])
        torch.testing.assert_close(found.logprobs[row, :length], expected[row, :length], **EXACT)
    assert (found.logprobs[1] == 0).all()


def test_a_loss_that_is_not_finite_names_step_learner_term_and_row():
    live, batch = prepared(learner())
    frozen = batch.frozen["policy"]
    anchor = frozen["anchor"].clone()
    anchor[1, 1] = -1e9  # a ratio of e^(1e9) with a negative advantage is infinite
    batch = replace(batch, frozen={"policy": {**frozen, "anchor": anchor}})
    with pytest.raises(NonFiniteError, match=r"step 7, learner 'small', term 'policy': .*row 1 .*token 1"):
        accumulate(live, batch, range(3), step=7)


def test_a_gradient_that_is_not_finite_names_step_learner_term_and_row():
    def root(current, other):
        return (current - other).abs().sqrt()  # its gradient at 0 is infinite

    terms = {"policy": learner().terms["policy"], "to_self": DivergenceTerm(to="small", divergence=root)}
    live, batch = prepared(learner(terms=terms))
    frozen = dict(batch.frozen)
    other = frozen["to_self"]["other"].logprobs - 1.0
    live.policy.micro_batch_tokens = 1  # row by row, so that the score below is met to the last bit
    current = live.policy.score(batch.rollouts.take([1])).logprobs.detach()
    other[1, 1] = current[0, 1]
    batch = replace(batch, frozen={**frozen, "to_self": {"other": Scores(logprobs=other)}})
    with pytest.raises(NonFiniteError, match=r"step 3, learner 'small', term 'to_self': the gradient of row 1 is not"):
        accumulate(live, batch, range(3), step=3)


@pytest.mark.parametrize("weighting", [EqualTokens(), EqualRows(), FixedLength(length=4)], ids=repr)
def test_a_row_whose_reward_is_missing_does_not_exist(weighting):
    # It is in no baseline and in no denominator: a grader that timed out does not make the step smaller.
    _, batch = prepared(learner(weighting=weighting), rewards=(1.0, torch.nan, 0.0))
    assert batch.numbers == (0, 2)
    assert batch.frozen["policy"]["advantages"][:, 0].tolist() == [0.5, -0.5]
    weights = weighting(batch.counted)
    expected = 1.0 if not isinstance(weighting, FixedLength) else 7 / (2 * 4)  # rows of 3 and 4 tokens, two rows
    assert float(weights.sum()) == pytest.approx(expected)


def test_errors_number_rows_as_the_step_sampled_them():
    def boundless(log_ratio, advantages, logprobs=None):
        return log_ratio / 0.0

    terms = {"policy": PolicyGradient(advantage=GroupMean(), surrogate=boundless)}
    live, batch = prepared(learner(terms=terms), rewards=(torch.nan, 1.0, 0.0))
    with pytest.raises(NonFiniteError, match=r"term 'policy': the loss of row [12] is"):
        accumulate(live, batch, range(2), step=1)


def test_a_divergence_pulls_without_rewards():
    settings = learner(rewards={}, terms={"kl": DivergenceTerm(to="other", divergence=SampledKL())})
    live, batch = prepared(settings, policies=("small", "other"))
    assert accumulate(live, batch, range(3), step=1).norm > 0


TEMPERATURE = 0.7


def at_temperature(rows):
    writers = tuple(replace(own, sampling=Sampling(temperature=TEMPERATURE)) for own in rows.behavior.writers)
    return replace(rows, behavior=replace(rows.behavior, writers=writers))


def dense(policy, rows):
    """All log-probabilities [row, token, vocabulary] by the model's own forward pass, each row by itself."""
    found = []
    for prompt, tokens, length in zip(rows.prompts, rows.tokens, rows.lengths.tolist(), strict=True):
        ids = torch.tensor([[*prompt, *tokens[:length].tolist()]])
        logits = policy.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
        found.append(torch.log_softmax(logits / TEMPERATURE, dim=-1))
    return torch.nn.utils.rnn.pad_sequence(found, batch_first=True)


def kl(p, q):
    """KL(p || q) of each token from log-probabilities."""
    return (p.exp() * (p - q)).sum(-1)


def with_the_rest(values, top):
    """The log-probabilities of some tokens, and that of all others together."""
    inside = values.gather(-1, top)
    return torch.cat([inside, torch.log(1 - inside.exp().sum(-1, keepdim=True))], dim=-1)


A = torch.tensor([1.0, 0.0, 0.5])[:, None] - 0.5
"""The group's rewards less their mean."""


def clipped(now, old, teacher, tokens, mask):
    ratio = (now.gather(-1, tokens) - old.gather(-1, tokens)).squeeze(-1).exp()
    return -torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)


def coupled(now, old, teacher, tokens, mask):
    log_ratio = torch.where(mask, (now.gather(-1, tokens) - old.gather(-1, tokens)).squeeze(-1), 0)
    ratio = (log_ratio.sum(1, keepdim=True) / mask.sum(1, keepdim=True)).exp().expand_as(log_ratio)
    entropy = -(now.exp() * now).sum(-1)
    clip = -torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)
    return 2 * clip - 0.3 * entropy + 0.5 * kl(now, teacher)


def distilled(now, old, teacher, tokens, mask):
    logprobs = now.gather(-1, tokens).squeeze(-1)
    advantage = teacher.gather(-1, tokens).squeeze(-1) - logprobs + kl(now, teacher)
    return -advantage.detach() * (logprobs - logprobs.detach())


def jensen_shannon(now, old, teacher, tokens, mask):
    top = teacher.topk(4).indices
    p, q = with_the_rest(now, top), with_the_rest(teacher, top)
    middle = torch.log(0.3 * q.exp() + 0.7 * p.exp())
    return 0.3 * kl(q, middle) + 0.7 * kl(p, middle)


CLIP = PolicyGradient(advantage=GroupMean(), surrogate=Clip())
COMPOSED = {
    "clip": ({"policy": CLIP}, clipped),
    "coupled and local": (
        {
            "policy": replace(CLIP, ratio=SequenceRatio(), weight=2.0),
            "entropy": EntropyBonus(weight=0.3),
            "kl": DivergenceTerm(to="large", divergence=ReverseKL(), weight=0.5),
        },
        coupled,
    ),
    "teacher": (
        {
            "policy": PolicyGradient(
                advantage=TeacherLogRatio(teacher="large", control_variate=ReverseKL()), surrogate=Reinforce()
            )
        },
        distilled,
    ),
    "jsd of the top k": (
        {"jsd": DivergenceTerm(to="large", divergence=JSD(beta=0.3, top_k=TopK(k=4)))},
        jensen_shannon,
    ),
}


@pytest.mark.parametrize("chunk", [1, 3 * tiny.VOCABULARY, 2**24], ids=["a token", "three tokens", "all"])
@pytest.mark.parametrize("budget", [1, 10**6], ids=["row by row", "at once"])
@pytest.mark.parametrize("composed", COMPOSED)
def test_law_11_chunks_are_the_dense_objective(composed, chunk, budget, monkeypatch):
    """Value and gradient are those of plain torch on all of [row, token, vocabulary], at a temperature."""
    terms, reference = COMPOSED[composed]
    rows = at_temperature(tiny.rollouts([3, 2, 4], [0, 0, 0]))
    first, large, own = tiny.policy("small", seed=0), tiny.policy("large", seed=1), tiny.policy("small", seed=2)
    scores = {
        SignalKey(each.name, 0): each.score_all(rows, temperature=TEMPERATURE, detail=Detail(top_k=4, full=True))
        for each in (first, large)
    }
    experience = replace(tiny.experience(rows, {"task": [1.0, 0.0, 0.5]}, []), signals=Signals(scores))
    settings = learner(terms=terms, rewards={"task": 1.0})
    batch = freeze("small", settings, experience, torch.ones(3, dtype=torch.bool), Memory())

    now = dense(own, rows)
    old, teacher = (dense(each, rows).detach() for each in (first, large))
    loss = torch.where(rows.mask, reference(now, old, teacher, rows.tokens[..., None], rows.mask), 0)
    total = loss.sum() / rows.mask.sum()
    own.model.zero_grad()
    total.backward()
    expected = tiny.gradient_of(own)
    assert expected.norm() > CLEARLY_DIFFERENT

    chunks = head.chunks
    monkeypatch.setattr(head, "chunks", lambda tokens, vocabulary, size: chunks(tokens, vocabulary, chunk))
    own.micro_batch_tokens = budget
    found = accumulate(LiveLearner.start("small", settings, own, loop_steps=1), batch, range(3), step=1)
    torch.testing.assert_close(tiny.gradient_of(own), expected, **MODEL_SUM)
    weighted = sum(settings.terms[name].weight * value for name, value in found.losses.items())
    assert weighted == pytest.approx(float(total.detach()), abs=1e-6)
    logprobs = torch.where(rows.mask, now.gather(-1, rows.tokens[..., None]).squeeze(-1), 0).detach()
    torch.testing.assert_close(found.logprobs, logprobs, **MODEL)


def test_terms_of_some_rows_share_the_weights_of_all_or_have_their_own():
    rows = tiny.rollouts([3, 2, 4], [0, 0, 0])
    data = torch.tensor([False, True, False])[:, None]
    behavior = replace(rows.behavior, writer=torch.where(data, NOBODY, rows.behavior.writer))
    rows = replace(rows, behavior=behavior)
    terms = {
        "policy": CLIP,
        "sft": CrossEntropy(),
        "right": CrossEntropy(where=Where(reward="task", at_least=0.75, denominator="own")),
        "all": EntropyBonus(),
    }
    experience = tiny.experience(rows, {"task": [1.0, torch.nan, 0.5]}, [tiny.policy()])
    settings = learner(terms=terms)
    batch = freeze("small", settings, experience, torch.ones(3, dtype=torch.bool), Memory())
    weights = token_weights(settings, batch, range(3))
    shares = {name: values.sum(1).tolist() for name, values in weights.items()}
    ninth = 1 / 9  # nine tokens in all
    assert shares["all"] == pytest.approx([3 * ninth, 2 * ninth, 4 * ninth])
    assert shares["policy"] == pytest.approx([3 * ninth, 0, 4 * ninth])
    assert shares["sft"] == pytest.approx([0, 2 * ninth, 0])
    assert shares["right"] == pytest.approx([1, 0, 0])
    of_two = token_weights(settings, batch, [0, 1])
    assert of_two["sft"].sum(1).tolist() == pytest.approx([0, 2 / 5, 0])
    live = LiveLearner.start("small", settings, tiny.policy(), loop_steps=1)
    found = accumulate(live, batch, range(3), step=1)
    logprobs = tiny.policy().score_all(rows).logprobs
    assert found.losses["sft"] == pytest.approx(-float(logprobs[1, :2].sum()) / 9)
    assert found.losses["right"] == pytest.approx(-float(logprobs[0, :3].sum()) / 3)
