"""Several samplers at once: each prompt goes to one of them."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator

from grpo_kit.batch import Prompts, Rollouts
from grpo_kit.data.prompts import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.parts import part, table
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers import together
from grpo_kit.samplers.data_rows import DataRows
from grpo_kit.samplers.role import SAMPLERS, Sampler

TOLERANCE = 0.005
"""How far the shares may sum to another number than 1, so that three times 0.333 will do."""


@table
class Share:
    """One sampler of a mixture.

    Attributes:
        share: the part of all prompts that goes to it, in (0, 1).
        sampler: any sampler that gives rollouts alone, without signals and without greedy rows.
    """

    share: Annotated[float, Field(gt=0, lt=1)]
    sampler: Annotated[Sampler, SAMPLERS]


@part("mixed")
class Mixed:
    r"""Each prompt to one of several samplers: of $n$ prompts, $s_k n$ to the one with share $s_k$.

    The counts are whole numbers by the largest remainder, earlier samplers first among equal ones; the generator
    decides which prompts. Rows come prompt after prompt, in the order of the prompts.

    GKD (arXiv:2306.13649) draws for each *batch*, with probability $\lambda$, whether the student writes it or the data
    does. Here a share $\lambda$ of the prompts of every step is the student's: the same expectation where
    $\lambda n$ is a whole number, with less variance between steps.

    Attributes:
        of: the samplers, two or more, each a table with `share` and `sampler`; the shares sum to 1 (within 0.005).
    """

    of: Annotated[tuple[Share, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _whole(self) -> "Mixed":
        total = sum(own.share for own in self.of)
        if abs(total - 1) > TOLERANCE:
            raise ValueError(f"the shares sum to {total:g}; make them sum to 1")
        return self

    @model_validator(mode="after")
    def _fit_together(self) -> "Mixed":
        together.agree(self._samplers)
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The policies that its samplers need."""
        return together.reads(self._samplers)

    @property
    def inner(self) -> dict[str, Sampler]:
        """Its samplers, by their keys."""
        return {f"of.{number}.sampler": own.sampler for number, own in enumerate(self.of)}

    @property
    def samples(self) -> int:
        """Rows of a prompt at most."""
        return max(together.known(self._samplers, "samples", 1))

    @property
    def max_new_tokens(self) -> int:
        """The longest completion of any of them; AttributeError where none says."""
        return max(together.known(self._samplers, "max_new_tokens"))

    @property
    def rows_per_batch(self) -> int:
        """The fewest rows that one of them decodes together; AttributeError where none says."""
        return min(together.known(self._samplers, "rows_per_batch"))

    @property
    def temperature(self) -> float:
        """The temperature of those that sample; AttributeError where none says."""
        return together.known(self._samplers, "temperature")[0]

    @property
    def stop(self) -> tuple[str, ...]:
        """The strings that end a completion of any of them."""
        return tuple(dict.fromkeys(text for texts in together.known(self._samplers, "stop", ()) for text in texts))

    @property
    def _samplers(self) -> list[Sampler]:
        return [own.sampler for own in self.of]

    def counts(self, prompts: int) -> tuple[int, ...]:
        """How many of so many prompts go to each sampler.

        Example:
            >>> Mixed(of=tuple(Share(share=share, sampler=print) for share in (0.5, 0.3, 0.2))).counts(8)
            (4, 2, 2)
        """
        total = sum(own.share for own in self.of)
        quotas = [own.share / total * prompts for own in self.of]
        counts = [int(quota) for quota in quotas]
        by_remainder = sorted(range(len(quotas)), key=lambda number: counts[number] - round(quotas[number], 9))
        for number in by_remainder[: prompts - sum(counts)]:
            counts[number] += 1
        return tuple(counts)

    def __call__(
        self, prompts: Prompts, policies: Mapping[str, Policy], generator: torch.Generator, **offers: Any
    ) -> Rollouts:
        """Every sampler's rows of its prompts; see the class."""
        order = torch.randperm(len(prompts), generator=generator).tolist()
        found: list[Rollouts] = []
        for own, count in zip(self.of, self.counts(len(prompts)), strict=True):
            chosen, order = sorted(order[:count]), order[count:]
            if chosen:
                chosen_ones = together.some_of(prompts, chosen)
                found.append(together.write(own.sampler, chosen_ones, policies, generator, **offers))
        return together.prompt_by_prompt(found, prompts)

    def renew(
        self, step: int, policies: Mapping[str, Policy], prompts: PromptSet, details: Mapping[str, Detail]
    ) -> dict[str, float]:
        """Before each step, by the loop: its samplers' own; metrics of them."""
        return together.renew(self._samplers, step, policies, prompts, details)


def portions(sampler: object, prompts: int, place: str = "sampler") -> Iterator[tuple[str, Any, int]]:
    """The samplers that give rows, those inside a mixture, each with its place and how many of the prompts it gets."""
    if not isinstance(sampler, Mixed):
        yield place, sampler, prompts
        return
    for number, (own, count) in enumerate(zip(sampler.of, sampler.counts(prompts), strict=True)):
        yield from portions(own.sampler, count, f"{place}.of.{number}.sampler")


def places_of(sampler: object, place: str = "sampler") -> dict[str, Any]:
    """The samplers that write rows, or wrote those of a buffer, by their places in a recipe."""
    inside: Mapping[str, object] | None = getattr(sampler, "inner", None)
    if inside is None:
        return {place: sampler}
    return {name: own for key, held in inside.items() for name, own in places_of(held, f"{place}.{key}").items()}


def writers(sampler: object) -> tuple[str, ...]:
    """The policies that write rows, as far as the samplers say."""
    policies = [getattr(own, "reads", ()) for own in places_of(sampler).values() if not isinstance(own, DataRows)]
    return tuple(dict.fromkeys(name for names in policies for name in names))


def has_data_rows(sampler: object) -> bool:
    """Whether some rows are those of a data set."""
    return any(isinstance(own, DataRows) for own in places_of(sampler).values())


def has_sampled_rows(sampler: object) -> bool:
    """Whether some policy writes rows."""
    return any(not isinstance(own, DataRows) for own in places_of(sampler).values())
