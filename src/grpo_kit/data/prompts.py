"""Tokenised prompts, and an endless shuffled stream of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from grpo_kit.batch import Prompts
from grpo_kit.data.rows import Fault


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSet:
    """Tokenised prompts with their columns.

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

    def take(self, rows: Sequence[int], first_group: int = 0) -> Prompts:
        """The given prompts as a batch, in groups numbered from `first_group`."""
        return Prompts(
            ids=tuple(self.ids[row] for row in rows),
            groups=tuple(range(first_group, first_group + len(rows))),
            columns={name: tuple(values[row] for row in rows) for name, values in self.columns.items()},
        )


class PromptStream:
    """Endless batches of prompts: each epoch visits every prompt once, in an order of its own from the seed.

    Groups are numbered on through the run, so that no two prompts drawn share an id.
    """

    def __init__(self, prompts: PromptSet, *, seed: int) -> None:
        """Stream over prompts; the order depends on the seed alone."""
        self.prompts, self.seed = prompts, seed
        self.position = 0
        self._epoch_order: tuple[int, list[int]] = (-1, [])

    def take(self, count: int) -> Prompts:
        """The next `count` prompts, running on into the next epoch."""
        numbers = range(self.position, self.position + count)
        rows = [self._order(number // len(self.prompts))[number % len(self.prompts)] for number in numbers]
        batch = self.prompts.take(rows, first_group=self.position)
        self.position += count
        return batch

    @property
    def epoch(self) -> float:
        """Passes over the prompts so far."""
        return self.position / len(self.prompts)

    def _order(self, epoch: int) -> list[int]:
        """The order of one epoch, a function of seed and epoch alone; the latest is kept."""
        if self._epoch_order[0] != epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            self._epoch_order = epoch, torch.randperm(len(self.prompts), generator=generator).tolist()
        return self._epoch_order[1]
