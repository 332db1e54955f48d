"""Rows become token ids, and a shuffled endless stream of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import torch
from transformers import PreTrainedTokenizerBase

from grpo_kit.batch import Prompts


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSet:
    """Tokenised prompts with their columns.

    Attributes:
        ids: token ids of each prompt.
        columns: the data set's columns, one value a prompt.
        skipped: the rows left out, each with its number in the data set and the reason.
    """

    ids: tuple[tuple[int, ...], ...]
    columns: Mapping[str, tuple[Any, ...]]
    skipped: tuple[str, ...]

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.ids)

    def take(self, rows: Sequence[int], first_group: int = 0) -> Prompts:
        """The given prompts as a batch, in groups numbered from `first_group`."""
        return Prompts(
            ids=tuple(self.ids[row] for row in rows),
            groups=tuple(range(first_group, first_group + len(rows))),
            columns={name: tuple(values[row] for row in rows) for name, values in self.columns.items()},
        )


def encode_prompts(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_tokens: int,
    needed: Sequence[str] = (),
    limit: int | None = None,
) -> PromptSet:
    """Tokenise the column `prompt`: a text as it is, chat messages through the chat template (applied once).

    Rows without a prompt, without a value in a `needed` column, or longer than `max_tokens` are skipped, counted and
    named. `limit` stops after that many good rows. ValueError when a needed column is missing or no row is left.
    """
    missing = [name for name in needed if name not in rows.column_names]
    if missing:
        raise ValueError(
            f"the data has no column '{missing[0]}' that a reward reads. It has: {', '.join(rows.column_names)}. "
            "Map it in [data] columns, or set the reward's column."
        )
    ids: list[tuple[int, ...]] = []
    kept: list[int] = []
    skipped: list[str] = []
    for number, row in enumerate(rows):
        assert isinstance(row, dict)
        encoded = _encode(row["prompt"], tokenizer)
        fault = _fault(row, encoded, needed, max_tokens)
        if fault:
            skipped.append(f"row {number}: {fault}")
            continue
        ids.append(encoded)
        kept.append(number)
        if len(kept) == limit:
            break
    if not ids:
        raise ValueError(f"0 of {len(rows)} prompts left. {'; '.join(skipped[:3])}")
    chosen = rows.select(kept)
    columns = {name: tuple(chosen[name]) for name in rows.column_names}
    return PromptSet(ids=tuple(ids), columns=columns, skipped=tuple(skipped))


def _fault(row: Mapping[str, Any], encoded: Sequence[int], needed: Sequence[str], max_tokens: int) -> str | None:
    """Why a row cannot be used, or None."""
    if not encoded:
        return "no prompt (a text that is not empty, or chat messages with chat = true)"
    if len(encoded) > max_tokens:
        return f"{len(encoded)} tokens, over max_prompt_tokens = {max_tokens}"
    for name in needed:
        value = row[name]
        if value is None or (isinstance(value, str) and not value.strip()):
            return f"column '{name}' has no value (or extract does not match it)"
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return f"column '{name}' is a {type(value).__name__}; a text or a number is expected"
    return None


def _encode(prompt: Any, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    if isinstance(prompt, str) and prompt:
        return tuple(tokenizer(prompt)["input_ids"])  # pyright: ignore
    if not isinstance(prompt, list) or not prompt:
        return ()
    if tokenizer.chat_template is None:
        raise ValueError("the tokenizer has no chat template: remove chat = true and write the prompt as a template")
    encoded = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)
    return tuple(encoded["input_ids"])  # pyright: ignore


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
