"""The part `in_process` without vLLM: its settings, what vLLM is started with, what is said where it is missing."""

import os
import pickle
import random
import sys
from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tiny
import tiny_recipe
from engines.stand_in import Copy
from grpo_kit import InProcess, PolicySpec, RecipeError, VLLMSampler
from grpo_kit.cli import app
from grpo_kit.engines import ENGINES, Request, in_process as module
from grpo_kit.engines.probe import probe_rows, verify
from grpo_kit.engines.surroundings import own_process
from grpo_kit.policies import load_policy
from grpo_kit.run.engines import mistakes_of_engines, refuse_absent, too_short

EXTRA = "needs vLLM: pip install 'grpo-kit[vllm]'"


@pytest.fixture
def without(monkeypatch):
    """A machine without vLLM."""
    monkeypatch.setattr(module, "find_spec", lambda name: None)


class InprocClient(SimpleNamespace):
    """What vLLM calls the core of an engine that is in this process."""


class FakeLLM:
    """Notes what it is started with and what is called; answers as the policy's copy where it is asked to score."""

    started = ()
    policy = None
    fault = None
    prefix_free = True

    def __init__(self, **arguments):
        if self.fault:
            raise RuntimeError("engine core failed") from self.fault
        self.arguments, self.calls, self.version = arguments, [], None
        self.files = sorted(path.name for path in Path(arguments["model"]).glob("*")) if arguments["model"] else []
        self.environment = dict(os.environ)
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        torch.set_num_threads = None
        core = InprocClient(shutdown=lambda: self.calls.append("shutdown"))
        self.llm_engine = SimpleNamespace(engine_core=core)
        self.model_config = SimpleNamespace(max_model_len=arguments["max_model_len"] or 64, get_vocab_size=lambda: 12)
        self.copy = Copy(FakeLLM.policy, deaf=False)
        FakeLLM.started.append(self)

    def get_world_size(self):
        return self.arguments["tensor_parallel_size"]

    def collective_rpc(self, name, kwargs):
        self.calls.append((name, *kwargs))
        if "weights_iterator" in kwargs:
            self.copy.own.model.load_state_dict(dict(kwargs["weights_iterator"]))
        else:
            self.files = sorted(path.name for path in Path(kwargs["weights_path"]).glob("*"))
            self.copy.own.model.load_state_dict(FakeLLM.policy.model.state_dict())

    def reset_prefix_cache(self):
        self.calls.append("reset_prefix_cache")
        return self.prefix_free

    def update_weight_version(self, version):
        self.version = version

    def generate(self, prompts, settings, use_tqdm):
        torch.rand(3)  # it draws from the global generator
        if getattr(settings, "prompt_logprobs", None) is None:
            return [self._written(own.n, own.value) for own in settings]
        rows = [tuple(own["prompt_token_ids"]) for own in prompts]
        said = self.copy.score([row[:1] for row in rows], [row[1:] for row in rows], 0)
        return [SimpleNamespace(prompt_logprobs=self._positions(row, own)) for row, own in zip(rows, said, strict=True)]

    def _positions(self, row, said):
        values = zip(row[1:], said.logprobs, strict=True)
        return [None, *({token: SimpleNamespace(logprob=value)} for token, value in values)]

    def _written(self, count, value):
        said = [{5: SimpleNamespace(logprob=value)}]
        one = SimpleNamespace(token_ids=[5], logprobs=said, finish_reason="length", stop_reason=None)
        return SimpleNamespace(outputs=[one] * count)


