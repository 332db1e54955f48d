"""Tokenized prompts, and an endless stream of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from grpo_kit.batch import Prompts
from grpo_kit.data.curriculum import Curriculum, PassRates
from grpo_kit.data.rows import Fault


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSet:
    """Tokenized prompts with their columns.

    Attributes:
        ids: token ids of each prompt.
        columns: the data set's columns, one value a prompt.
        skipped: the rows left out, each with its place, the kind of its fault and the reason.
    """

    ids: tuple[tuple[int, ...], ...]
    columns: Mapping[str, tuple[Any, ...]]
    skipped: tuple[Fault, ...]

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.ids)

    @property
    def repeats(self) -> int:
        """How many prompts are the same as an earlier one."""
        return len(self) - len(set(self.ids))

    def shared_with(self, other: "PromptSet") -> int:
        """How many prompts are among those of another set."""
        known = set(other.ids)
        return sum(ids in known for ids in self.ids)

    def only(self, rows: Sequence[int]) -> "PromptSet":
        """The given prompts as a set of their own."""
        columns = {name: tuple(values[row] for row in rows) for name, values in self.columns.items()}
        return PromptSet(ids=tuple(self.ids[row] for row in rows), columns=columns, skipped=self.skipped)

    def take(self, rows: Sequence[int], first_group: int = 0) -> Prompts:
        """The given prompts as a batch, in groups numbered from `first_group`."""
        return Prompts(
            ids=tuple(self.ids[row] for row in rows),
            groups=tuple(range(first_group, first_group + len(rows))),
            columns={name: tuple(values[row] for row in rows) for name, values in self.columns.items()},
            numbers=tuple(rows),
        )


class PromptStream:
    """Endless batches of prompts: each epoch visits every prompt once, in an order of its own from the seed.

    With a curriculum prompts are drawn by their pass rates instead, which `observe` is told. Groups are numbered on
    through the run, so that no two prompts drawn share an id.

    Attributes:
        prompts: all there are.
        seed: decides the order.
        curriculum: how prompts are drawn; None for epochs.
        position: prompts drawn so far.
        pass_rates: what is known of each prompt; for a curriculum.
    """

    def __init__(self, prompts: PromptSet, *, seed: int, curriculum: Curriculum | None = None) -> None:
        """Stream over prompts; the order depends on the seed and on what is observed alone."""
        self.prompts, self.seed, self.curriculum = prompts, seed, curriculum
        self.position = 0
        self.pass_rates = PassRates.of(len(prompts))
        self._epoch_order: tuple[int, list[int]] = (-1, [])
        self._drawn: dict[int, int] = {}  # the prompt of each group of this step

    def take(self, count: int, *, same_step: bool = False) -> Prompts:
        """The next `count` prompts, running on into the next epoch; `same_step` when more are drawn for a step."""
        rows = self._in_turn(count) if self.curriculum is None else self._by_pass_rate(count, same_step)
        batch = self.prompts.take(rows, first_group=self.position)
        self._drawn = (self._drawn if same_step else {}) | dict(zip(batch.groups, rows, strict=True))
        self.position += count
        return batch

    def state(self) -> dict[str, Any]:
        """Where it is between two steps, as plain data; `restore` takes it back."""
        rates = self.pass_rates
        known = None if self.curriculum is None else {"visits": rates.visits, "rates": rates.rates}
        return {"prompts": len(self.prompts), "position": self.position, "pass_rates": known}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; ValueError where it was the state of other prompts."""
        if state["prompts"] != len(self.prompts):
            raise ValueError(f"the data has {len(self.prompts)} prompts, and had {state['prompts']}")
        self.position = state["position"]
        if state["pass_rates"] is not None:
            self.pass_rates = PassRates(**state["pass_rates"])

    def observe(self, found: Mapping[int, float]) -> None:
        """Take in how often groups of this step were right, by their numbers; NaN for one without a verdict."""
        if self.curriculum is not None:
            self.pass_rates.update({self._drawn[group]: rate for group, rate in found.items()}, self.curriculum.decay)

    @property
    def epoch(self) -> float:
        """Prompts drawn so far over the number of prompts; without a curriculum the passes over them."""
        return self.position / len(self.prompts)

    def _in_turn(self, count: int) -> list[int]:
        numbers = range(self.position, self.position + count)
        return [self._order(number // len(self.prompts))[number % len(self.prompts)] for number in numbers]

    def _by_pass_rate(self, count: int, same_step: bool) -> list[int]:
        assert self.curriculum is not None
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.position)
        last = self._drawn.values() if same_step else ()
        return self.pass_rates.draw(count, self.curriculum, generator, last)

    def _order(self, epoch: int) -> list[int]:
        """The order of one epoch, a function of seed and epoch alone; the latest is kept."""
        if self._epoch_order[0] != epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            self._epoch_order = epoch, torch.randperm(len(self.prompts), generator=generator).tolist()
        return self._epoch_order[1]
