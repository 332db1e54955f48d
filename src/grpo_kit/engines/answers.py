"""What a vLLM server answers, checked and read: its answers are data that may be anything."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_kit.batch import StopReason
from grpo_kit.engines.http import AwayError
from grpo_kit.engines.role import Request, Scored, Written

IMPOSSIBLE = -9999.0
"""What vLLM writes for a log-probability of minus infinity, which JSON does not have."""
ABOVE_ZERO = 1e-3
"""How far rounding may take a log-probability above 0."""


class MalformedError(ValueError):
    """An answer that a vLLM server does not give."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A model that a server has.

    Attributes:
        name: under which it is asked for.
        root: the folder or hub name that its weights came from, where the server says so.
        max_model_len: tokens of prompt and completion that it has room for, where the server says so.
    """

    name: str
    root: str | None
    max_model_len: int | None


def served(answer: Any) -> list[Served]:
    """The models of an answer to `/v1/models`, without adapters."""
    found: list[Served] = []
    for card in _list(answer, "data"):
        name, root, longest = (_field(card, key) for key in ("id", "root", "max_model_len"))
        if not isinstance(name, str):
            raise MalformedError(f"a model without a name ({_short(card)})")
        if _field(card, "parent") is None:
            longest = longest if isinstance(longest, int) else None
            found.append(Served(name=name, root=root if isinstance(root, str) else None, max_model_len=longest))
    return found


def token_ids(value: Any) -> tuple[int, ...]:
    """A list of token ids."""
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise MalformedError(f"{_short(value)} where token ids are due")
    return tuple(value)


def written(
    answer: Any, request: Request, *, longest: int, vocabulary: int, eos_ids: Collection[int], whole: bool
) -> list[Written]:
    """The completions of one request.

    Args:
        answer: to `/v1/completions`, with `return_token_ids` and `logprobs`.
        request: what was asked for.
        longest: tokens that a completion may have.
        vocabulary: every token must be below it.
        eos_ids: tokens that end a completion.
        whole: whether tokens were drawn from the whole distribution, so that their log-probabilities are the model's.
    """
    choices = _choices(answer, request.prompt, request.samples)
    found: list[Written] = []
    for choice in choices:
        tokens = token_ids(_field(choice, "token_ids"))
        reason = _stop_reason(choice, tokens, longest, eos_ids)
        if max(tokens) >= vocabulary:
            raise MalformedError(f"token {max(tokens)}, and the policies have {vocabulary} tokens in common")
        logprobs = _list(_field(choice, "logprobs"), "token_logprobs")
        if len(logprobs) != len(tokens):
            raise MalformedError(f"{len(logprobs)} log-probabilities of {len(tokens)} tokens")
        own = tuple(_logprob(value) for value in logprobs)
        found.append(Written(tokens=tokens, logprobs=own, model_logprobs=own if whole else None, stop_reason=reason))
    return found


def scored(answer: Any, prompt: Sequence[int], completion: Sequence[int], top_k: int) -> Scored:
    """What the model says of a completion, out of the log-probabilities of a prompt that ends with it.

    The entry of a token is at the token's own place (the first token of the prompt has none), and holds the token
    itself and the `top_k` likeliest, each with its rank: `top_k` entries or one more.
    """
    rows = (*prompt, *completion)
    (choice,) = _choices(answer, rows, 1)
    entries = _list(choice, "prompt_logprobs")
    if len(entries) != len(rows):
        raise MalformedError(f"log-probabilities of {len(entries)} tokens where {len(rows)} were sent")
    own: list[float] = []
    ids: list[tuple[int, ...]] = []
    logprobs: list[tuple[float, ...]] = []
    for token, entry in zip(completion, entries[len(prompt) :], strict=True):
        said = _entries(entry)
        if token not in said:
            raise MalformedError(f"nothing on token {token}, which was sent")
        value = said[token][1]
        own.append(-math.inf if value <= IMPOSSIBLE else value)
        likeliest = sorted((rank, id_, value) for id_, (rank, value) in said.items() if rank <= top_k)
        if [rank for rank, _, _ in likeliest] != list(range(1, top_k + 1)):
            raise MalformedError(f"{len(likeliest)} of the {top_k} likeliest tokens ({_short(entry)})")
        ids.append(tuple(id_ for _, id_, _ in likeliest))
        logprobs.append(tuple(value for _, _, value in likeliest))
    return Scored(
        logprobs=tuple(own),
        top_ids=tuple(ids) if top_k else (),
        top_logprobs=tuple(logprobs) if top_k else (),
    )


def likeliest(answer: Any, prompt: Sequence[int]) -> float:
    """The log-probability of the likeliest first token, of an answer with `logprobs` of at least 1."""
    (choice,) = _choices(answer, prompt, 1)
    first = next(iter(_list(_field(choice, "logprobs"), "top_logprobs")), None)
    if not isinstance(first, Mapping) or not first:
        raise MalformedError(f"{_short(first)} where the likeliest tokens are due")
    return max(_logprob(value) for value in first.values())


def _choices(answer: Any, prompt: Sequence[int], samples: int) -> list[Any]:
    """The choices of an answer, as many as asked for, in their order, to the very prompt that was sent."""
    choices = _list(answer, "choices")
    if len(choices) != samples:
        raise MalformedError(f"{len(choices)} completions where {samples} were asked for")
    if sorted(str(_field(choice, "index")) for choice in choices) != sorted(map(str, range(samples))):
        raise MalformedError(f"completions numbered {[_field(choice, 'index') for choice in choices]}")
    for choice in choices:
        sent = _field(choice, "prompt_token_ids")
        if sent is None:
            raise MalformedError("no prompt_token_ids, which return_token_ids asks for: no vLLM, or an old one")
        if token_ids(sent) != tuple(prompt):
            raise MalformedError("other prompt tokens than those sent")
    return sorted(choices, key=lambda choice: choice["index"])


def _stop_reason(choice: Any, tokens: Sequence[int], longest: int, eos_ids: Collection[int]) -> StopReason:
    finish, by = _field(choice, "finish_reason"), _field(choice, "stop_reason")
    if finish == "abort":  # the server is going away, or was told to
        raise AwayError("a completion was broken off (finish_reason abort)")
    if not 1 <= len(tokens) <= longest:
        raise MalformedError(f"a completion of {len(tokens)} tokens, and 1 to {longest} were asked for")
    if finish == "length":
        if len(tokens) < longest:
            raise MalformedError(
                f"a completion cut at {len(tokens)} of {longest} tokens: the server has a limit of its own "
                "(--max-model-len, or max_new_tokens of its generation config: start it with --generation-config vllm)"
            )
        return "length"
    if finish != "stop":
        raise MalformedError(f"finish_reason {_short(finish)}")
    if isinstance(by, str):
        return "stop"
    if tokens[-1] not in eos_ids:
        raise MalformedError(f"a completion ended by token {tokens[-1]}, and those that end one are {sorted(eos_ids)}")
    return "eos"


def _entries(entry: Any) -> dict[int, tuple[int, float]]:
    """Rank and log-probability by token."""
    if not isinstance(entry, Mapping):
        raise MalformedError(f"{_short(entry)} where the log-probabilities of a token are due")
    found: dict[int, tuple[int, float]] = {}
    for key, said in entry.items():
        rank = _field(said, "rank")
        if not (isinstance(key, str) and key.isdecimal()) or type(rank) is not int or rank < 1:
            raise MalformedError(f"{_short({key: said})} where a token's rank and log-probability are due")
        found[int(key)] = rank, _logprob(_field(said, "logprob"))
    return found


def _logprob(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value > ABOVE_ZERO:
        raise MalformedError(f"{_short(value)} where a log-probability is due")
    return float(value)


def _list(answer: Any, key: str) -> list[Any]:
    found = _field(answer, key)
    if not isinstance(found, list):
        raise MalformedError(f"no list '{key}' in {_short(answer)}")
    return found


def _field(answer: Any, key: str) -> Any:
    return answer.get(key) if isinstance(answer, Mapping) else None


def _short(value: Any) -> str:
    text = repr(value)  # of JSON data: what it escapes cannot steer a terminal
    return text if len(text) <= 80 else text[:77] + "..."
