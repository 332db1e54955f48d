"""Real `vllm serve` on the CPU: what it writes and scores, weights sent at every step, and its death in mid-batch."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from rich.console import Console

import tiny
from engines.models import small_with_wide_heads
from engines.test_served_teacher import TOP_K, run
from grpo_kit import PolicySpec, Sampling, read_recipe
from grpo_kit.detail import Detail
from grpo_kit.engines import Limits, Request, Server
from grpo_kit.policies import load_policy
from grpo_kit.policies.serving import load_served
from grpo_kit.policies.tiny import tiny_path
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs

pytestmark = pytest.mark.vllm
CLOSE = 1e-4
"""In nats: float32, two programs."""


class RealServer:
    """A `vllm serve` of one model; `kill` ends it as a machine that fails does."""

    def __init__(self, folder: str | Path, name: str, *, mode: str = "processed_logprobs", development: bool = True):
        self.folder, self.name, self.mode, self.development = str(folder), name, mode, development
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen | None = None

    def start(self) -> "RealServer":
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", self.folder]
        command += ["--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--served-model-name", self.name, "--dtype", "float32"]
        command += ["--enforce-eager", "--max-model-len", "256", "--logprobs-mode", self.mode]
        settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
        settings |= {"VLLM_SERVER_DEV_MODE": str(int(self.development)), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            env=os.environ | settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def wait(self, seconds: float = 180) -> "RealServer":
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, "it ended"
            try:
                urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{self.url}/health", timeout=5)
                return self
            except OSError:
                time.sleep(0.5)
        raise TimeoutError(self.url)

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def serving(*arguments, **settings):
    server = RealServer(*arguments, **settings).start()
    try:
        yield server.wait()
    finally:
        server.kill()


@pytest.fixture(scope="module", autouse=True)
def has_vllm():
    pytest.importorskip("vllm")


@pytest.fixture(scope="module")
def small():
    with serving(small_with_wide_heads(), "small") as server:
        yield server


@pytest.fixture(scope="module")
def large():
    with serving(tiny_path("large"), "large", mode="raw_logprobs", development=False) as server:
        yield server


def engine(server, **changes) -> Server:
    return Server(**{"url": server.url, "dtype": "float32", "patience": 180.0, "timeout": 120.0} | changes)


def student():
    return load_policy("small", PolicySpec(model=small_with_wide_heads()), live=True)


def limits(policy, **changes) -> Limits:
    return Limits(**{"sampling": Sampling(), "max_new_tokens": 24, "stop": (), "eos_ids": policy.eos_ids} | changes)


def requests(policy, count=4, samples=4):
    texts = ["3+4=", "17-8=", "12+5+1=", "9-9="] * count
    ids = [tuple(policy.tokenizer(text)["input_ids"]) for text in texts[:count]]
    return [Request(prompt=prompt, samples=samples, seed=1000 * row) for row, prompt in enumerate(ids)]


def own_logprobs(policy, prompt, tokens, temperature=1.0):
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1)[range(len(tokens)), list(tokens)].tolist()


def check(policy, asked, found, temperature=1.0):
    for request, samples in zip(asked, found, strict=True):
        assert len(samples) == request.samples
        for own in samples:
            expected = own_logprobs(policy, request.prompt, own.tokens, temperature)
            assert own.logprobs == pytest.approx(expected, abs=CLOSE)
            ended = own.tokens[-1] in policy.eos_ids
            assert own.stop_reason == ("eos" if ended else "length")


def moved(policy):
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight += 0.02 * torch.sin(torch.arange(weight.numel(), dtype=torch.float32).view(weight.shape))
    policy.version += 1
    return policy


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.3])
def test_log_probabilities_are_those_of_the_policy(small, temperature):
    policy = student()
    asked = requests(policy)
    found = engine(small)(policy).write(asked, limits(policy, sampling=Sampling(temperature=temperature)))
    check(policy, asked, found, temperature)
    assert len({own.tokens for samples in found for own in samples}) > 4


def test_seeds_greedy_and_stop_strings(small):
    policy = student()
    running = engine(small)(policy)
    asked = requests(policy)
    assert running.write(asked, limits(policy)) == running.write(asked, limits(policy))
    greedy = running.write(asked, limits(policy, sampling=Sampling(temperature=0)))
    check(policy, asked, greedy)
    assert all(len({own.tokens for own in samples}) == 1 for samples in greedy)
    stopped = running.write(asked, limits(policy, stop=("=",)))
    ends = [policy.tokenizer.decode(own.tokens)[-1] for s in stopped for own in s if own.stop_reason == "stop"]
    assert ends
    assert set(ends) == {"="}


def test_raw_log_probabilities_are_refused_where_they_are_others(large):
    policy = load_policy("large", PolicySpec(model="tiny:large"), live=False)
    running = engine(large)(policy)
    asked = requests(policy)
    check(policy, asked, running.write(asked, limits(policy)))
    with pytest.raises(ValueError, match="--logprobs-mode processed_logprobs"):
        running.write(asked, limits(policy, sampling=Sampling(temperature=0.5)))


def test_scores_sampled_and_top_k(large):
    teacher = load_policy("large", PolicySpec(model="tiny:large"), live=False)
    served = load_served("large", PolicySpec(model="tiny:large", engine=engine(large)), longest=200, top_k=19)
    rows = tiny.rollouts([6, 1, 0, 9, 3], [0, 0, 1, 1, 2])
    expected, found = (own.score_all(rows, detail=Detail(top_k=19)) for own in (teacher, served))
    torch.testing.assert_close(found.logprobs, expected.logprobs, atol=CLOSE, rtol=0)
    torch.testing.assert_close(found.top.logprobs, expected.top.logprobs, atol=CLOSE, rtol=0)
    assert (found.top.ids == expected.top.ids).float().mean() > 0.99


def test_what_the_server_lacks_is_named(large):
    policy = load_policy("large", PolicySpec(model="tiny:large"), live=False)
    with pytest.raises(ValueError, match="serves 'large', not 'huge'"):
        engine(large, model="huge")(policy)
    running = engine(large)(policy)
    with pytest.raises(ValueError, match="Start it with a larger --max-logprobs"):
        running.score([(2,)], [(3,)], 21)
    with pytest.raises(ValueError, match="has room for 256 tokens"):
        running.score([(2,) * 200], [(3,) * 56], 1)
    with pytest.raises(ValueError, match="takes no weights"):
        running.sync(policy)
    with pytest.raises(ValueError, match=r"(has other weights than|another tokenizer than) policy 'small'"):
        engine(large)(student())


def test_weights_arrive_at_every_step(small):
    policy = student()
    running = engine(small)(policy)
    asked = requests(policy)
    for version in (1, 2, 3):
        running.sync(moved(policy))
        assert running.version == version
        check(policy, asked, running.write(asked, limits(policy)))
    running.close()


def test_codistill_sampler_with_a_server(small, tmp_path):
    sampler = "sampler={ kind='vllm', policy='small', samples=4, max_new_tokens=24, "
    sampler += f"engine={{ kind='server', url='{small.url}', dtype='float32' }} }}"
    settings = ["steps=3", "prompts_per_step=4", "evaluation.questions=2", "evaluation.samples=1", sampler]
    recipe = read_recipe("grpo", settings=[*settings, f"policies.small.model='{small_with_wide_heads()}'"])
    session = start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=Console(quiet=True))
    assert session.run() == 0
    metrics = session.folder.read_metrics()
    assert [line["sampler/mismatch/small/mean"] < CLOSE for line in metrics[1:]] == [True] * 3
    assert [line["sampler/age/small"] for line in metrics[1:]] == [0, 0, 0]


def test_a_server_killed_in_mid_batch_and_started_again(tmp_path):
    policy = student()
    with serving(small_with_wide_heads(), "small") as server:
        running = engine(server, concurrency=4)(policy)
        running.sync(moved(policy))
        asked = requests(policy, count=64, samples=8)

        def fail():
            time.sleep(0.5)
            server.kill()
            server.start()

        thread = threading.Thread(target=fail)
        thread.start()
        found = running.write(asked, limits(policy))
        thread.join()
        check(policy, asked, found)
        running.close()


@pytest.mark.parametrize("term", ["", TOP_K])
def test_a_run_with_a_served_teacher_is_that_with_a_local_one(large, tmp_path, term):
    terms = [term] if term else []
    local, _ = run(terms, tmp_path / "local")
    remote, _ = run(
        [*terms, f"policies.large.engine={{ kind='server', url='{large.url}', dtype='float32' }}"], tmp_path / "remote"
    )
    for one, other in zip(local, remote, strict=True):
        for key in one:
            if not key.startswith("time/"):
                assert other[key] == pytest.approx(one[key], abs=CLOSE), key
