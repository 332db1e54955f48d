"""A curriculum: prompts that are sometimes right and sometimes wrong come more often."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from grpo_kit.parts import table

PerPrompt = Float[Tensor, " prompt"]


@table
class Curriculum:
    r"""Draw prompts by their running pass rate: unseen ones first, then by $w = p\,(1 - p) + \text{floor}$.

    The variance $p\,(1 - p)$ of a reward of 0 or 1 is how much a prompt has to teach: nothing where every completion is
    right or every one is wrong. Policies change, so no prompt is given up: each keeps at least the weight `floor`.
    The pass rate $p$ is a moving average over a prompt's visits, $p \leftarrow d\,p + (1 - d)\,\bar r$ with $d$ the
    `decay` and $\bar r$ the mean reward of the group; its first visit sets it. A group without a verdict leaves it as
    it was, and a prompt that never had one has the weight `floor`.

    Prompts of a step are drawn one after another, without replacement; sampling again (a refill) takes one of them
    again only when all others are used up.

    Attributes:
        reward: name of the reward component whose mean is the pass rate; from 0 to 1.
        decay: share of the old pass rate kept at a visit, in [0, 1); 0 keeps the latest alone.
        floor: weight that every prompt has at least; above 0. The largest weight is 0.25 more.
    """

    reward: str
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.5
    floor: Annotated[float, Field(gt=0)] = 0.05

    def weights(self, pass_rates: PerPrompt) -> PerPrompt:
        """The weight of prompts by their pass rates; NaN is an unknown one."""
        return torch.nan_to_num(pass_rates * (1 - pass_rates)) + self.floor


@dataclass(kw_only=True, slots=True)
class PassRates:
    """How often prompts were drawn and how often they were right, as plain data that a checkpoint can hold.

    Attributes:
        visits: how often each prompt was drawn.
        rates: the running pass rate of each prompt; None before its first verdict.
    """

    visits: list[int]
    rates: list[float | None]

    @classmethod
    def of(cls, prompts: int) -> "PassRates":
        """Nothing known of so many prompts."""
        return cls(visits=[0] * prompts, rates=[None] * prompts)

    def draw(
        self, count: int, curriculum: Curriculum, generator: torch.Generator, last: Collection[int] = ()
    ) -> list[int]:
        """Different prompts: those unseen first, then by weight, then those that are to come `last`."""
        if count > len(self.visits):
            raise ValueError(
                f"prompts_per_step = {count}: a curriculum draws no prompt twice in a step, and there are "
                f"{len(self.visits)}. Lower prompts_per_step, or remove [curriculum]"
            )
        # The smallest of exponential clocks at rates w rings first with probability w / sum(w), and so on for the rest.
        uniforms = torch.rand(len(self.visits), generator=generator, dtype=torch.float64)
        clocks = (-torch.log1p(-uniforms) / self._weights(curriculum)).tolist()
        turn = [0 if visits == 0 else 1 for visits in self.visits]
        for prompt in last:
            turn[prompt] = 2
        chosen = sorted(range(len(turn)), key=lambda prompt: (turn[prompt], clocks[prompt]))[:count]
        for prompt in chosen:
            self.visits[prompt] += 1
        return chosen

    def update(self, found: Mapping[int, float], decay: float) -> None:
        """Move the rates of some prompts toward what was found now; NaN leaves one as it is."""
        for prompt, now in found.items():
            if now == now:
                old = self.rates[prompt]
                self.rates[prompt] = now if old is None else decay * old + (1 - decay) * now

    def metrics(self, curriculum: Curriculum) -> dict[str, float]:
        """`data/*`: mean pass rate, share of prompts seen, effective number of prompts among those seen."""
        known = [rate for rate in self.rates if rate is not None]
        seen = torch.tensor([visits > 0 for visits in self.visits])
        weights = self._weights(curriculum)[seen]
        return {
            "data/pass_rate": sum(known) / len(known) if known else float("nan"),
            "data/seen": float(seen.double().mean()),
            "data/effective_prompts": float(weights.sum() ** 2 / weights.square().sum()),
        }

    def _weights(self, curriculum: Curriculum) -> PerPrompt:
        rates = [float("nan") if rate is None else rate for rate in self.rates]
        return curriculum.weights(torch.tensor(rates, dtype=torch.float64))
