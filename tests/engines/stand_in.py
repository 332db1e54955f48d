"""An engine without vLLM: a copy of the policy decodes, with the weights it was last handed."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import torch

import tiny
from grpo_kit.engines import Limits, Request, Scored, Written
from grpo_kit.engines.probe import verify
from grpo_kit.parts import part
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.decoding import decode


@part("stand_in")
class StandIn:
    """Starts a copy; with `deaf` its weights stay as they are whatever it is handed."""

    deaf: bool = False

    def __call__(self, policy: Policy) -> "Copy":
        return Copy(policy, deaf=self.deaf)


class Copy:
    """A policy's copy at work; it counts what is asked of it."""

    def __init__(self, policy: Policy, *, deaf: bool) -> None:
        self.deaf, self.version, self.closed, self.syncs = deaf, policy.version, False, 0
        self.own = replace(policy, model=deepcopy(policy.model))
        self.asked: list[tuple[Sequence[Request], Limits]] = []

    def write(self, requests: Sequence[Request], limits: Limits) -> list[list[Written]]:
        self.asked.append((requests, limits))
        return [self._answer(request, limits) for request in requests]

    def _answer(self, request: Request, limits: Limits) -> list[Written]:
        chance = torch.Generator().manual_seed(request.seed)
        uniforms = torch.rand((request.samples, limits.max_new_tokens), generator=chance, dtype=torch.float64)
        found = decode(self.own, [request.prompt], sampling=limits.sampling, uniforms=uniforms, stop=limits.stop)
        cut = limits.sampling.temperature > 0 and limits.sampling.top_k > 0
        return [
            Written(
                tokens=tuple(tokens[keep].tolist()),
                logprobs=tuple(logprobs[keep].tolist()),
                model_logprobs=None if cut else tuple(of_model[keep].tolist()),
                stop_reason=reason,
            )
            for tokens, keep, logprobs, of_model, reason in zip(
                found.tokens, found.mask, found.logprobs, found.model_logprobs, found.stop_reasons, strict=True
            )
        ]

    def score(
        self, prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]], top_k: int
    ) -> list[Scored]:
        rows = [
            tiny.rollouts([len(own)], [0], prompt_lengths=[len(prompt)])
            for prompt, own in zip(prompts, completions, strict=True)
        ]
        rows = [
            replace(row, prompts=(prompt,), tokens=torch.tensor([own]))
            for row, prompt, own in zip(rows, prompts, completions, strict=True)
        ]
        return [Scored(logprobs=tuple(self.own.score_all(row).logprobs[0].tolist())) for row in rows]

    def sync(self, policy: Policy) -> None:
        self.syncs += 1
        if not self.deaf:
            self.own.model.load_state_dict(policy.model.state_dict())
        verify(self, policy, "float32")
        self.version = policy.version

    def close(self) -> None:
        self.closed = True