@pytest.fixture
def fake(monkeypatch):
    """A module `vllm` whose LLM is the fake."""
    policy = tiny.policy("small", dtype=torch.float32)
    monkeypatch.setattr(FakeLLM, "started", [])
    monkeypatch.setattr(FakeLLM, "policy", policy)
    vllm = ModuleType("vllm")
    vllm.LLM = FakeLLM
    vllm.EngineArgs = make_dataclass("EngineArgs", ["model", "max_num_seqs", "block_size"])
    vllm.SamplingParams = lambda **settings: SimpleNamespace(value=-1.0, **settings)
    core = ModuleType("vllm.v1.engine.core")
    core.cleanup_dist_env_and_memory = lambda: None
    for name, own in (
        ("vllm", vllm),
        ("vllm.v1", ModuleType("vllm.v1")),
        ("vllm.v1.engine", ModuleType("e")),
        ("vllm.v1.engine.core", core),
    ):
        monkeypatch.setitem(sys.modules, name, own)
    monkeypatch.setattr(module, "find_spec", lambda name: vllm)
    return policy


ARGUMENTS = {
    "use_tqdm_on_load": False,
    "disable_log_stats": True,
    "max_model_len": None,
    "gpu_memory_utilization": 0.3,
    "tensor_parallel_size": 1,
    "enforce_eager": False,
    "max_logprobs": 20,
    "logprobs_mode": "processed_logprobs",
    "generation_config": "vllm",
    "trust_remote_code": False,
}
CHANGES = [
    ({}, {"dtype": "float32"}),
    ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    ({"max_model_len": 48}, {"max_model_len": 48}),
    ({"gpu_memory_utilization": 0.5}, {"gpu_memory_utilization": 0.5}),
    ({"kv_cache_gib": 0.5}, {"kv_cache_memory_bytes": 2**29}),
    ({"tensor_parallel_size": 2}, {"tensor_parallel_size": 2}),
    ({"enforce_eager": True}, {"enforce_eager": True}),
    ({"max_logprobs": 50}, {"max_logprobs": 50}),
    ({"options": {"max_num_seqs": 8}}, {"max_num_seqs": 8}),
]


@pytest.mark.parametrize(("settings", "changed"), CHANGES, ids=str)
def test_every_setting_reaches_vllm(fake, settings, changed):
    running = fake.engine(InProcess(**settings))
    (llm,) = FakeLLM.started
    expected = {"dtype": "float32", **ARGUMENTS, **changed, "model": llm.arguments["model"]}
    assert llm.arguments == expected
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {*llm.files}
    assert not Path(llm.arguments["model"]).exists()
    assert (running.version, llm.version, running.dtype) == (0, "0", expected["dtype"])
    assert {key for own, _ in CHANGES for key in own} == {field.name for field in fields(InProcess)}


@pytest.mark.parametrize(
    ("stored", "autocast", "dtype"),
    [(torch.float64, None, "float32"), (torch.float32, torch.bfloat16, "bfloat16"), (torch.float16, None, "float16")],
)
def test_without_a_precision_it_computes_in_the_policys(stored, autocast, dtype):
    policy = replace(tiny.policy("small", dtype=stored), autocast=autocast)
    assert InProcess().arguments(policy, "")["dtype"] == dtype


def test_a_policy_without_weights_starts_where_it_came_from(fake, tmp_path):
    fake.save(tmp_path)
    empty = replace(fake, model=type(fake.model)(fake.model.config).to("meta"))
    empty.model.config.name_or_path = str(tmp_path)
    empty.engine(InProcess())
    assert FakeLLM.started[0].arguments["model"] == str(tmp_path)


def test_starting_leaves_the_process_as_it_was(fake, monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)
    set_threads = torch.set_num_threads
    chance = torch.get_rng_state()
    before = dict(os.environ)
    running = fake.engine(InProcess())
    inside = FakeLLM.started[0].environment
    assert (inside["VLLM_ENABLE_V1_MULTIPROCESSING"], inside["VLLM_LOGGING_LEVEL"]) == ("0", "ERROR")
    running.write(
        [Request(prompt=(2,), samples=1, seed=0)],
        module.Limits(sampling=tiny.Sampling(), max_new_tokens=1, stop=(), eos_ids=frozenset({1})),
    )
    assert dict(os.environ) == before
    assert torch.set_num_threads is set_threads
    assert torch.equal(torch.get_rng_state(), chance)


