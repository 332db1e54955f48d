"""Hints: another policy writes the first tokens of a completion, and the policy to be trained goes on from there."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator

from grpo_kit.batch import Prompts, Rollouts
from grpo_kit.data.prompts import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.joining import concatenate
from grpo_kit.parts import part
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers import together
from grpo_kit.samplers.continuing import as_prompts, continued
from grpo_kit.samplers.role import SAMPLERS, Sampler


@part("hinted")
class Hinted:
    r"""In the first epoch the sampler `hints` begins each completion, and the sampler `of` goes on; then `of` alone.

    CoDistill-GRPO (arXiv:2605.08873): during the first pass over the data the large model writes the first $T$ tokens,
    the hint, and the small one the rest; hints at every step made training collapse. $T$ is `max_new_tokens` of
    `hints`; that of `of` is the most tokens of hint and continuation together. A completion that ends within its hint
    is left as it is. A stop string ends a completion also where it begins in the hint.

    Each token keeps its own writer and the log-probability that it was drawn with, so the quotients to the writer are
    those to the hint's policy on its tokens, as they are in the paper (leaving them out was unstable there): they are
    taken where a term has `anchor = "behavior"` or a `correction`. `on_policy_kd` sums over its student's tokens alone.

    The paper does not say whether the rows of a group share a hint. With as many `samples` in `hints` as in `of` each
    row has its own. With fewer, a divisor, rows share: advantages that sum to zero over the rows of one hint (a group
    that shares a single one) leave its tokens without a gradient.

    Attributes:
        hints: writes the hints: a sampler with one policy, `samples` and `max_new_tokens` (`transformers`, `vllm`).
        of: continues them, and writes alone afterwards: such a sampler with another policy, the same temperature and
            the same stop strings. `samples` is the size of a group.
        epochs: passes over the data with hints, above 0; a part of one will do. It is decided at the start of each
            step. A buffer is filled as in the first.
    """

    hints: Annotated[Sampler, SAMPLERS]
    of: Annotated[Sampler, SAMPLERS]
    epochs: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _fit_together(self) -> "Hinted":
        for key, own in self.inner.items():
            has_fields = {"samples", "max_new_tokens"} <= set(getattr(own, "__dataclass_fields__", ()))
            if not has_fields or len(getattr(own, "reads", ())) != 1:
                raise ValueError(
                    f"{key}: '{getattr(own, 'kind', 'a function')}' is no sampler with one policy, samples and "
                    "max_new_tokens of its own, which can be called with others of these. Use 'transformers' or 'vllm'"
                )
        together.agree([self.hints, self.of])
        if len(self.reads) == 1:
            raise ValueError(
                f"hints and of both write with '{self.reads[0]}', so that nothing would be a hint. Let another policy "
                "write the hints, or use the sampler 'of' alone"
            )
        hint, whole = self.hint_tokens, self.max_new_tokens
        if hint >= whole:
            raise ValueError(
                f"hints.max_new_tokens = {hint} leaves nothing to continue: of.max_new_tokens = {whole} is for hint "
                "and continuation together. Lower the first, or raise the second"
            )
        if self.samples % self.hints_a_prompt:
            raise ValueError(
                f"of.samples = {self.samples} rows cannot share hints.samples = {self.hints_a_prompt} hints evenly. "
                f"Use {self.samples}, one for each row, or a divisor"
            )
        ends = [sorted(getattr(own, "stop", ())) for own in (self.hints, self.of)]
        if ends[0] != ends[1]:
            raise ValueError(
                f"hints.stop = {ends[0]} and of.stop = {ends[1]}: a completion would end at other strings within its "
                "hint than behind it. Give both the same"
            )
        return self

    @property
    def inner(self) -> dict[str, Sampler]:
        """Its samplers, by their keys."""
        return {"of": self.of, "hints": self.hints}

    @property
    def reads(self) -> tuple[str, ...]:
        """The policies that its samplers need."""
        return together.reads([self.of, self.hints])

    @property
    def samples(self) -> int:
        """Rows of a prompt."""
        return self.of.samples  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def hints_a_prompt(self) -> int:
        """Hints written for a prompt."""
        return self.hints.samples  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def max_new_tokens(self) -> int:
        """The longest completion, its hint included."""
        return self.of.max_new_tokens  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def hint_tokens(self) -> int:
        """The longest hint."""
        return self.hints.max_new_tokens  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def rows_per_batch(self) -> int:
        """The fewer rows that one of the two decodes together; AttributeError where neither says."""
        return min(together.known([self.of, self.hints], "rows_per_batch"))

    @property
    def temperature(self) -> float:
        """The temperature of both; AttributeError where neither says."""
        return together.known([self.of, self.hints], "temperature")[0]

    @property
    def stop(self) -> tuple[str, ...]:
        """The strings that end a completion."""
        return tuple(getattr(self.of, "stop", ()))

    @property
    def continuing(self) -> Sampler:
        """The sampler that goes on behind a hint."""
        each, left = self.samples // self.hints_a_prompt, self.max_new_tokens - self.hint_tokens
        return replace(self.of, samples=each, max_new_tokens=left)  # pyright: ignore[reportArgumentType]

    def __call__(
        self,
        prompts: Prompts,
        policies: Mapping[str, Policy],
        generator: torch.Generator,
        epoch: float = 0.0,
        **offers: Any,
    ) -> Rollouts:
        """Completions of every prompt, prompt after prompt; see the class."""
        offers["epoch"] = epoch
        if epoch >= self.epochs:
            return together.write(self.of, prompts, policies, generator, **offers)
        hints = together.write(self.hints, prompts, policies, generator, **offers)
        endings = list(zip(hints.stop_reasons, hints.lengths.tolist(), strict=True))
        unfinished = [row for row, ending in enumerate(endings) if ending == ("length", self.hint_tokens)]
        ended = [row for row, ending in enumerate(endings) if ending != ("length", self.hint_tokens)]
        each = self.samples // self.hints_a_prompt
        rows = [row for row in (*ended, *unfinished) for _ in range(each)]
        found = [hints.take(rows[: len(ended) * each])] if ended else []
        if unfinished:
            rest = together.write(self.continuing, as_prompts(hints.take(unfinished)), policies, generator, **offers)
            rest = together.moved(rest.take(rest.groups.argsort(stable=True).tolist()), hints.mask.device)
            (writer,) = together.reads([self.of])
            begun = hints.take(rows[len(ended) * each :])
            found.append(continued(begun, rest, tokenizer=policies[writer].tokenizer, stop=self.stop))
        return concatenate(found).take(sorted(range(len(rows)), key=lambda number: rows[number]))

    def renew(
        self, step: int, policies: Mapping[str, Policy], prompts: PromptSet, details: Mapping[str, Detail]
    ) -> dict[str, float]:
        """Before each step, by the loop: its samplers' own; metrics of them."""
        return together.renew([self.of, self.hints], step, policies, prompts, details)
