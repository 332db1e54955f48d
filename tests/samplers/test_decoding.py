"""The transformers sampler: it draws from the distribution it says, and nothing else decides the rows."""

import math

import pytest
import torch

from grpo_kit import Policy, PolicySpec, Sampling, TransformersSampler
from grpo_kit.batch import Prompts
from grpo_kit.policies import load_policy
from grpo_kit.samplers.decoding import decode, draw, restrict

QUESTIONS = ("3+8-5=", "0-6+4+6=", "9-9+1-4+2=")


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy("small", PolicySpec(model="tiny:small"), live=False)


def prompts(policy: Policy, questions: tuple[str, ...] = QUESTIONS) -> Prompts:
    ids = tuple(tuple(policy.tokenizer(question)["input_ids"]) for question in questions)
    return Prompts(ids=ids, groups=tuple(range(len(ids))), columns={"answer": questions})


def sample(policy: Policy, *, seed: int = 0, **settings):
    settings = {"samples": 4, "max_new_tokens": 48} | settings
    sampler = TransformersSampler(policy="small", **settings)
    return sampler(prompts(policy), {"small": policy}, torch.Generator().manual_seed(seed))


def test_behavior_logprobs_equal_a_fresh_scoring_pass(policy: Policy) -> None:
    rollouts = sample(policy, samples=8, temperature=0.7)
    assert rollouts.behavior is not None
    scored = policy.score_all(rollouts, temperature=0.7).logprobs
    assert torch.allclose(scored[rollouts.mask], rollouts.behavior.logprobs[rollouts.mask], atol=1e-4)


def test_rows_depend_on_the_generator_alone_not_on_the_batch_split(policy: Policy) -> None:
    whole, split = sample(policy), sample(policy, rows_per_batch=4)
    assert whole.texts == split.texts
    assert whole.texts == sample(policy).texts
    assert whole.texts != sample(policy, seed=1).texts


def test_the_samples_of_a_group_differ_and_come_prompt_after_prompt(policy: Policy) -> None:
    rollouts = sample(policy, samples=8)
    assert rollouts.groups.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert rollouts.columns["answer"] == tuple(question for question in QUESTIONS for _ in range(8))
    assert all(len(set(rollouts.texts[start : start + 8])) > 1 for start in (0, 8, 16))
    for question, start in zip(QUESTIONS, (0, 8, 16), strict=True):
        first_step = question[: 1 + question[1:].find(question[2]) + 1]
        assert any(text.startswith(first_step) for text in rollouts.texts[start : start + 8])


def test_a_row_ends_with_its_eos_and_masks_go_by_length(policy: Policy) -> None:
    rollouts = sample(policy, max_new_tokens=20)
    assert set(rollouts.stop_reasons) == {"eos", "length"}
    for row, reason in enumerate(rollouts.stop_reasons):
        ids = rollouts.tokens[row, rollouts.mask[row]].tolist()
        assert (ids[-1] in policy.eos_ids) == (reason == "eos")
        assert not set(ids[:-1]) & policy.eos_ids
        assert len(ids) == 20 or reason == "eos"


def test_every_stop_id_of_the_model_ends_a_row(policy: Policy) -> None:
    newline = policy.tokenizer("\n")["input_ids"][0]
    assert isinstance(policy.tokenizer.eos_token_id, int)
    before = policy.model.generation_config.eos_token_id
    policy.model.generation_config.eos_token_id = [policy.tokenizer.eos_token_id, newline]
    try:
        rollouts = sample(policy)
    finally:
        policy.model.generation_config.eos_token_id = before
    assert set(rollouts.stop_reasons) == {"eos"}
    assert all(int(rollouts.lengths[row]) < 12 for row in range(len(rollouts)))


def test_a_pad_id_that_is_also_the_eos_keeps_the_real_eos(policy: Policy) -> None:
    plain, pad = sample(policy), policy.tokenizer.pad_token
    policy.tokenizer.pad_token = policy.tokenizer.eos_token
    try:
        same = sample(policy)
    finally:
        policy.tokenizer.pad_token = pad
    assert same.texts == plain.texts
    assert torch.equal(same.mask, plain.mask)


