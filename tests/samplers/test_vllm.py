"""The sampler `vllm` on an engine that stands in for vLLM: rows, seeds, versions, syncs."""

from dataclasses import replace

import pytest
import torch

import tiny
from engines.stand_in import StandIn
from grpo_kit import InProcess, Prompts, Sampling, VLLMSampler
from grpo_kit.data import PromptSet
from grpo_kit.samplers import SAMPLERS
from grpo_kit.samplers.mixed import Mixed, Share

SAMPLER = VLLMSampler(policy="small", samples=3, max_new_tokens=6, engine=StandIn())
PROMPTS = Prompts(ids=((2, 3), (4,), (5, 6, 7), (2, 3)), groups=(7, 8, 9, 12), columns={"answer": tuple("abcd")})
NOTHING = PromptSet(ids=(), columns={}, skipped=())


@pytest.fixture
def policy():
    return tiny.policy("small")


def write(policy, sampler=SAMPLER, seed=0):
    return sampler(PROMPTS, {"small": policy}, torch.Generator().manual_seed(seed))


@torch.no_grad()
def move(policy):
    for weight in policy.model.parameters():
        weight += 0.1
    policy.version += 1


def test_rows_come_prompt_after_prompt_with_their_log_probabilities(policy):
    rows = write(policy)
    assert rows.groups.tolist() == [group for group in PROMPTS.groups for _ in range(3)]
    assert rows.prompts == tuple(ids for ids in PROMPTS.ids for _ in range(3))
    assert rows.columns["answer"] == (*"aaabbbcccddd",)
    scored = policy.score_all(rows).logprobs
    torch.testing.assert_close(rows.behavior.logprobs.double(), scored, rtol=0, atol=1e-5)
    assert torch.equal(rows.behavior.model_logprobs, rows.behavior.logprobs)
    assert not rows.behavior.logprobs[~rows.mask].any()
    assert rows.texts == tuple(
        policy.tokenizer.decode(own[keep].tolist(), skip_special_tokens=True)
        for own, keep in zip(rows.tokens, rows.mask, strict=True)
    )
    assert rows.temperature == 1


def test_the_generator_decides_and_every_prompt_has_chance_of_its_own(policy):
    first, again, other = write(policy), write(policy), write(policy, seed=1)
    assert torch.equal(first.tokens, again.tokens)
    assert first.texts != other.texts
    assert first.texts[:3] != first.texts[9:]  # one prompt twice
    (requests, limits), *_ = policy.engine(StandIn()).asked
    assert len({request.seed for request in requests}) == 4
    assert all(0 <= request.seed < 2**62 and request.samples == 3 for request in requests)
    assert limits.eos_ids == policy.eos_ids


def test_greedy_rows_come_last_and_leave_the_others_as_they_are(policy):
    sampler = replace(SAMPLER, temperature=0.7, top_k=4)
    alone, rows = write(policy, sampler), write(policy, replace(sampler, greedy=True))
    assert rows.greedy.tolist() == [False] * 12 + [True] * 4
    assert rows.groups.tolist()[12:] == list(PROMPTS.groups)
    assert torch.equal(rows.take(range(12)).tokens, alone.tokens)
    assert [own.sampling for own in rows.behavior.writers] == [
        Sampling(temperature=0.7, top_k=4),
        Sampling(temperature=0),
    ]
    assert (rows.behavior.writer[12:] == 1).all()
    assert (rows.behavior.writer[:12] == 0).all()
    of_model = rows.behavior.model_logprobs
    assert of_model[:12][rows.mask[:12]].isnan().all()  # cut, and the engine does not say
    torch.testing.assert_close(of_model[12:], rows.behavior.logprobs[12:])
    assert alone.behavior.model_logprobs is None


def test_the_text_ends_before_a_stop_string(policy):
    rows = write(policy, replace(SAMPLER, samples=16, stop=("c", "d e")))
    assert "stop" in rows.stop_reasons
    for text, reason, own in zip(rows.texts, rows.stop_reasons, rows.tokens, strict=True):
        assert "c" not in text
        if reason == "stop":
            assert "c" in policy.tokenizer.decode(own.tolist()) or "d e" in policy.tokenizer.decode(own.tolist())


