"""From our requests to vLLM's sampling parameters, and from its answers to our records; vLLM itself is not needed."""

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_kit.batch import StopReason
from grpo_kit.engines.role import Limits, Request, Scored, Written


def settings_of(request: Request, limits: Limits, allowed: list[int] | None) -> dict[str, Any]:
    """The arguments of vLLM's `SamplingParams` for a request; with `allowed`, only these tokens are written.

    vLLM derives the seeds of a request's samples from its own. Its idea of end-of-sequence tokens is not used, only
    ours. At temperature 0 it takes no other restriction.
    """
    sampling, greedy = limits.sampling, limits.sampling.temperature == 0
    cuts = {} if greedy else {"top_p": sampling.top_p, "top_k": sampling.top_k, "min_p": sampling.min_p}
    return {
        "n": request.samples,
        "seed": request.seed,
        "temperature": sampling.temperature,
        **cuts,
        "max_tokens": limits.max_new_tokens,
        "logprobs": 0,  # of the token written, and of no other
        "stop": list(limits.stop),
        "stop_token_ids": sorted(limits.eos_ids),
        "ignore_eos": True,
        "detokenize": bool(limits.stop),
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        "allowed_token_ids": allowed,
    }


def written(completion: Any, limits: Limits) -> Written:
    """A completion from vLLM's `CompletionOutput`."""
    tokens = tuple(map(int, completion.token_ids))
    positions: Sequence[Mapping[int, Any]] = completion.logprobs or []
    logprobs = tuple(float(at[token].logprob) for token, at in zip(tokens, positions, strict=False))
    if len(logprobs) != len(tokens):
        raise ValueError(f"vLLM gave {len(logprobs)} log-probabilities for a completion of {len(tokens)} tokens")
    sampling = limits.sampling
    whole = sampling.temperature == 0 or (sampling.top_p == 1 and sampling.top_k == 0 and sampling.min_p == 0)
    return Written(
        tokens=tokens,
        logprobs=logprobs,
        model_logprobs=logprobs if whole else None,
        stop_reason=_reason(completion.finish_reason, completion.stop_reason),
    )


def _reason(finish: str | None, stop: int | str | None) -> StopReason:
    """The engine says `stop` for a token (with its id) as for a string (with the string)."""
    if finish == "stop":
        return "stop" if isinstance(stop, str) else "eos"
    return "length" if finish == "length" else "error"


def scored(positions: Sequence[Mapping[int, Any] | None], row: Sequence[int], start: int, top_k: int) -> Scored:
    """What vLLM's prompt log-probabilities say of the tokens of a row from `start` on.

    There is an entry for every token of the row, None for the first. Each has the token itself and the likeliest ones,
    among which it may be.
    """
    if start < 1:
        raise ValueError("an engine scores the tokens after a prompt, and a prompt has at least one token")
    asked = list(zip(row[start:], positions[start:], strict=True))
    ranked = [sorted(at.items(), key=lambda entry: -entry[1].logprob)[:top_k] for _, at in asked if at is not None]
    return Scored(
        logprobs=tuple(float(at[token].logprob) for token, at in asked if at is not None),
        top_ids=tuple(tuple(int(token) for token, _ in top) for top in ranked) if top_k else (),
        top_logprobs=tuple(tuple(float(own.logprob) for _, own in top) for top in ranked) if top_k else (),
    )
