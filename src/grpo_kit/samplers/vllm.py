"""One policy writes every row, decoded by an engine: vLLM in this process, or a server."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from grpo_kit.batch import Prompts, Rollouts, Sampling
from grpo_kit.data import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.engines import ENGINES, Engine, InProcess, Limits, Request, Running, Written
from grpo_kit.parts import part
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.decoding import Completions
from grpo_kit.samplers.rows import GREEDY, rollouts_of

SEEDS = 2**62


@part("vllm")
class VLLMSampler:
    r"""`samples` completions of every prompt, by one policy, from an engine; token ids in and out.

    Before a step the engine gets the policy's present weights where that is due, and is asked whether it has them. The
    rows carry the version of the weights that wrote them. An engine computes with numerics of its own, so that even at
    one version its log-probabilities are not quite the trainer's: `sampler/mismatch/*` says by how much, and an
    `importance_weight` corrects for it.

    Rows come prompt after prompt, with `greedy` one more of each after all of these, as from `transformers`. One number
    a prompt is drawn from the generator and decides its rows.

    Attributes:
        policy: who writes.
        samples: completions a prompt (the size of a group before selection).
        max_new_tokens: longest completion; a longer one ends with stop reason `length`.
        temperature: divides the logits, in [0.01, 2], the range of vLLM; 1 is the policy itself.
        top_p: nucleus mass kept, in (0, 1]. Below 1 the rows come from another distribution than the policy, and
            importance weights are biased by the mass cut off.
        top_k: number of most likely tokens kept; 0 keeps all. As for `top_p`.
        min_p: tokens less likely than this times the likeliest one are cut, in [0, 1); 0 keeps all. As for `top_p`.
        greedy: also write one greedy completion a prompt, for an advantage that compares with it.
        stop: strings that end a completion (stop reason `stop`); the tokens keep them, the text is cut before.
        engine: what writes.
        sync_every: steps of the loop between two syncs of the engine's weights; more makes rows older.
    """

    foreign_numerics: ClassVar[bool] = True
    """Says that its log-probabilities are not the trainer's to rounding, so that the difference is to be measured."""

    policy: str
    samples: Annotated[int, Field(ge=1)]
    max_new_tokens: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0.01, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    greedy: bool = False
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    engine: Annotated[Engine, ENGINES] = Field(default_factory=InProcess)
    sync_every: Annotated[int, Field(ge=1)] = 1

    @property
    def sampling(self) -> Sampling:
        """The distribution drawn from."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p)

    @property
    def reads(self) -> tuple[str, ...]:
        """The policies it needs."""
        return (self.policy,)

    def renew(
        self, step: int, policies: Mapping[str, Policy], prompts: PromptSet, details: Mapping[str, Detail]
    ) -> dict[str, float]:
        """Before each step, by the loop: hand the policy's weights to its engine where that is due."""
        policy = policies[self.policy]
        running: Running = policy.engine(self.engine)
        if (step - 1) % self.sync_every or running.version == policy.version:
            return {}
        running.sync(policy)
        return {f"sampler/synced/{self.policy}": 1.0}

    def __call__(self, prompts: Prompts, policies: Mapping[str, Policy], generator: torch.Generator) -> Rollouts:
        """Write completions of every prompt; see the class."""
        policy = policies[self.policy]
        running: Running = policy.engine(self.engine)
        seeds: list[int] = torch.randint(SEEDS, (len(prompts),), generator=generator).tolist()
        found = self._write(running, policy, prompts, self.sampling, self.samples, seeds)
        if self.greedy:  # no token of a greedy row is decided by chance
            found += self._write(running, policy, prompts, GREEDY, 1, seeds)
        return rollouts_of(
            policy,
            prompts,
            completions_of(found, policy.device),
            version=running.version,
            sampling=self.sampling,
            samples=self.samples,
            greedy=self.greedy,
            stop=self.stop,
        )

    def _write(
        self, running: Running, policy: Policy, prompts: Prompts, sampling: Sampling, samples: int, seeds: Sequence[int]
    ) -> list[Written]:
        """So many completions of every prompt, prompt after prompt."""
        requests = [
            Request(prompt=ids, samples=samples, seed=seed) for ids, seed in zip(prompts.ids, seeds, strict=True)
        ]
        limits = Limits(sampling=sampling, max_new_tokens=self.max_new_tokens, stop=self.stop, eos_ids=policy.eos_ids)
        return [own for completions in running.write(requests, limits) for own in completions]


def completions_of(found: Sequence[Written], device: torch.device) -> Completions:
    """What an engine wrote as tensors; NaN where it does not say what the model itself thinks of a token."""
    width = max([1, *(len(own.tokens) for own in found)])
    tokens = torch.zeros((len(found), width), dtype=torch.long)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    logprobs, of_model = (torch.zeros_like(tokens, dtype=torch.float32) for _ in range(2))
    for row, own in enumerate(found):
        length = len(own.tokens)
        tokens[row, :length], mask[row, :length] = torch.tensor(own.tokens, dtype=torch.long), True
        logprobs[row, :length] = torch.tensor(own.logprobs)
        of_model[row, :length] = torch.nan if own.model_logprobs is None else torch.tensor(own.model_logprobs)
    return Completions(
        tokens=tokens.to(device),
        mask=mask.to(device),
        logprobs=logprobs.to(device),
        model_logprobs=of_model.to(device),
        stop_reasons=tuple(own.stop_reason for own in found),
    )
