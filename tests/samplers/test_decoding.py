"""The transformers sampler: it draws from the distribution it says, and nothing else decides the rows."""

import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

import tiny
from grpo_kit import Policy, PolicySpec, Sampling, TransformersSampler
from grpo_kit.batch import Prompts
from grpo_kit.policies import load_policy
from grpo_kit.samplers.decoding import decode, draw, restrict, temper
from samplers.restricted import restricted

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


RESTRICTED = {"temperature": 0.7, "top_p": 0.9, "top_k": 8, "min_p": 0.02}


@pytest.mark.parametrize("settings", [{"temperature": 0.7}, {"top_p": 0.8}, {"min_p": 0.1}, RESTRICTED], ids=str)
def test_both_behavior_logprobs_equal_a_fresh_scoring_pass(policy: Policy, settings: dict) -> None:
    rollouts = sample(policy, samples=8, **settings)
    assert rollouts.behavior is not None
    assert rollouts.behavior.model_logprobs is not None
    scored = policy.score_all(rollouts, temperature=rollouts.temperature).logprobs
    own = rollouts.behavior.model_logprobs
    assert torch.allclose(scored[rollouts.mask], own[rollouts.mask], atol=1e-4)
    logits = policy.logits(rollouts)[rollouts.mask]
    sampling = Sampling(**settings)
    drawn_from = restrict(temper(logits, sampling.temperature), sampling)
    chosen = drawn_from.gather(1, rollouts.tokens[rollouts.mask][:, None])[:, 0]
    assert torch.allclose(chosen, rollouts.behavior.logprobs[rollouts.mask], atol=1e-4)
    gained = (rollouts.behavior.logprobs - own)[rollouts.mask]
    assert (gained >= -1e-6).all()  # what is left weighs more
    assert bool((gained > 1e-3).any()) == (len(settings) > 1 or "temperature" not in settings)


@pytest.mark.parametrize("settings", [{}, RESTRICTED, {"greedy": True}, {"stop": ("=1",)}], ids=str)
def test_rows_depend_on_the_generator_alone_not_on_the_batch_split(policy: Policy, settings: dict) -> None:
    whole = sample(policy, **settings)
    for rows_per_batch in (1, 5, 8):
        split = sample(policy, rows_per_batch=rows_per_batch, **settings)
        assert torch.equal(whole.tokens, split.tokens)
        assert torch.equal(whole.mask, split.mask)
        assert whole.stop_reasons == split.stop_reasons
        assert whole.behavior is not None
        assert split.behavior is not None
        for name in ("logprobs", "model_logprobs"):
            assert torch.allclose(getattr(whole.behavior, name), getattr(split.behavior, name), atol=1e-5)
    assert whole.texts == sample(policy, **settings).texts
    assert whole.texts != sample(policy, seed=1, **settings).texts


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


def test_a_special_token_can_be_a_stop_string() -> None:
    own = tiny.policy("small")
    sampler = TransformersSampler(policy="small", samples=64, max_new_tokens=8, stop=("<pad>",))
    asked = Prompts(ids=((3, 4),), groups=(0,), columns={})
    rows = sampler(asked, {"small": own}, torch.Generator().manual_seed(0))
    stopped = [row for row, reason in enumerate(rows.stop_reasons) if reason == "stop"]
    assert stopped
    assert all(rows.tokens[row, rows.mask[row]].tolist()[-1] == 0 for row in stopped)
    assert all(0 not in rows.tokens[row, rows.mask[row]].tolist()[:-1] for row in range(64))
    assert not any("pad" in text for text in rows.texts)


def test_greedy_takes_the_most_likely_token_and_reports_the_model_s_own_logprobs(policy: Policy) -> None:
    rollouts = sample(policy, samples=1, temperature=0.0)
    assert rollouts.behavior is not None
    scored = policy.score_all(rollouts).logprobs
    assert torch.isfinite(scored[rollouts.mask]).all()
    assert torch.allclose(scored[rollouts.mask], rollouts.behavior.logprobs[rollouts.mask], atol=1e-4)
    assert torch.equal(rollouts.behavior.logprobs, rollouts.behavior.model_logprobs)
    best = policy.logits(rollouts).argmax(2)
    assert torch.equal(best[rollouts.mask], rollouts.tokens[rollouts.mask])


SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.6),
    Sampling(top_k=3),
    Sampling(top_p=0.8),
    Sampling(min_p=0.1),
    Sampling(temperature=1.5, top_k=5, top_p=0.9),
    Sampling(temperature=1.5, min_p=0.2, top_k=4, top_p=0.6),
    Sampling(temperature=0),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_restricted_distribution_is_that_of_plain_loops(sampling: Sampling) -> None:
    logits = 2 * torch.randn(50, 19, generator=torch.Generator().manual_seed(0))
    logprobs = restrict(temper(logits, sampling.temperature), sampling)
    expected = torch.tensor([restricted(row, sampling) for row in logits.tolist()])
    torch.testing.assert_close(logprobs.exp(), expected, atol=1e-6, rtol=1e-5)


def cut(chances: list[float], **settings) -> list[float]:
    """What is left of a distribution, renormalized."""
    return restrict(torch.tensor([chances]).log(), Sampling(**settings)).exp()[0].tolist()


def test_ties_and_edges_are_cut_as_vllm_cuts_them() -> None:
    chances = [0.25, 0.5, 0.125, 0.125]
    assert cut(chances, top_k=3) == pytest.approx(chances)  # as likely as the last one kept
    assert cut(chances, top_k=2) == pytest.approx([1 / 3, 2 / 3, 0, 0])
    assert cut(chances, top_p=0.75) == pytest.approx([1 / 3, 2 / 3, 0, 0])  # exactly the mass is enough
    assert cut(chances, top_p=0.76) == pytest.approx([2 / 7, 4 / 7, 0, 1 / 7])  # of equal ones the last
    assert cut(chances, top_p=1e-6) == [0, 1, 0, 0]
    assert cut(chances, min_p=0.25) == pytest.approx(chances)  # exactly the share stays
    assert cut(chances, min_p=0.26) == pytest.approx([1 / 3, 2 / 3, 0, 0])
    assert cut(chances, min_p=0.99) == [0, 1, 0, 0]
    # min-p comes first: top-p then sees 1/3 and 2/3, of which 2/3 have the mass 0.6; before it they would not
    assert cut(chances, min_p=0.3, top_p=0.6) == [0, 1, 0, 0]
    assert cut(chances, top_p=0.6) == pytest.approx([1 / 3, 2 / 3, 0, 0])


@pytest.mark.parametrize(
    "settings", [{"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 9, "top_p": 0.8}], ids=str
)
def test_each_cut_is_that_of_transformers(settings: dict) -> None:
    logits = torch.randn(64, 50, generator=torch.Generator().manual_seed(2))
    if "top_p" not in settings:
        logits = (4 * logits).round() / 4  # ties
    warpers = {"top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper}
    expected = logits
    for name, value in settings.items():
        expected = warpers[name](value)(torch.zeros(64, 1, dtype=torch.long), expected)
    found = restrict(temper(logits, 1.0), Sampling(**settings))
    assert torch.equal(found.isneginf(), expected.isneginf())
    torch.testing.assert_close(found, expected.log_softmax(1))


def test_nothing_is_computed_anew_where_nothing_is_cut() -> None:
    logprobs = torch.randn(3, 5).log_softmax(1)
    assert restrict(logprobs, Sampling(temperature=0.5)) is logprobs
    assert restrict(logprobs, Sampling(temperature=0, top_k=2, top_p=0.1, min_p=0.9)) is logprobs


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
