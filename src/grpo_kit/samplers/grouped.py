"""Several samplers at once: each prompt gets rows of all of them, and these are one group."""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator

from grpo_kit.batch import Prompts, Rollouts
from grpo_kit.data.prompts import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.parts import part
from grpo_kit.policies.policy import Policy
from grpo_kit.samplers import together
from grpo_kit.samplers.mixed import Mixed, has_data_rows
from grpo_kit.samplers.role import SAMPLERS, Sampler


@part("grouped")
class Grouped:
    r"""Every prompt to every one of several samplers: a group of $\sum_k n_k$ rows, $n_k$ the `samples` of each.

    So some of the rows of a group may be another policy's: six by the small model and two by the large one. They are
    compared with one another and selected among as one group, while each token keeps its own writer. What a learner
    makes of rows that it did not write is its term's affair: a `correction` weighs them, `anchor = "behavior"` takes
    its ratio to their writer, and without either they count as if it had written them.

    Rows come prompt after prompt, and for each prompt in the order of the samplers. `mixed` instead gives each prompt
    to one of them. Rows of a data set cannot stand in a group: no policy wrote them, so that they are in no baseline
    and no policy gradient applies to them; `mixed` gives them prompts of their own.

    Attributes:
        of: the samplers, two or more, which write at one temperature and without greedy rows.
    """

    of: Annotated[tuple[Annotated[Sampler, SAMPLERS], ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _fit_together(self) -> "Grouped":
        together.agree(self.of)
        if any(isinstance(own, Mixed) for own in self.of):
            raise ValueError(
                "a mixture ('mixed') in a group would make groups of one prompt unlike those of another. Mix whole "
                "groups: name 'grouped' as a sampler of the mixture"
            )
        if has_data_rows(self):
            raise ValueError(
                "rows of the data ('data_rows') in a group would be in no baseline, and no policy gradient would apply "
                "to them. Use 'mixed', which gives them prompts of their own"
            )
        return self

    @property
    def inner(self) -> dict[str, Sampler]:
        """Its samplers, by their keys."""
        return {f"of.{number}": own for number, own in enumerate(self.of)}

    @property
    def reads(self) -> tuple[str, ...]:
        """The policies that its samplers need."""
        return together.reads(self.of)

    @property
    def samples(self) -> int:
        """Rows of a prompt, those of all samplers together."""
        return sum(together.known(self.of, "samples", 1))

    @property
    def max_new_tokens(self) -> int:
        """The longest completion of any of them; AttributeError where none says."""
        return max(together.known(self.of, "max_new_tokens"))

    @property
    def rows_per_batch(self) -> int:
        """The fewest rows that one of them decodes together; AttributeError where none says."""
        return min(together.known(self.of, "rows_per_batch"))

    @property
    def temperature(self) -> float:
        """Their temperature; AttributeError where none says."""
        return together.known(self.of, "temperature")[0]

    @property
    def stop(self) -> tuple[str, ...]:
        """The strings that end a completion of any of them."""
        return tuple(dict.fromkeys(text for texts in together.known(self.of, "stop", ()) for text in texts))

    def __call__(
        self, prompts: Prompts, policies: Mapping[str, Policy], generator: torch.Generator, **offers: Any
    ) -> Rollouts:
        """Every sampler's rows of every prompt; see the class."""
        found = [together.write(own, prompts, policies, generator, **offers) for own in self.of]
        return together.prompt_by_prompt(found, prompts)

    def renew(
        self, step: int, policies: Mapping[str, Policy], prompts: PromptSet, details: Mapping[str, Detail]
    ) -> dict[str, float]:
        """Before each step, by the loop: its samplers' own; metrics of them."""
        return together.renew(self.of, step, policies, prompts, details)
