"""One policy writes every row, decoded in this process with the transformers model itself."""

from collections.abc import Mapping
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from grpo_kit.batch import Prompts, Rollouts, Sampling
from grpo_kit.parts import part
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers.decoding import Completions, decode, joined
from grpo_kit.samplers.rows import GREEDY, rollouts_of


@part("transformers")
class TransformersSampler:
    r"""`samples` completions of every prompt, by one policy, token ids in and out: nothing is re-tokenized.

    Rows come prompt after prompt. The uniform numbers that decide all tokens are drawn first, so that the same
    generator gives the same rows however they are split into batches. With `greedy`, one more row a prompt follows
    after all of these, decoded at temperature 0: it is rewarded for comparison and never trained on.

    Attributes:
        policy: who writes.
        samples: completions a prompt (the size of a group before selection).
        max_new_tokens: longest completion; a longer one ends with stop reason `length`.
        temperature: divides the logits; above 0 to train, where 1 is the policy itself.
        top_p: nucleus mass kept, in (0, 1]. Below 1 the rows come from another distribution than the policy, and
            importance weights are biased by the mass cut off.
        top_k: number of most likely tokens kept; 0 keeps all. As for `top_p`.
        min_p: tokens less likely than this times the likeliest one are cut, in [0, 1); 0 keeps all. As for `top_p`;
            of the three cuts it is the first, then comes `top_k`.
        greedy: also write one greedy completion a prompt, for an advantage that compares with it.
        stop: strings that end a completion (stop reason `stop`), special tokens written out among them; the tokens
            keep them, the text is cut before. Every end-of-sequence token of the model and of its tokenizer ends it
            without being named here.
        rows_per_batch: rows decoded together, whole prompts at a time; lower it when memory runs out.
    """

    policy: str
    samples: Annotated[int, Field(ge=1)]
    max_new_tokens: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    greedy: bool = False
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    rows_per_batch: Annotated[int, Field(ge=1)] = 512

    @property
    def sampling(self) -> Sampling:
        """The distribution drawn from."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p)

    @property
    def reads(self) -> tuple[str, ...]:
        """The policies it needs."""
        return (self.policy,)

    @torch.no_grad()
    def __call__(self, prompts: Prompts, policies: Mapping[str, Policy], generator: torch.Generator) -> Rollouts:
        """Write completions of every prompt; see the class."""
        policy = policies[self.policy]
        uniforms = torch.rand(
            (len(prompts) * self.samples, self.max_new_tokens), generator=generator, dtype=torch.float64
        )
        written = self._write(policy, prompts, self.sampling, uniforms)
        if self.greedy:  # no token of a greedy row is decided by chance
            nothing = torch.zeros((len(prompts), self.max_new_tokens), dtype=torch.float64)
            written += self._write(policy, prompts, GREEDY, nothing)
        return rollouts_of(
            policy,
            prompts,
            joined(written),
            version=policy.version,
            sampling=self.sampling,
            samples=self.samples,
            greedy=self.greedy,
            stop=self.stop,
        )

    def _write(
        self, policy: Policy, prompts: Prompts, sampling: Sampling, uniforms: Float[Tensor, "row max_new_token"]
    ) -> list[Completions]:
        """As many completions of every prompt as there are rows of numbers for it, some prompts at a time."""
        at_once, each = max(1, self.rows_per_batch // self.samples), len(uniforms) // len(prompts)
        return [
            decode(
                policy,
                prompts.ids[start : start + at_once],
                sampling=sampling,
                uniforms=uniforms[start * each : (start + at_once) * each],
                stop=self.stop,
            )
            for start in range(0, len(prompts), at_once)
        ]