def test_chance_is_as_before():
    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    with own_process():
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        torch.set_default_dtype(torch.float16)
    assert (random.getstate(), str(np.random.get_state())) == states[:2]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert torch.get_default_dtype() == torch.float32


def test_what_the_user_set_is_kept(monkeypatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    with own_process():
        assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"


def moved(policy):
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight += 0.1
    policy.version += 1


@pytest.mark.parametrize(("gpus", "way"), [(1, "weights_iterator"), (2, "weights_path")])
def test_a_sync_hands_over_drops_and_proves(fake, gpus, way):
    running = fake.engine(InProcess(tensor_parallel_size=gpus))
    (llm,) = FakeLLM.started
    moved(fake)
    running.sync(fake)
    assert llm.calls == [("reload_weights", way), "reset_prefix_cache"]
    assert (llm.version, running.version) == ("1", 1)
    if gpus == 2:
        assert "model.safetensors" in llm.files
    running.close()
    assert llm.calls[-1] == "shutdown"
    running.close()
    assert llm.calls.count("shutdown") == 1


def test_a_sync_that_did_not_arrive_or_left_old_states_is_an_error(fake, monkeypatch):
    running = fake.engine(InProcess())
    moved(fake)
    monkeypatch.setattr(FakeLLM, "prefix_free", False)
    with pytest.raises(ValueError, match="its engine is at work and keeps what it computed with old weights"):
        running.sync(fake)
    monkeypatch.setattr(FakeLLM, "prefix_free", True)
    monkeypatch.setattr(FakeLLM, "collective_rpc", lambda self, name, kwargs: None)
    running._llm.copy = Copy(tiny.policy("small", dtype=torch.float32), deaf=False)
    with pytest.raises(
        ValueError, match=r"its engine does not have the weights of version 1: .* and 0.001 is what rounding"
    ):
        running.sync(fake)
    assert running.version == 0


def test_why_it_does_not_start_is_the_innermost_reason(fake, monkeypatch):
    monkeypatch.setattr(FakeLLM, "fault", ValueError("No available memory.\nmore"))
    with pytest.raises(ValueError, match=r"^policy 'small': vLLM does not start: No available memory$"):
        fake.engine(InProcess())
    assert fake.engines == {}


def test_a_model_that_it_computes_otherwise_is_refused_and_stopped(fake, monkeypatch):
    monkeypatch.setattr(FakeLLM, "policy", tiny.policy("small", seed=1, dtype=torch.float32))
    with pytest.raises(ValueError, match="its engine does not have the weights of version 0"):
        fake.engine(InProcess())
    assert FakeLLM.started[0].calls == ["shutdown"]


def test_rows_without_room_or_a_distribution_are_named(fake, monkeypatch):
    running = fake.engine(InProcess(max_model_len=40))
    limits = module.Limits(sampling=tiny.Sampling(), max_new_tokens=30, stop=(), eos_ids=frozenset({1}))
    ask = Request(prompt=(2,) * 10, samples=2, seed=0)
    assert [len(own) for own in running.write([ask, ask], limits)] == [2, 2]
    with pytest.raises(
        ValueError, match="a row of 11 tokens with 30 new ones does not fit into its engine's max_model_len = 40"
    ):
        running.write([ask, replace(ask, prompt=(2,) * 11)], limits)
    with pytest.raises(ValueError, match="asked for the 21 likeliest tokens, and its engine gives 20"):
        running.score([(2,)], [(3,)], 21)
    sys.modules["vllm"].SamplingParams = lambda **settings: SimpleNamespace(value=float("nan"), **settings)
    with pytest.raises(ArithmeticError, match=r"policy 'small' \(version 0\) gives prompt 0 no distribution"):
        running.write([ask], limits)


def test_settings_are_data():
    part = InProcess(options={"max_num_seqs": 8, "compilation_config": {"level": 1}})
    assert part == pickle.loads(pickle.dumps(part))
    assert len({part, replace(part), replace(part, dtype="float16")}) == 2
    assert ENGINES.read({"kind": "in_process", "options": {"max_num_seqs": 8}}) == InProcess(
        options={"max_num_seqs": 8}
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_model_len": 32}, "greater than 32"),
        ({"gpu_memory_utilization": 0.0}, "greater than 0"),
        ({"gpu_memory_utilization": 1.1}, "less than or equal to 1"),
        ({"kv_cache_gib": 0.0}, "greater than 0"),
        ({"dtype": "float64"}, "'float32', 'bfloat16' or 'float16'"),
        ({"options": {"model": "x"}}, "'model' is decided by the policy's weights; remove it"),
        ({"options": {"generation_config": "auto"}}, "'generation_config' is decided by none but the recipe's own"),
        ({"options": {"logprobs_mode": "raw_logprobs"}}, "'logprobs_mode' is decided by the log-probabilities of the"),
        ({"options": {"enforce_eager": True}}, "'enforce_eager' is a key of its own, beside options; give it there"),
    ],
)
def test_settings_that_cannot_be(settings, problem):
    with pytest.raises(ValueError, match=problem):
        InProcess(**settings)


