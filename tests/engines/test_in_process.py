"""Real vLLM in this process: what it writes and scores against the trainer's own numbers, and its weights."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from rich.console import Console

from engines.models import small_with_wide_heads
from grpo_kit import InProcess, PolicySpec, Prompts, Sampling, TransformersSampler, VLLMSampler, read_recipe
from grpo_kit.data import PromptSet
from grpo_kit.engines.probe import verify
from grpo_kit.policies import load_policy
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs
from grpo_kit.samplers.decoding import restrict, temper

pytestmark = pytest.mark.vllm
ENGINE = InProcess(max_model_len=256, kv_cache_gib=0.1, enforce_eager=True)
SAMPLER = VLLMSampler(policy="small", samples=4, max_new_tokens=40, engine=ENGINE)
QUESTIONS = ("3+4=", "17-8=", "12+5+1=", "9-9=")
CLOSE = {"rtol": 0.0, "atol": 1e-4}
"""float32, two programs."""


def load(name="small", **changes):
    model = small_with_wide_heads() if name == "small" else "tiny:large"
    return load_policy(name, PolicySpec(model=model, **changes), live=True)


@pytest.fixture(scope="module")
def policy():
    own = load()
    yield own
    own.close()


@pytest.fixture
def moved():
    """A policy of its own, to be changed."""
    own = load()
    yield own
    own.close()


def prompts_of(policy, texts=QUESTIONS):
    ids = tuple(tuple(policy.tokenizer(text)["input_ids"]) for text in texts)
    return Prompts(ids=ids, groups=tuple(range(10, 10 + len(ids))), columns={"question": tuple(texts)})


def write(policy, sampler=SAMPLER, seed=0, prompts=None):
    prompts = prompts_of(policy) if prompts is None else prompts
    return sampler(prompts, {"small": policy}, torch.Generator().manual_seed(seed))


def renew(policy):
    nothing = PromptSet(ids=(), columns={}, skipped=())
    return SAMPLER.renew(2, {"small": policy}, nothing, {})


@torch.no_grad()
def move(policy, size=0.05, seed=0):
    """A large update."""
    generator = torch.Generator().manual_seed(seed)
    for weight in policy.model.parameters():
        weight += size * torch.randn(weight.shape, generator=generator)
    policy.version += 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_log_probabilities_are_those_of_a_scoring_pass(policy, temperature):
    rows = write(policy, replace(SAMPLER, temperature=temperature, samples=8))
    scored = policy.score_all(rows, temperature=temperature).logprobs
    torch.testing.assert_close(rows.behavior.logprobs, scored, **CLOSE)
    assert torch.equal(rows.behavior.model_logprobs, rows.behavior.logprobs)
    assert (rows.behavior.logprobs[rows.mask] < -0.1).any()


def test_row_i_belongs_to_prompt_i_over_the_samples(policy):
    rows = write(policy)
    assert rows.groups.tolist() == [group for group in range(10, 14) for _ in range(4)]
    assert rows.columns["question"] == tuple(text for text in QUESTIONS for _ in range(4))
    prompts = prompts_of(policy)
    assert rows.prompts == tuple(ids for ids in prompts.ids for _ in range(4))
    (writer,) = rows.behavior.writers
    assert (writer.policy, writer.version, writer.sampling) == ("small", 0, Sampling())


def test_the_generator_decides_the_rows_and_the_samples_of_a_prompt_differ(policy):
    first, again, other = write(policy), write(policy), write(policy, seed=1)
    assert torch.equal(first.tokens, again.tokens)
    assert first.texts == again.texts
    assert first.texts != other.texts
    for group in range(4):
        assert len(set(first.texts[4 * group : 4 * group + 4])) > 1
    same = prompts_of(policy, ("3+4=",) * 4)
    texts = write(policy, prompts=same).texts
    assert len({texts[4 * number : 4 * number + 4] for number in range(4)}) == 4


def test_every_row_ends_for_its_reason(policy):
    eos, stops = policy.eos_ids, ("77", "+4")
    rows = write(policy, replace(SAMPLER, samples=32, max_new_tokens=18, temperature=1.3, stop=stops))
    assert set(rows.stop_reasons) == {"eos", "stop", "length"}
    decode = partial(policy.tokenizer.decode, skip_special_tokens=False)
    for row, reason in enumerate(rows.stop_reasons):
        tokens = rows.tokens[row][rows.mask[row]].tolist()
        assert not eos & set(tokens[:-1])
        assert (tokens[-1] in eos) == (reason == "eos")
        assert any(stop in decode(tokens) for stop in stops) == (reason == "stop")
        assert not any(stop in text for stop in stops for text in (decode(tokens[:-1]), rows.texts[row]))
        assert len(tokens) == 18 if reason == "length" else len(tokens) <= 18


def test_greedy_rows_are_those_of_transformers_with_untempered_log_probabilities(policy):
    sampler = replace(SAMPLER, greedy=True, temperature=0.7, top_k=4)
    rows = write(policy, sampler)
    assert rows.greedy.tolist() == [False] * 16 + [True] * 4
    ours = TransformersSampler(policy="small", samples=1, max_new_tokens=40, temperature=0)
    alone, greedy = write(policy, ours), rows.take(range(16, 20))
    assert torch.equal(greedy.tokens, alone.tokens)
    assert greedy.stop_reasons == alone.stop_reasons
    torch.testing.assert_close(greedy.behavior.logprobs, alone.behavior.logprobs, **CLOSE)
    torch.testing.assert_close(greedy.behavior.model_logprobs, policy.score_all(greedy).logprobs, **CLOSE)
    assert rows.take(range(16)).behavior.model_logprobs.isnan()[rows.mask[:16]].all()


CUTS = (
    {"top_k": 3},
    {"top_p": 0.8},
    {"min_p": 0.2},
    {"temperature": 1.5, "top_k": 5, "top_p": 0.9},
    {"temperature": 1.3, "min_p": 0.1, "top_k": 6, "top_p": 0.7},
)


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_log_probabilities_of_a_cut_distribution(policy, cuts):
    rows = write(policy, replace(SAMPLER, samples=8, **cuts))
    sampling = replace(Sampling(), **cuts)
    logits = policy.logits(rows)[rows.mask]
    expected = restrict(temper(logits, sampling.temperature), sampling)
    found = expected.gather(1, rows.tokens[rows.mask][:, None])[:, 0]
    torch.testing.assert_close(rows.behavior.logprobs[rows.mask], found, **CLOSE)
    whole = policy.score_all(rows, temperature=sampling.temperature).logprobs[rows.mask]
    assert (found - whole).max() > 0.01
    assert rows.behavior.model_logprobs is None


def test_no_token_beyond_the_shared_vocabulary_is_written(policy):
    fewer = replace(policy, vocabulary=14)
    rows = write(fewer, replace(SAMPLER, samples=8))
    assert int(rows.tokens.max()) < 14
    torch.testing.assert_close(rows.behavior.logprobs, fewer.score_all(rows).logprobs, **CLOSE)
    assert int(write(policy).tokens.max()) >= 14
    fewer.close()


def test_a_sync_changes_what_is_sampled_to_what_a_fresh_engine_samples(moved):
    before = write(moved)
    move(moved)
    stale = write(moved)
    assert torch.equal(stale.tokens, before.tokens)
    assert stale.behavior.writers[0].version == 0
    assert renew(moved) == {"sampler/synced/small": 1.0}
    assert renew(moved) == {}
    rows = write(moved)
    assert rows.behavior.writers[0].version == 1
    assert not torch.equal(rows.tokens, before.tokens)
    torch.testing.assert_close(rows.behavior.logprobs, moved.score_all(rows).logprobs, **CLOSE)
    moved.close()
    fresh = write(moved)
    assert torch.equal(fresh.tokens, rows.tokens)
    torch.testing.assert_close(fresh.behavior.logprobs, rows.behavior.logprobs, **CLOSE)


def test_the_weights_arrive_through_a_folder_too(moved, monkeypatch):
    running = moved.engine(ENGINE)
    monkeypatch.setattr(running._llm, "get_world_size", lambda: 2)  # as where several GPUs share the model
    move(moved)
    running.sync(moved)
    rows = write(moved)
    torch.testing.assert_close(rows.behavior.logprobs, moved.score_all(rows).logprobs, **CLOSE)


LONG = "+".join(str(number) for number in range(10, 62)) + "="


@pytest.mark.parametrize("dropped", [True, False])
def test_what_was_computed_with_old_weights_is_dropped(moved, monkeypatch, dropped):
    greedy = replace(SAMPLER, samples=1, top_k=1, max_new_tokens=8)
    prompts = prompts_of(moved, (LONG,))
    assert len(prompts.ids[0]) > 128  # a block of the cache
    write(moved, greedy, prompts=prompts)
    running = moved.engine(ENGINE)
    if not dropped:  # the fault: this test sees it
        monkeypatch.setattr(running._llm, "reset_prefix_cache", lambda: True)
    move(moved)
    running.sync(moved)
    rows = write(moved, replace(SAMPLER, samples=1, max_new_tokens=8), prompts=prompts)
    gap = (rows.behavior.logprobs - moved.score_all(rows).logprobs).abs().max()
    assert (gap < 1e-4) == dropped


def test_a_sync_that_did_not_happen_is_found(moved, monkeypatch):
    running = moved.engine(ENGINE)
    assert verify(running, moved, "float32") < 1e-4
    monkeypatch.setattr(running, "_load", lambda policy: None)
    move(moved, size=0.01)
    with pytest.raises(ValueError, match=r"policy 'small': its engine does not have the weights of version 1: .* by "):
        running.sync(moved)
    assert running.version == 0


def test_an_adapter_arrives_merged(monkeypatch):
    pytest.importorskip("peft")
    from grpo_kit.policies.lora import Lora

    adapted = load(lora=Lora(rank=4))
    before = write(adapted)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in adapted.model.parameters():
            if weight.requires_grad:
                weight += 0.2 * torch.randn(weight.shape, generator=generator)
    adapted.version += 1
    renew(adapted)
    rows = write(adapted)
    torch.testing.assert_close(rows.behavior.logprobs, adapted.score_all(rows).logprobs, **CLOSE)
    assert not torch.equal(rows.tokens, before.tokens)
    adapted.close()


def test_it_scores_completions_as_the_policy_does(policy):
    rows, running = write(policy), policy.engine(ENGINE)
    completions = [tuple(row[keep].tolist()) for row, keep in zip(rows.tokens, rows.mask, strict=True)]
    said = running.score(rows.prompts, completions, 3)
    logits = policy.logits(rows).log_softmax(-1)
    for row, own in enumerate(said):
        ours = logits[row][rows.mask[row]]
        at = torch.arange(len(ours))
        torch.testing.assert_close(torch.tensor(own.logprobs), ours[at, list(completions[row])], **CLOSE)
        top = ours.topk(3)
        torch.testing.assert_close(torch.tensor(own.top_logprobs), top.values, **CLOSE)
        assert torch.tensor(own.top_ids).shape == top.indices.shape
    assert running.score(rows.prompts[:1], completions[:1], 0)[0].top_ids == ()
    with pytest.raises(
        ValueError, match=r"asked for the 21 likeliest tokens, and its engine gives 20. Raise max_logprobs"
    ):
        running.score(rows.prompts[:1], completions[:1], 21)


def test_a_row_that_does_not_fit_is_named(policy):
    prompts = prompts_of(policy, (LONG,))
    with pytest.raises(ValueError, match=r"policy 'small': a row of \d+ tokens with 200 new ones does not fit"):
        write(policy, replace(SAMPLER, max_new_tokens=200), prompts=prompts)
    rows = write(policy, replace(SAMPLER, max_new_tokens=256 - len(prompts.ids[0])), prompts=prompts)
    assert len(rows) == 4


def test_damaged_weights_are_named(moved):
    running = moved.engine(ENGINE)
    with torch.no_grad():
        moved.model.get_output_embeddings().weight.fill_(torch.nan)
    running._load(moved)
    with pytest.raises(ArithmeticError, match=r"policy 'small' \(version 0\) gives prompt 0 no distribution"):
        write(moved)


@pytest.mark.parametrize(
    ("settings", "model", "problem"),
    [
        (
            {"options": {"max_num_sqes": 4}},
            "wide",
            r"options: vLLM has no argument 'max_num_sqes'. Did you mean 'max_num_seqs'?",
        ),
        ({"options": {"max_num_seqs": 0}}, "wide", "policy 'small': vLLM does not start: "),
        ({"kv_cache_gib": 1e6}, "wide", "policy 'small': vLLM does not start: .*vailable memory"),
        ({}, "tiny:small", "policy 'small': vLLM cannot run its model: Unsupported CPU attention configuration"),
    ],
)
def test_what_vllm_cannot_do_is_a_sentence(settings, model, problem):
    spec = PolicySpec(model=small_with_wide_heads() if model == "wide" else model)
    own = load_policy("small", spec, live=False)
    with pytest.raises(ValueError, match=problem):
        own.engine(replace(ENGINE, **settings))
    assert own.engines == {}


def test_the_policy_beside_it_computes_as_before(moved):
    rows = write(moved, TransformersSampler(policy="small", samples=4, max_new_tokens=8))

    def state():
        moved.model.zero_grad()
        moved.score(rows).logprobs.sum().backward()
        gradient = torch.cat([weight.grad.flatten() for weight in moved.model.parameters()])
        return gradient.clone(), torch.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()

    before = state()
    write(moved)
    after = state()
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert before[2:] == after[2:]
    torch.set_num_threads(torch.get_num_threads())


def test_two_engines_in_one_process_and_one_outlives_the_other(moved):
    large = load("large")
    sampler = replace(SAMPLER, policy="large")
    prompts, policies = prompts_of(moved), {"small": moved, "large": large}
    write(moved)
    first = sampler(prompts, policies, torch.Generator().manual_seed(0))
    torch.testing.assert_close(first.behavior.logprobs, large.score_all(first).logprobs, **CLOSE)
    moved.close()
    again = sampler(prompts, policies, torch.Generator().manual_seed(0))
    assert torch.equal(first.tokens, again.tokens)
    large.close()


def test_bfloat16_is_close_and_named_so():
    own = load(dtype="bfloat16")
    running = own.engine(ENGINE)
    assert running.dtype == "bfloat16"
    rows = write(own)
    gap = (rows.behavior.logprobs - own.score_all(rows).logprobs).abs()[rows.mask]
    assert 0 < float(gap.mean()) < 0.05
    own.close()


def run(name, tmp_path, *settings):
    engine = "sampler.engine={ kind = 'in_process', max_model_len = 256, kv_cache_gib = 0.1, enforce_eager = true }"
    given = ["sampler.kind=vllm", engine, "prompts_per_step=4", *settings]
    recipe = replace(read_recipe(name, settings=given), evaluation=None)
    session = start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=Console(quiet=True))
    assert session.run() == 0
    assert all(policy.engines == {} for policy in session.policies.values())
    return session.folder.read_metrics()


def test_grpo_takes_two_steps(tmp_path):
    metrics = run("grpo", tmp_path, f"policies.small.model={small_with_wide_heads()}", "steps=2")
    assert [line["step"] for line in metrics] == [1, 2]
    assert [line.get("sampler/synced/small") for line in metrics] == [None, 1.0]
    assert all(line["sampler/mismatch/small/max"] < 1e-4 for line in metrics)


def test_codistill_takes_five_steps_with_a_sync_before_each(tmp_path):
    metrics = run("codistill", tmp_path, f"policies.small.model={small_with_wide_heads()}", "steps=5")
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5]
    assert [line.get("sampler/synced/small") for line in metrics] == [None, 1.0, 1.0, 1.0, 1.0]
    for line in metrics:
        assert line["sampler/age/small"] == 0
        assert line["sampler/mismatch/small/max"] < 1e-3
        assert abs(line["learner/small/policy/log_ratio_to_behavior"]) < 1e-4


def test_rows_grow_older_between_syncs(tmp_path):
    model = f"policies.small.model={small_with_wide_heads()}"
    metrics = run("grpo", tmp_path, model, "steps=4", "sampler.sync_every=2")
    assert [line.get("sampler/synced/small") for line in metrics] == [None, None, 1.0, None]
    updates = metrics[0]["learner/small/version"]
    assert [line["sampler/age/small"] for line in metrics] == [0, updates, 0, updates]
