"""A vLLM server as an engine: what it says is read exactly, and what it lacks, does amiss or forgets is found out."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny
from engines.fake_server import FakeServer, Refused, serving
from grpo_kit import Policy, Sampling
from grpo_kit.engines import Limits, Request, Server

EOS = frozenset({tiny.EOS})
PROMPTS = [(2, 3, 4), (5,), (6, 7), (8, 9, 10, 11)]


def engine(server: FakeServer, **settings) -> Server:
    return Server(**{"url": server.url, "dtype": "float32", "patience": 5.0, "timeout": 10.0} | settings)


def limits(**changes) -> Limits:
    return Limits(**{"sampling": Sampling(), "max_new_tokens": 5, "stop": (), "eos_ids": EOS} | changes)


def requests(samples: int = 3) -> list[Request]:
    return [Request(prompt=prompt, samples=samples, seed=100 * row) for row, prompt in enumerate(PROMPTS)]


def own_logprobs(policy: Policy, prompt, tokens, temperature: float = 1.0) -> list[float]:
    """Each token's log-probability, from one plain pass."""
    ids = torch.tensor([[*prompt, *tokens]])
    with torch.no_grad():
        logprobs = (policy.model(input_ids=ids).logits[0] / temperature).log_softmax(-1)
    return [float(logprobs[len(prompt) - 1 + place, token]) for place, token in enumerate(tokens)]


def other_weights(policy: Policy, by: float = 0.5) -> Policy:
    """The policy after an update."""
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight += by * torch.sin(torch.arange(weight.numel()).view(weight.shape))
    policy.version += 1
    return policy


def completion_calls(server: FakeServer, key: str) -> list[dict]:
    return [body for path, body in server.asked if path == "/v1/completions" and key in body]


class TestWriting:
    def test_completions_come_with_their_own_log_probabilities(self):
        with serving(tiny.policy()) as server:
            found = engine(server)(tiny.policy()).write(requests(), limits())
        assert [len(own) for own in found] == [3] * 4
        for prompt, samples in zip(PROMPTS, found, strict=True):
            for own in samples:
                assert own.logprobs == pytest.approx(own_logprobs(tiny.policy(), prompt, own.tokens), abs=1e-5)
                assert own.model_logprobs == own.logprobs
                ended = own.tokens[-1] == tiny.EOS
                assert own.stop_reason == ("eos" if ended else "length")
                assert ended or len(own.tokens) == 5
        assert len({own.tokens for own in found[0]}) > 1, "each sample has a seed of its own"

    def test_seeds_decide_whatever_comes_first(self):
        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            assert running.write(requests()[::-1], limits())[::-1] == running.write(requests(), limits())

    def test_nothing_is_left_to_the_servers_own_settings(self):
        with serving(tiny.policy()) as server:
            engine(server)(tiny.policy()).write(requests(), limits(eos_ids=frozenset({1, 3}), stop=("a b",)))
        for body in completion_calls(server, "n"):
            assert body["stop_token_ids"] == [1, 3]
            assert body["stop"] == ["a b"]
            for key in ("temperature", "top_p", "repetition_penalty"):
                assert body[key] == 1.0
            for key in ("top_k", "min_p", "presence_penalty", "frequency_penalty"):
                assert body[key] == 0
            assert body["ignore_eos"]
            assert not body["skip_special_tokens"]

    def test_stop_strings_and_several_stop_tokens(self):
        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            free = running.write([Request(prompt=(2,), samples=1, seed=seed) for seed in range(20)], limits())
            seed, second = next(
                (seed, own.tokens[1])
                for seed, (own,) in enumerate(free)
                if len(own.tokens) > 2 and own.tokens[0] != own.tokens[1] > tiny.EOS
            )
            asked = [Request(prompt=(2,), samples=1, seed=seed)]
            ((ended,),) = running.write(asked, limits(eos_ids=frozenset({tiny.EOS, second})))
            ((stopped,),) = running.write(asked, limits(stop=(tiny.tokenizer().decode([second]),)))
        assert (ended.stop_reason, stopped.stop_reason) == ("eos", "stop")
        assert ended.tokens == stopped.tokens == free[seed][0].tokens[:2]

    def test_greedy_rows_are_untempered_and_all_the_same(self):
        drawn = Sampling(temperature=0, top_k=2)
        with serving(tiny.policy(), mode="raw_logprobs") as server:
            found = engine(server)(tiny.policy()).write(requests(samples=2), limits(sampling=drawn))
        for prompt, (one, other) in zip(PROMPTS, found, strict=True):
            assert one == other
            assert one.logprobs == pytest.approx(own_logprobs(tiny.policy(), prompt, one.tokens), abs=1e-5)
        assert all(body["n"] == 1 and body["top_k"] == 0 for body in completion_calls(server, "n"))

    @pytest.mark.parametrize("drawn", [Sampling(temperature=0.5), Sampling(top_k=3), Sampling(min_p=0.1)])
    def test_raw_log_probabilities_do_where_they_are_those_drawn_from_and_only_there(self, drawn):
        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            running.write(requests(), limits())
            with pytest.raises(ValueError, match="--logprobs-mode processed_logprobs"):
                running.write(requests(), limits(sampling=drawn))

    def test_processed_log_probabilities_are_those_drawn_from(self):
        with serving(tiny.policy(), mode="processed_logprobs") as server:
            running = engine(server)(tiny.policy())
            tempered = running.write(requests(), limits(sampling=Sampling(temperature=0.5)))
            cut = running.write(requests(), limits(sampling=Sampling(top_k=3)))
        for prompt, samples in zip(PROMPTS, tempered, strict=True):
            for own in samples:
                assert own.logprobs == pytest.approx(own_logprobs(tiny.policy(), prompt, own.tokens, 0.5), abs=1e-5)
                assert own.model_logprobs == own.logprobs
        assert all(own.model_logprobs is None for samples in cut for own in samples)

    def test_a_temperature_that_vllm_would_raise_is_refused(self):
        with serving(tiny.policy()) as server, pytest.raises(ValueError, match=r"temperature 0\.001; vLLM draws at"):
            engine(server)(tiny.policy()).write(requests(), limits(sampling=Sampling(temperature=0.001)))

    def test_so_many_requests_at_a_time(self):
        with serving(tiny.policy(), slow=0.02) as server:
            running = engine(server, concurrency=2)(tiny.policy())
            running.write([Request(prompt=(2,), samples=1, seed=seed) for seed in range(8)], limits())
        assert server.most_at_once == 2

    def test_works_inside_a_running_loop(self):
        import asyncio

        async def notebook():
            return engine(server)(tiny.policy()).write(requests(), limits())

        with serving(tiny.policy()) as server:
            assert len(asyncio.run(notebook())) == 4