def test_an_option_that_vllm_does_not_have(fake):
    problem = InProcess(options={"max_num_sqes": 4}).absent()
    assert problem == "options: vLLM has no argument 'max_num_sqes'. Did you mean 'max_num_seqs'?"
    assert InProcess(options={"max_num_seqs": 4}).absent() is None


@pytest.mark.usefixtures("without")
def test_without_vllm_the_extra_is_named():
    with pytest.raises(ValueError, match=r"policy 'small': its engine needs vLLM: pip install 'grpo-kit\[vllm\]'"):
        tiny.policy("small").engine(InProcess())


def recipe(**settings):
    return tiny_recipe.recipe(sampler=VLLMSampler(policy="small", samples=4, max_new_tokens=4, **settings))


@pytest.mark.usefixtures("without")
def test_a_recipe_says_what_the_machine_lacks():
    (mistake,) = mistakes_of_engines(recipe())
    assert mistake.startswith(f"sampler.engine: {EXTRA}")
    with pytest.raises(RecipeError, match="1 mistake"):
        refuse_absent(recipe())
    assert mistakes_of_engines(tiny_recipe.recipe()) == []


SETTINGS = ["--set", "sampler.kind=vllm"]


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("command", ["check", "run"])
def test_check_and_run_refuse_and_explain_does_not(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, [command, "grpo", *SETTINGS])
    assert said.exit_code == 1
    assert f"sampler.engine: {EXTRA}" in said.output
    assert not (tmp_path / "runs").exists()
    explained = CliRunner().invoke(app, ["explain", "grpo", *SETTINGS])
    assert explained.exit_code == 0, explained.output
    assert "in_process" in explained.output


def test_an_engine_without_room_for_the_rows_is_a_mistake():
    short = recipe(engine=InProcess(max_model_len=40))
    assert list(too_short(short, 36)) == []
    (mistake,) = too_short(short, 37)
    assert mistake.startswith(
        "sampler.engine.max_model_len: the longest prompt (37 tokens) and its completion need 41 "
    )


def test_the_probe_has_tokens_from_all_over_the_vocabulary_and_sees_any_change():
    policy = load_policy("small", PolicySpec(model="tiny:small"), live=True)
    prompt, completion = probe_rows(policy)
    assert (len(prompt), len(completion)) == (8, 24)
    assert len({*prompt, *completion}) > policy.vocabulary / 2
    assert all(0 <= token < policy.vocabulary for token in (*prompt, *completion))
    running, chance = Copy(policy, deaf=True), torch.Generator().manual_seed(0)
    assert verify(running, policy, "float32") < 1e-5
    for weight in policy.model.parameters():
        with torch.no_grad():
            change = 0.1 * weight.abs().mean() * torch.randn(weight.shape, generator=chance)
            weight += change
        with pytest.raises(ValueError, match="does not have the weights"):
            verify(running, policy, "float32")
        with torch.no_grad():
            weight -= change
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="differ by nan"):
        verify(running, policy, "bfloat16")