def test_rows_carry_the_version_of_the_weights_that_wrote_them(policy):
    policies, before = {"small": policy}, write(policy)
    running = policy.engine(SAMPLER.engine)
    assert SAMPLER.renew(1, policies, NOTHING, {}) == {}
    move(policy)
    stale = write(policy)
    assert torch.equal(stale.tokens, before.tokens)
    assert stale.behavior.writers[0].version == 0
    assert SAMPLER.renew(2, policies, NOTHING, {}) == {"sampler/synced/small": 1.0}
    fresh = write(policy)
    assert fresh.behavior.writers[0].version == 1
    torch.testing.assert_close(fresh.behavior.logprobs.double(), policy.score_all(fresh).logprobs, rtol=0, atol=1e-5)
    assert SAMPLER.renew(3, policies, NOTHING, {}) == {}
    assert running.syncs == 1


def test_syncs_come_every_so_many_steps(policy):
    sampler, synced = replace(SAMPLER, sync_every=3), []
    for step in range(1, 9):
        synced += [step] if sampler.renew(step, {"small": policy}, NOTHING, {}) else []
        move(policy)
    assert synced == [4, 7]


def test_a_sync_that_does_not_arrive_ends_the_run(policy):
    deaf = replace(SAMPLER, engine=StandIn(deaf=True))
    write(policy, deaf)
    move(policy)
    with pytest.raises(
        ValueError, match=r"'small': its engine does not have the weights of version 1: on the probe .* differ by"
    ):
        deaf.renew(2, {"small": policy}, NOTHING, {})
    assert policy.engine(deaf.engine).version == 0


def test_a_mixture_syncs_the_engines_inside(policy):
    share = Share(share=0.5, sampler=SAMPLER)
    mixture = Mixed(of=(share, replace(share, sampler=replace(SAMPLER, samples=2))))
    mixture(PROMPTS, {"small": policy}, torch.Generator().manual_seed(0))
    move(policy)
    assert mixture.renew(2, {"small": policy}, NOTHING, {}) == {"sampler/synced/small": 1.0}
    assert policy.engine(SAMPLER.engine).syncs == 1


def test_an_engine_is_started_once_and_stopped_with_its_policy(policy):
    running = policy.engine(StandIn())
    assert policy.engine(StandIn()) is running
    assert policy.engine(StandIn(deaf=True)) is not running
    copied = replace(policy, name="other")
    assert copied.engines == {}
    policy.close()
    assert running.closed
    assert policy.engines == {}


@pytest.mark.parametrize(
    ("key", "refused", "allowed"),
    [
        ("temperature", [0.0, 0.009, 2.1], [0.01, 2.0]),
        ("top_p", [0.0, 1.1], [0.01, 1.0]),
        ("min_p", [-0.1, 1.0], [0.0, 0.99]),
        ("top_k", [-1], [0, 5]),
        ("sync_every", [0], [1, 9]),
        ("stop", [("",)], [("a",)]),
    ],
)
def test_the_edges_of_its_settings(key, refused, allowed):
    for value in allowed:
        assert getattr(replace(SAMPLER, **{key: value}), key) == value
    for value in refused:
        with pytest.raises(ValueError, match=key):
            replace(SAMPLER, **{key: value})


def test_a_recipe_names_the_engine_or_takes_the_one_in_process():
    given = {"kind": "vllm", "policy": "small", "samples": 2, "max_new_tokens": 4}
    assert SAMPLERS.read(given).engine == InProcess()
    engine = {"kind": "in_process", "kv_cache_gib": 2.0, "options": {"max_num_seqs": 8}}
    assert SAMPLERS.read(given | {"engine": engine}).engine == InProcess(kv_cache_gib=2.0, options={"max_num_seqs": 8})
