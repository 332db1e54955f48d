"""What an inference engine is: it writes completions and scores them, with weights handed to it by version."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from grpo_kit.batch import Sampling, StopReason
from grpo_kit.parts import Role

if TYPE_CHECKING:  # a policy holds running engines
    from grpo_kit.policies.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One prompt to be continued `samples` times, token ids in and out.

    Attributes:
        prompt: its token ids, sent as they are.
        samples: completions wanted.
        seed: decides them; another one for every prompt.
    """

    prompt: tuple[int, ...]
    samples: int
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What completions are drawn from and where they end, the same for all requests of a call.

    Attributes:
        sampling: the distribution drawn from.
        max_new_tokens: longest completion.
        stop: strings that end a completion.
        eos_ids: every token that ends a completion.
    """

    sampling: Sampling
    max_new_tokens: int
    stop: tuple[str, ...]
    eos_ids: frozenset[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    r"""One completion.

    Attributes:
        tokens: its ids, with the one that ended it.
        logprobs: of each, in nats, under the distribution really sampled from (tempered, restricted, renormalized).
        model_logprobs: of each under the engine's model at the same temperature without restriction; None where the
            engine does not say.
        stop_reason: why it ended.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    model_logprobs: tuple[float, ...] | None
    stop_reason: StopReason


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """What the engine's model says of each token of a completion at temperature 1, over its whole vocabulary.

    Attributes:
        logprobs: of the token itself, in nats.
        top_ids: the likeliest tokens, the likeliest first, as many a token as were asked for.
        top_logprobs: theirs.
    """

    logprobs: tuple[float, ...]
    top_ids: tuple[tuple[int, ...], ...] = ()
    top_logprobs: tuple[tuple[float, ...], ...] = ()


@runtime_checkable
class Running(Protocol):
    """An engine at work for one policy."""

    version: int
    """Of the weights it has, as `Policy.version` counts."""

    def write(self, requests: Sequence[Request], limits: Limits) -> list[list[Written]]:
        """The completions of every request, in the order of the requests."""
        ...

    def score(
        self, prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]], top_k: int
    ) -> list[Scored]:
        """What its model says of completions after their prompts."""
        ...

    def sync(self, policy: "Policy") -> None:
        """Take a policy's present weights, drop everything computed with the old ones, and take on its version."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


@runtime_checkable
class Engine(Protocol):
    """The settings of an engine; called, it starts one for a policy."""

    def __call__(self, policy: "Policy") -> Running:
        """Start (or reach) it with the policy's model; ValueError says why it cannot be had."""
        ...


ENGINES = Role("engines", Engine, {})