class TestScoring:
    @pytest.mark.parametrize("top_k", [0, 1, 4, tiny.VOCABULARY])
    def test_scores_are_those_of_the_policy(self, top_k):
        completions = [(3, 4), (1,), (2, 2, 2, 2, 9), (4,)]
        with serving(tiny.policy()) as server:
            found = engine(server)(tiny.policy()).score(PROMPTS, completions, top_k)
        for prompt, completion, scored in zip(PROMPTS, completions, found, strict=True):
            ids = torch.tensor([[*prompt, *completion]])
            with torch.no_grad():
                logprobs = tiny.policy().model(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            assert scored.logprobs == pytest.approx(own_logprobs(tiny.policy(), prompt, completion), abs=1e-5)
            if not top_k:
                assert scored.top_ids == scored.top_logprobs == ()
                continue
            best = logprobs.topk(top_k)
            assert [list(ids) for ids in scored.top_ids] == best.indices.tolist()
            assert torch.tensor(scored.top_logprobs) == pytest.approx(best.values.numpy(), abs=1e-5)

    def test_the_cap_on_k_names_its_flag(self):
        with serving(tiny.policy(), max_logprobs=3) as server:
            running = engine(server)(tiny.policy())
            with pytest.raises(ValueError, match=r"max allowed: 3\. Start it with a larger --max-logprobs"):
                running.score([(2,)], [(3,)], 4)

    def test_no_room_is_found_out_before_anything_is_sent(self):
        with serving(tiny.policy(), max_model_len=40) as server:
            running = engine(server)(tiny.policy())
            before = server.count
            with pytest.raises(ValueError, match=r"has room for 40 tokens .* 41 are needed.*--max-model-len 41"):
                running.score([(2,) * 20], [(3,) * 20], 0)
            with pytest.raises(ValueError, match="44 are needed"):
                running.write(requests(), limits(max_new_tokens=40))
            assert server.count == before
            assert len(running.score([(2,) * 20], [(3,) * 19], 0)[0].logprobs) == 19

    def test_a_row_without_a_prompt_is_refused(self):
        with serving(tiny.policy()) as server, pytest.raises(ValueError, match="a prompt needs at least one token"):
            engine(server)(tiny.policy()).score([()], [(2,)], 0)

    def test_an_impossible_token_is_minus_infinity(self):
        def change(path, answer):
            if path == "/v1/completions":
                for entry in answer["choices"][0]["prompt_logprobs"][2:]:
                    for said in entry.values():
                        said["logprob"] = -9999.0
            return answer

        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            running.weights.said = ()
            server.change = change
            assert running.score([(2,)], [(3, 4)], 0)[0].logprobs[1] == -torch.inf


class TestStarting:
    def test_a_server_that_is_away_is_waited_for(self, caplog):
        server = FakeServer(tiny.policy()).start()
        server.die()
        threading.Timer(1.5, server.start).start()
        try:
            running = engine(server)(tiny.policy())
            assert running.model == "tiny"
            assert f"the server at {server.url} is away" in caplog.text
            assert "waiting up to 5 seconds" in caplog.text
        finally:
            server.die()

    def test_a_server_that_stays_away(self):
        server = FakeServer(tiny.policy()).start()
        server.die()
        begun = time.monotonic()
        with pytest.raises(ValueError, match=r"is away \(.*\); it was waited for 0\.3 seconds.*or raise patience"):
            engine(server, patience=0.3)(tiny.policy())
        assert 0.3 <= time.monotonic() - begun < 3

    def test_another_model_by_name(self):
        with serving(tiny.policy(), name="llama") as server, pytest.raises(ValueError, match="serves 'llama', not 'x'"):
            engine(server, model="x")(tiny.policy())

    def test_one_of_several_models_has_to_be_named(self):
        says = r"several models: 'a', 'b'\. Say which by model"
        with serving(tiny.policy(), name=["a", "b"]) as server, pytest.raises(ValueError, match=says):
            engine(server)(tiny.policy())

    def test_another_tokenizer(self):
        other = tiny.policy()
        ours = tiny.tokenizer()
        words = {word: (13 - i) % 12 if i > 1 else i for word, i in ours.get_vocab().items()}
        inner = type(ours.backend_tokenizer).from_str(
            json.dumps(
                json.loads(ours.backend_tokenizer.to_str())
                | {"model": {"type": "WordLevel", "vocab": words, "unk_token": "<pad>"}}
            )
        )
        other = replace(other, tokenizer=type(ours)(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>"))
        says = "another tokenizer than policy 'small': of one text token 0 is"
        with serving(other) as server, pytest.raises(ValueError, match=says):
            engine(server)(tiny.policy())

    def test_other_weights_that_cannot_be_replaced(self):
        says = r"has other weights than policy 'small'.*VLLM_SERVER_DEV_MODE=1"
        with serving(tiny.policy(seed=1), development=False) as server, pytest.raises(ValueError, match=says):
            engine(server)(tiny.policy())

    def test_other_weights_are_replaced_where_that_can_be(self):
        with serving(tiny.policy(seed=1)) as server:
            running = engine(server)(tiny.policy())
            scored = running.score([(2,)], [(3, 4)], 0)[0].logprobs
            running.close()
        assert scored == pytest.approx(own_logprobs(tiny.policy(), (2,), (3, 4)), abs=1e-5)

    def test_the_key_comes_from_the_environment_and_is_never_shown(self, monkeypatch):
        with serving(tiny.policy(), key="s3cret") as server:
            with pytest.raises(ValueError, match=r"HTTP 401.*as api_key_variable"):
                engine(server)(tiny.policy())
            with pytest.raises(ValueError, match="the environment variable OUR_KEY"):
                engine(server, api_key_variable="OUR_KEY")(tiny.policy())
            monkeypatch.setenv("OUR_KEY", "s3cret")
            running = engine(server, api_key_variable="OUR_KEY")(tiny.policy())
            assert len(running.write(requests(), limits())) == 4
            assert "s3cret" not in repr(running)

    @pytest.mark.parametrize(
        "url", ["localhost:8000", "http://", "ftp://x", "http://x:y", "http://x/chat", "http://x?k=1"]
    )
    def test_what_is_no_address(self, url):
        with pytest.raises(ValueError, match="is no server's address"):
            Server(url=url)

    def test_an_address_holds_no_secret(self):
        with pytest.raises(ValueError, match="no user or password") as caught:
            Server(url="http://me:s3cret@localhost:8000")
        assert "s3cret" not in caught.value.errors()[0]["msg"]  # pyright: ignore


class TestSync:
    def test_weights_arrive_with_their_version(self, tmp_path):
        policy = tiny.policy()
        with serving(tiny.policy()) as server:
            running = engine(server, weights_folder=str(tmp_path / "w"))(policy)
            for version in (1, 2, 3):
                running.sync(other_weights(policy))
                assert running.version == policy.version == version
                assert server.resets == version
                assert server.label.endswith(f"version {version}")
                scored = running.score([(2,)], [(3, 4)], 0)[0].logprobs
                assert scored == pytest.approx(own_logprobs(policy, (2,), (3, 4)), abs=1e-5)
                assert len([*tmp_path.glob("w/*/*")]) == 1, "one copy is kept, for a server that is started anew"
            running.close()
        assert not [*tmp_path.glob("w/*")]

    def test_a_temporary_folder_is_removed(self):
        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            running.sync(other_weights(running.policy))
            (folder,) = {
                Path(body["kwargs"]["weights_path"]) for path, body in server.asked if path == "/collective_rpc"
            }
            assert folder.exists()
            running.close()
        assert not folder.parent.exists()
        assert not folder.parents[1].exists()

    def test_weights_that_do_not_arrive_are_found_out(self, monkeypatch):
        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            monkeypatch.setattr(server, "rpc", lambda body: {"results": [None]})
            with pytest.raises(ValueError, match=r"does not have the weights of version 1"):
                running.sync(other_weights(running.policy))

    def test_a_folder_that_the_server_does_not_see(self, monkeypatch):
        def rpc(body):
            return own({**body, "kwargs": {"weights_path": "/another/machine"}})

        with serving(tiny.policy()) as server:
            running, own = engine(server)(tiny.policy()), server.rpc
            monkeypatch.setattr(server, "rpc", rpc)
            with pytest.raises(ValueError, match=r"could not load the weights in .*weights_folder must be a folder"):
                running.sync(other_weights(running.policy))

    def test_weights_that_an_earlier_run_left_are_replaced_though_nearly_the_same(self):
        with serving(tiny.policy()) as server:
            earlier = tiny.policy()
            left = engine(server, dtype="bfloat16")(earlier)
            left.sync(other_weights(earlier, by=0.002))
            left.close()
            fresh = tiny.policy()
            running = engine(server, dtype="bfloat16")(fresh)
            found = running.write(requests(), limits())
        for prompt, samples in zip(PROMPTS, found, strict=True):
            for own in samples:
                assert own.logprobs == pytest.approx(own_logprobs(fresh, prompt, own.tokens), abs=1e-5)

    def test_a_server_without_the_routes(self):
        with serving(tiny.policy(), development=False) as server:
            running = engine(server)(tiny.policy())
            with pytest.raises(ValueError, match=r"takes no weights.*VLLM_SERVER_DEV_MODE=1"):
                running.sync(other_weights(running.policy))

    def test_another_run_at_the_same_server(self):
        with serving(tiny.policy()) as server:
            one, other = tiny.policy(), tiny.policy()
            first, second = engine(server)(one), engine(server)(other)
            first.sync(other_weights(one))
            second.sync(other_weights(other, by=0.3))
            with pytest.raises(ValueError, match="another run uses it"):
                first.write(requests(), limits())


class TestFaults:
    def test_finished_rows_are_kept_when_the_server_dies_and_comes_back(self):
        with serving(tiny.policy()) as server:
            running = engine(server, concurrency=2)(tiny.policy())
            whole = running.write(requests(), limits())
            server.asked.clear()
            server.count = 0
            server.fault = lambda number: server.die_and_restart() if number == 4 else None
            assert running.write(requests(), limits()) == whole
            sent = [tuple(body["prompt"]) for body in completion_calls(server, "n")]
        assert any(sent.count(prompt) == 1 for prompt in sent[:2]), "rows of one of the first two were there already"
        assert len(sent) > len(PROMPTS)

    def test_a_server_that_comes_back_gets_its_weights_again(self):
        policy = tiny.policy()
        with serving(tiny.policy()) as server:
            running = engine(server, concurrency=1)(policy)
            running.sync(other_weights(policy))
            server.count = 0
            server.fault = lambda number: server.die_and_restart() if number == 3 else None
            found = running.write(requests(), limits())
            assert server.label.endswith("version 1")
            for prompt, samples in zip(PROMPTS, found, strict=True):
                for own in samples:
                    assert own.logprobs == pytest.approx(own_logprobs(policy, prompt, own.tokens), abs=1e-5)
            running.close()

    def test_a_server_started_anew_between_two_batches_gets_its_weights_again(self):
        policy = tiny.policy()
        with serving(tiny.policy()) as server:
            running = engine(server)(policy)
            running.sync(other_weights(policy))
            server.die()
            server.start()
            scored = running.score([(2,)], [(3, 4)], 0)[0].logprobs
            assert scored == pytest.approx(own_logprobs(policy, (2,), (3, 4)), abs=1e-5)
            running.close()

    def test_a_server_that_comes_back_with_other_weights(self):
        with serving(tiny.policy(), development=False) as server:
            running = engine(server)(tiny.policy())
            server.die()
            server.first = tiny.policy(seed=3)
            server.start()
            with pytest.raises(ValueError, match="has other weights than before"):
                running.write(requests(), limits())

    def test_a_server_that_comes_back_without_the_routes(self):
        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            running.sync(other_weights(running.policy))
            server.die()
            server.development = False
            server.start()
            with pytest.raises(ValueError, match="started anew without VLLM_SERVER_DEV_MODE=1"):
                running.write(requests(), limits())
            running.close()

    @pytest.mark.parametrize("between", [False, True])
    def test_a_server_that_comes_back_with_raw_log_probabilities(self, between):
        def back(number=4):
            if number == 4:
                server.mode = "raw_logprobs"
                server.die_and_restart()

        cut = limits(sampling=Sampling(top_k=3))
        with serving(tiny.policy(), mode="processed_logprobs") as server:
            running = engine(server, concurrency=1)(tiny.policy())
            running.sync(other_weights(running.policy))
            running.write(requests(), cut)
            if between:
                back()
            else:
                server.count, server.fault = 0, back
            with pytest.raises(ValueError, match="--logprobs-mode processed_logprobs"):
                running.write(requests(), cut)
            running.close()

    def test_a_server_that_comes_back_with_another_model(self):
        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            server.die()
            server.name = "other"
            server.start()
            with pytest.raises(ValueError, match=r"refused a request: HTTP 404: The model `tiny` does not exist"):
                running.write(requests(), limits())

    def test_a_server_that_does_not_come_back(self):
        with serving(tiny.policy()) as server:
            running = engine(server, patience=0.3, concurrency=1)(tiny.policy())
            server.count = 0
            server.fault = lambda number: server.die() if number == 4 else None
            with pytest.raises(ValueError, match=r"is away .* waited for 0\.3 seconds"):
                running.write(requests(), limits())

    def test_a_busy_server_is_asked_again(self):
        def busy(number):
            if number in (3, 4):
                raise Refused(503, "overloaded")

        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            whole = running.write(requests(), limits())
            server.count, server.fault = 0, busy
            assert running.write(requests(), limits()) == whole

    def test_a_server_that_fails_at_one_request(self):
        def broken(number):
            if number > 2:
                raise Refused(500, "index out of range")

        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            server.count, server.fault = 0, broken
            with pytest.raises(ValueError, match=r"failed 3 times at one request \(HTTP 500: index out of range\)"):
                running.write(requests(), limits())

    def test_an_answer_that_takes_too_long(self):
        with serving(tiny.policy()) as server:
            running = engine(server, timeout=0.3, patience=0.5)(tiny.policy())
            server.slow = 1.0
            with pytest.raises(ValueError, match=r"is away \(no answer in 0\.3 seconds\)"):
                running.write(requests(), limits())

    def test_a_completion_that_is_broken_off_is_asked_for_again(self):
        broken = []

        def change(path, answer):
            if path == "/v1/completions" and not broken and len(answer["choices"]) > 1:
                broken.append(1)
                answer["choices"][0] |= {"finish_reason": "abort", "token_ids": []}
            return answer

        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            whole = running.write(requests(), limits())
            server.change = change
            assert running.write(requests(), limits()) == whole
            assert broken


def altered(**changes):
    def change(answer):
        answer["choices"][0] |= changes
        return answer

    return change


def said(key, value):
    def change(answer):
        answer["choices"][0]["logprobs"][key] = value(answer["choices"][0]["logprobs"][key])
        return answer

    return change


class TestAnswersThatCannotBeUsed:
    """Whatever comes is refused in a sentence; nothing of it reaches a batch."""

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda answer: [], "no list 'choices'"),
            (lambda answer: {"choices": "x"}, "no list 'choices'"),
            (lambda answer: {"choices": answer["choices"][1:]}, "2 completions where 3 were asked for"),
            (lambda answer: {"choices": [*answer["choices"][1:], answer["choices"][1]]}, "completions numbered"),
            (lambda answer: {"choices": [1, 2, 3]}, "completions numbered"),
            (altered(token_ids=None), "None where token ids are due"),
            (altered(token_ids=[2, True]), "where token ids are due"),
            (altered(token_ids=[2, 2.0]), "where token ids are due"),
            (altered(token_ids=[-1]), "where token ids are due"),
            (altered(token_ids=[12, 1], finish_reason="stop"), "token 12, and the policies have 12 tokens in common"),
            (altered(token_ids=[2] * 6, finish_reason="length"), "a completion of 6 tokens, and 1 to 5"),
            (altered(token_ids=[], finish_reason="stop"), "a completion of 0 tokens"),
            (altered(token_ids=[2, 2], finish_reason="length"), r"cut at 2 of 5 tokens.*--generation-config vllm"),
            (altered(token_ids=[2, 3], finish_reason="stop", stop_reason=3), r"ended by token 3, .* are \[1\]"),
            (altered(finish_reason="tool_calls"), "finish_reason 'tool_calls'"),
            (altered(prompt_token_ids=None), "no prompt_token_ids"),
            (altered(prompt_token_ids=[0, 0]), "other prompt tokens than those sent"),
            (altered(logprobs=None), "no list 'token_logprobs'"),
            (said("token_logprobs", lambda values: values[1:]), "log-probabilities of"),
            (said("token_logprobs", lambda values: [0.5, *values[1:]]), "0.5 where a log-probability is due"),
            (said("token_logprobs", lambda values: [None, *values[1:]]), "None where a log-probability"),
            (said("token_logprobs", lambda values: [float("nan"), *values[1:]]), "nan where a log-probability"),
            (lambda answer: b"<html>", "no JSON: <html>"),
            (lambda answer: b"", "no list 'choices'"),
        ],
    )
    def test_completions(self, change, says):
        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            running.weights.said = ()  # the probe is another request
            server.change = lambda path, answer: change(answer) if path == "/v1/completions" else answer
            with pytest.raises(ValueError, match=says) as caught:
                running.write(requests(), limits())
            assert str(caught.value).startswith(f"the server at {server.url} ")

    @pytest.mark.parametrize(
        ("entry", "says"),
        [
            (None, "None where the log-probabilities of a token are due"),
            ({}, "nothing on token 4"),
            ({"4": {"logprob": -1.0}}, "rank and log-probability are due"),
            ({"4": {"logprob": -1.0, "rank": 0}}, "rank and log-probability are due"),
            ({"4": {"logprob": "x", "rank": 1}}, "'x' where a log-probability is due"),
            ({"x": {"logprob": -1.0, "rank": 1}}, "rank and log-probability are due"),
            ({"4": {"logprob": -1.0, "rank": 1}}, "1 of the 2 likeliest tokens"),
            ({str(i): {"logprob": -1.0, "rank": 1} for i in (4, 5)}, "2 of the 2 likeliest tokens"),
        ],
    )
    def test_scores(self, entry, says):
        def change(path, answer):
            if path == "/v1/completions":
                answer["choices"][0]["prompt_logprobs"][2] = entry
            return answer

        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            running.weights.said = ()
            server.change = change
            with pytest.raises(ValueError, match=says):
                running.score([(2,)], [(3, 4)], 2)

    def test_words_of_a_server_cannot_steer_a_terminal(self):
        def refuse(number):
            raise Refused(400, "\x1b[2Jgone\nand\tmore" + "x" * 1000)

        with serving(tiny.policy()) as server:
            running = engine(server)(tiny.policy())
            running.weights.said = ()
            server.fault = refuse
            with pytest.raises(ValueError, match=r"HTTP 400: \\x1b\[2Jgone and morex+\.\.\.") as caught:
                running.write(requests(), limits())
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400