def test_a_stop_string_ends_the_row_and_is_cut_from_the_text(policy: Policy) -> None:
    rollouts = sample(policy, stop=("=1",), samples=16)
    stopped = [row for row, reason in enumerate(rollouts.stop_reasons) if reason == "stop"]
    assert stopped
    for row in stopped:
        ids = rollouts.tokens[row, rollouts.mask[row]].tolist()
        written = policy.tokenizer.decode(ids)
        assert written.endswith("=1")
        assert rollouts.texts[row] == written.removesuffix("=1")
    assert all("=1" not in text for text in rollouts.texts)


def test_greedy_takes_the_most_likely_token_and_reports_the_model_s_own_logprobs(policy: Policy) -> None:
    rollouts = sample(policy, samples=1, temperature=0.0)
    assert rollouts.behavior is not None
    scored = policy.score_all(rollouts).logprobs
    assert torch.isfinite(scored[rollouts.mask]).all()
    assert torch.allclose(scored[rollouts.mask], rollouts.behavior.logprobs[rollouts.mask], atol=1e-4)
    best = policy.logits(rollouts).argmax(2)
    assert torch.equal(best[rollouts.mask], rollouts.tokens[rollouts.mask])


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.6),
        Sampling(top_k=3),
        Sampling(top_p=0.8),
        Sampling(temperature=1.5, top_k=5, top_p=0.9),
    ],
    ids=str,
)
def test_draws_follow_the_distribution_they_are_said_to(sampling: Sampling) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.5, 0.0, -1.0, -3.0]])
    logprobs = restrict(logits, sampling)
    expected = reference(logits[0].tolist(), sampling)
    assert logprobs.exp()[0].tolist() == pytest.approx(expected, abs=1e-6)
    count = 20_000
    uniforms = torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn = torch.bincount(draw(logprobs.expand(count, -1), uniforms), minlength=6).tolist()
    assert all(hits == 0 for hits, chance in zip(drawn, expected, strict=True) if chance == 0)
    kept = [(hits, chance * count) for hits, chance in zip(drawn, expected, strict=True) if chance]
    statistic = sum((hits - expected_hits) ** 2 / expected_hits for hits, expected_hits in kept)
    freedom = torch.tensor((len(kept) - 1) / 2)
    assert float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2))) > 1e-3  # the chi-square test's p-value


def reference(logits: list[float], sampling: Sampling) -> list[float]:
    """Temperature, then top-k, then top-p (the token that crosses the mass is kept), renormalized: plain loops."""
    weights = [math.exp(logit / sampling.temperature) for logit in logits]
    order = sorted(range(len(weights)), key=lambda token: -weights[token])
    order = order[: sampling.top_k or None]
    total, kept, mass = sum(weights[token] for token in order), [], 0.0
    for token in order:
        if mass >= sampling.top_p:
            break
        kept.append(token)
        mass += weights[token] / total
    norm = sum(weights[token] for token in kept)
    return [weights[token] / norm if token in kept else 0.0 for token in range(len(weights))]


def test_draw_never_takes_a_token_of_probability_zero() -> None:
    logprobs = torch.tensor([[-torch.inf, 0.5, 0.5, -torch.inf]]).log_softmax(1).expand(3, -1)
    nearly_one = 1 - 2**-53
    assert draw(logprobs, torch.tensor([0.0, 0.5, nearly_one], dtype=torch.float64)).tolist() == [1, 2, 2]


def test_decoding_shares_a_prefill_whatever_the_lengths_of_the_prompts(policy: Policy) -> None:
    uniforms = torch.rand((3, 48), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    ids = prompts(policy).ids
    together = decode(policy, ids, sampling=Sampling(), uniforms=uniforms)
    for row, prompt in enumerate(ids):
        alone = decode(policy, [prompt], sampling=Sampling(), uniforms=uniforms[row : row + 1])
        assert together.tokens[row, together.mask[row]].tolist() == alone.tokens[0, alone.mask[0]].tolist()
