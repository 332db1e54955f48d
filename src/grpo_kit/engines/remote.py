"""A vLLM server at work for one policy: every answer of a batch is of one version of the weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import sub
from pathlib import Path
from typing import Any, TypeVar

from grpo_kit.batch import Sampling
from grpo_kit.engines import answers
from grpo_kit.engines.answers import MalformedError
from grpo_kit.engines.http import Call, Connection, RefusedError
from grpo_kit.engines.patience import Waiting
from grpo_kit.engines.probe import probe_rows, verify
from grpo_kit.engines.role import Limits, Request, Scored, Written
from grpo_kit.engines.served_model import UnfitError, find_model, refuse_other_model, refuse_other_tokenizer
from grpo_kit.engines.server_weights import ServerWeights
from grpo_kit.policies.policy import Policy

T = TypeVar("T")
COMPLETIONS = "/v1/completions"
COOLEST = 0.01
"""vLLM raises temperatures below this one to it."""
EXACTLY = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "return_token_ids": True,
    "ignore_eos": True,  # the policy's own are sent as stop_token_ids
}
"""Sent with every request: a server's defaults come from the generation settings of its model."""
EVERYTHING: Mapping[str, float] = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
"""A distribution that nothing is cut off from."""


@dataclass(kw_only=True, slots=True)
class RunningServer:
    """A server that was found to serve the model of a policy; see `Server` for its settings.

    Attributes:
        policy: whose model it has.
        connection: how it is reached.
        dtype: of its computations.
        patience: seconds to wait for it.
        weights_folder: where weights for it are saved.
        version: of the weights that it has.
        model: the name of its model.
        max_model_len: tokens of prompt and completion that it has room for.
    """

    policy: Policy
    connection: Connection
    dtype: str
    patience: float
    weights_folder: Path | None
    version: int = 0
    model: str = ""
    max_model_len: int | None = None
    weights: ServerWeights = field(init=False)
    processed: bool | None = field(default=None, init=False)
    row: tuple[tuple[int, ...], tuple[int, ...]] = field(init=False)

    def begin(self, wanted: str | None) -> None:
        """Make sure that this is the policy's model; ValueError says what it is instead, or what it lacks."""
        self.row = probe_rows(self.policy)  # of the model's own vocabulary, whatever other policies have in common
        self.weights = ServerWeights(ask=self._ask, probe=self._probe, dtype=self.dtype, folder=self.weights_folder)
        with self._said():
            found = self._waiting().until(lambda: find_model(self._ask, wanted))
            self.model = found.name
            if not self.policy.has_weights and wanted is None:
                refuse_other_model(found, str(self.policy.model.name_or_path))
            longest = self._waiting().until(
                lambda: refuse_other_tokenizer(self._ask, self.model, self.policy.tokenizer, self.policy.name)
            )
            self.max_model_len = longest or found.max_model_len
            self._waiting().until(lambda: self.weights.begin(self.policy))
        if self.policy.has_weights:
            self._verify_or_sync()
            self.version = self.policy.version

    def write(self, requests: Sequence[Request], limits: Limits) -> list[list[Written]]:
        """The completions of every request, in the order of the requests."""
        drawn, vocabulary = limits.sampling, self.policy.vocabulary
        self._refuse_too_long(max((len(own.prompt) for own in requests), default=0) + limits.max_new_tokens)
        if 0 < drawn.temperature < COOLEST:
            raise ValueError(
                f"{self}: temperature {drawn.temperature:g}; vLLM draws at {COOLEST:g} instead. Use at least that, or 0"
            )
        if not self._settle():
            self.processed = None
        restricted = drawn.temperature > 0 and (drawn.top_p < 1 or drawn.top_k > 0 or drawn.min_p > 0)
        tells = restricted or drawn.temperature not in (0, 1)
        if tells:
            self._refuse_raw()
        body = _drawn(drawn) | {
            "max_tokens": limits.max_new_tokens,
            "stop": list(limits.stop),
            "stop_token_ids": sorted(limits.eos_ids),
            "skip_special_tokens": False,  # a stop string may hold one
            "logprobs": 0,
        }
        greedy = drawn.temperature == 0  # vLLM gives one greedy completion: another one would be the same
        asked = [Request(prompt=own.prompt, samples=1, seed=own.seed) for own in requests] if greedy else requests
        calls = [self._call(own.prompt, body | {"n": own.samples, "seed": own.seed}) for own in asked]

        def read(place: int, answer: Any) -> list[Written]:
            return answers.written(
                answer,
                asked[place],
                longest=limits.max_new_tokens,
                vocabulary=vocabulary,
                eos_ids=limits.eos_ids,
                whole=not restricted,
            )

        found = self._all(calls, read, processed=tells)
        return [own * (request.samples if greedy else 1) for own, request in zip(found, requests, strict=True)]

    def score(
        self, prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]], top_k: int
    ) -> list[Scored]:
        """What its model says of completions after their prompts, by the log-probabilities of prompts."""
        pairs = list(zip(prompts, completions, strict=True))
        if any(not prompt for prompt, _ in pairs):
            raise ValueError(f"{self} says nothing of the first token of all; a prompt needs at least one token")
        self._refuse_too_long(max((len(prompt) + len(own) for prompt, own in pairs), default=0) + 1)  # it writes one
        self._settle()
        return self._score(pairs, top_k)

    def sync(self, policy: Policy) -> None:
        """Give the server a policy's present weights, see `Server`; ValueError where it does not take them."""
        folder = self.weights.save(policy)
        label = f"{self.weights.name} version {policy.version}"
        with self._said():
            self._waiting().until(lambda: self.weights.send(folder, label))
        self.version = policy.version
        verify(self, policy, self.dtype)
        with self._said():
            self._waiting().until(self.weights.remember)

    def close(self) -> None:
        """Remove the weights that were saved for the server; it goes on running."""
        self.weights.close()

    def __str__(self) -> str:
        """The server in words."""
        return f"the server at {self.connection.url}"

    def _score(self, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], top_k: int) -> list[Scored]:
        body = {"max_tokens": 1, "temperature": 0.0, **EVERYTHING, "prompt_logprobs": top_k}
        calls = [self._call((*prompt, *own), body) for prompt, own in pairs]
        return self._all(calls, lambda place, answer: answers.scored(answer, *pairs[place], top_k))

    def _probe(self) -> tuple[float, ...]:
        """What the server says of a fixed row; AwayError where it is away."""
        prompt, completion = self.row
        body = {"max_tokens": 1, "temperature": 0.0, **EVERYTHING, "prompt_logprobs": 0}
        return answers.scored(self._ask(self._call((*prompt, *completion), body)), prompt, completion, 0).logprobs

    def _all(self, calls: Sequence[Call], read: Callable[[int, Any], T], *, processed: bool = False) -> list[T]:
        """Every answer; what was answered before the server went away is kept, the rest is asked for again.

        With `processed` a server that came back must still give the log-probabilities of what it draws from.
        """
        found: dict[int, T] = {}
        waiting = self._waiting()
        while len(found) < len(calls):
            left = {place: call for place, call in enumerate(calls) if place not in found}
            with self._said():
                came = self.connection.ask_all(left, read)
            found |= came.answers
            if came.fault is None:
                break
            if came.answers:
                waiting.progress()
            done = f"; {len(found)} of {len(calls)} requests were answered"
            waiting.after(came.fault, came.broken, done)
            self.processed = None
            if self._settle():
                found |= came.late
            if processed:
                self._refuse_raw()
        return [found[place] for place in range(len(calls))]

    def _settle(self) -> bool:
        """Make sure that the server has the weights it is to have; whether it had them, or got them again just now."""
        with self._said():
            return self._waiting().until(self.weights.settle)

    def _verify_or_sync(self) -> None:
        """A policy's own weights, by what the server says; others are replaced where that can be.

        Weights that an earlier run sent are replaced unseen: a short run may have moved them by less than rounding.
        """
        if self.weights.replaced:
            self.sync(self.policy)
            return
        try:
            verify(self, self.policy, self.dtype)
        except ValueError as error:
            if not self.weights.replaceable:
                raise ValueError(
                    f"{self} has other weights than policy '{self.policy.name}' ({error}). Start it with the policy's "
                    "model, or with VLLM_SERVER_DEV_MODE=1, so that weights can be sent to it"
                ) from None
            self.sync(self.policy)

    def _refuse_raw(self) -> None:
        """ValueError where log-probabilities of sampled tokens are not those of the distribution drawn from.

        Found out by drawing from the likeliest token alone, behind pieces of the senseless probe: many prompts, since a
        model that has learned is certain of a token behind some.
        """
        if self.processed is None:
            prompt, completion = self.row
            prompts = [(*prompt, *completion[:length]) for length in range(len(completion))]
            bodies = [_drawn(Sampling(top_k=k)) | {"max_tokens": 1, "logprobs": 1, "seed": 0} for k in (0, 1)]
            calls = [self._call(prompt, body) for body in bodies for prompt in prompts]
            found = self._all(calls, lambda place, answer: answers.likeliest(answer, prompts[place % len(prompts)]))
            whole, alone = found[: len(prompts)], found[len(prompts) :]
            self.processed = max(map(sub, alone, whole)) > 0.05  # nats; rounding moves a raw one by less
        if self.processed is False:
            raise ValueError(
                f"{self} gives the model's own log-probabilities, not those of the tempered or restricted distribution "
                "that tokens are drawn from. Start it with --logprobs-mode processed_logprobs, or sample at "
                "temperature 1 without restriction"
            )

    def _refuse_too_long(self, tokens: int) -> None:
        if self.max_model_len is not None and tokens > self.max_model_len:
            raise ValueError(
                f"{self} has room for {self.max_model_len} tokens of prompt and completion, and {tokens} are needed. "
                f"Start it with --max-model-len {tokens}, or lower max_new_tokens or max_prompt_tokens"
            )

    def _call(self, prompt: Sequence[int], body: Mapping[str, Any]) -> Call:
        return Call(path=COMPLETIONS, body={"model": self.model, "prompt": list(prompt), **EXACTLY, **body})

    def _ask(self, call: Call) -> Any:
        return self.connection.ask(call)

    def _waiting(self) -> Waiting:
        return Waiting(who=str(self), patience=self.patience)

    @contextmanager
    def _said(self) -> Iterator[None]:
        """What the server lacks, refuses or answers amiss becomes a sentence about it."""
        try:
            yield
        except UnfitError as error:
            raise ValueError(f"{self} cannot be used: {error}") from None
        except MalformedError as error:
            raise ValueError(f"{self} gave an answer that cannot be used: {error}") from None
        except RefusedError as error:
            raise ValueError(f"{self} refused a request: {error}{_remedy(error)}") from None


def _drawn(sampling: Sampling) -> dict[str, float]:
    """The distribution in vLLM's words; a greedy one is uncut."""
    if sampling.temperature == 0:
        return {"temperature": 0.0, **EVERYTHING}
    return {name: getattr(sampling, name) for name in ("temperature", *EVERYTHING)}


def _remedy(error: RefusedError) -> str:
    if error.status in (401, 403):
        return ". Give the name of the environment variable that holds its key as api_key_variable"
    if "logprobs" in error.said and "max allowed" in error.said:
        return ". Start it with a larger --max-logprobs"
    return ""
