"""Rollouts and scores as Arrow columns, one row a completion, and back; what is read is checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Shaped
from torch import Tensor

from grpo_kit.batch import NOBODY, Behavior, Prompts, Rollouts, Sampling, Writer
from grpo_kit.shapes import TokenMask
from grpo_kit.signals import Scores, TopTokens

ROUNDING = 1e-4
"""How far above 0 a log-probability may be by rounding."""
OF_MODEL = "model_logprobs"
"""The column of what the writer's own model says, NaN where that is not known; older buffers have none."""


def rollout_table(rollouts: Rollouts, numbers: Sequence[int]) -> pa.Table:
    """Rollouts as a table, the rows of a prompt side by side; `numbers` has the prompt's number of each row."""
    order = sorted(range(len(rollouts)), key=lambda row: numbers[row])
    rows, behavior = rollouts.take(order), rollouts.take(order).behavior
    mask = rows.mask.cpu()
    writer = torch.full_like(rows.tokens, NOBODY) if behavior is None else behavior.writer
    logprobs = torch.zeros(mask.shape) if behavior is None else behavior.logprobs
    columns = {
        "prompt": pa.array([numbers[row] for row in order], pa.int64()),
        "prompt_ids": pa.array(rows.prompts, pa.list_(pa.int32())),
        "completion_ids": _lists(rows.tokens, mask, pa.int32()),
        "logprobs": _lists(logprobs, mask, pa.float32()),
        "writer": _lists(writer, mask, pa.int8()),
        "stop_reason": pa.array(rows.stop_reasons, pa.string()),
        "text": pa.array(rows.texts, pa.string()),
    }
    if behavior is not None and behavior.model_logprobs is not None:
        columns[OF_MODEL] = _lists(behavior.model_logprobs, mask, pa.float32())
    writers = [asdict(one) for one in behavior.writers] if behavior else []
    table = pa.table(columns, metadata={"writers": json.dumps(writers)})
    check_rollouts(table)
    return table


def score_table(scores: Scores, mask: TokenMask, of: str) -> pa.Table:
    """One policy's scores of a shard's rows, tied to the hash of its file."""
    mask = mask.cpu()
    columns = {"logprobs": _lists(scores.logprobs, mask, pa.float32())}
    top = 0 if scores.top is None else scores.top.ids.shape[-1]
    if scores.top is not None:
        columns["top_ids"] = _lists(scores.top.ids, mask, pa.int32())
        columns["top_logprobs"] = _lists(scores.top.logprobs, mask, pa.float32())
    table = pa.table(columns, metadata={"rollouts": of, "top_k": str(top)})
    check_scores(table)
    return table


def to_rollouts(tables: Sequence[pa.Table], prompts: Prompts, device: torch.device) -> Rollouts:
    """Rows of prompts as rollouts: a table for each prompt, whose group and columns they take."""
    counts = [len(table) for table in tables]
    at = [place for place, count in enumerate(counts) for _ in range(count)]
    lengths = [length for table in tables for length in _lengths(table, "completion_ids")]
    mask = torch.arange(max([1, *lengths]))[None, :] < torch.tensor(lengths, dtype=torch.long)[:, None]
    writers: list[Writer] = []
    writer: list[Tensor] = []
    for table in tables:
        own = _writers(table)
        writers += [one for one in own if one not in writers]
        writer.append(torch.tensor([*map(writers.index, own), NOBODY])[_flat(table, "writer").long()])
    known = any(OF_MODEL in table.column_names for table in tables)
    of_model = [_flat_or_unknown(table) for table in tables] if known else []
    behavior = Behavior(
        writers=tuple(writers),
        writer=_padded(writer, mask, torch.long, device),
        logprobs=_padded([_flat(table, "logprobs") for table in tables], mask, torch.float32, device),
        model_logprobs=_padded(of_model, mask, torch.float32, device) if known else None,
    )
    return Rollouts(
        prompts=tuple(prompts.ids[place] for place in at),
        tokens=_padded([_flat(table, "completion_ids") for table in tables], mask, torch.long, device),
        mask=mask.to(device),
        groups=torch.tensor([prompts.groups[place] for place in at], device=device),
        stop_reasons=tuple(reason for table in tables for reason in table["stop_reason"].to_pylist()),
        texts=tuple(text for table in tables for text in table["text"].to_pylist()),
        columns={name: tuple(values[place] for place in at) for name, values in prompts.columns.items()},
        behavior=behavior if writers else None,
    )


def to_scores(tables: Sequence[pa.Table], mask: TokenMask) -> Scores:
    """Rows of one policy's scores, padded as the rollouts' mask says."""
    top, device = top_k(tables[0]), mask.device

    def padded(name: str, dtype: torch.dtype, each: int = 0) -> Tensor:
        return _padded([_flat(table, name) for table in tables], mask.cpu(), dtype, device, each)

    return Scores(
        logprobs=padded("logprobs", torch.float32),
        top=TopTokens(ids=padded("top_ids", torch.long, top), logprobs=padded("top_logprobs", torch.float32, top))
        if top
        else None,
    )


def check_rollouts(table: pa.Table) -> None:
    """ValueError unless every token has a log-probability that can be one, and a writer."""
    lengths = _lengths(table, "completion_ids")
    known = OF_MODEL in table.column_names
    for name in ("logprobs", "writer", *([OF_MODEL] if known else [])):
        _same_lengths(name, _lengths(table, name), lengths)
    _possible(table, "logprobs")
    if known:
        _possible(table, OF_MODEL, or_unknown=True)


def check_scores(table: pa.Table) -> None:
    """ValueError unless all scores can be log-probabilities, and each token has as many of the likeliest tokens."""
    top, lengths = top_k(table), _lengths(table, "logprobs")
    for name in table.column_names:
        _same_lengths(name, _lengths(table, name), [length * (1 if name == "logprobs" else top) for length in lengths])
        if name != "top_ids":
            _possible(table, name)


def lengths_of(rollouts: pa.Table) -> list[int]:
    """Completion tokens a row."""
    return _lengths(rollouts, "completion_ids")


def check_belongs(scores: pa.Table, rollouts: pa.Table) -> None:
    """ValueError unless scores have as many rows and tokens as the rollouts."""
    _same_lengths("logprobs", _lengths(scores, "logprobs"), lengths_of(rollouts))


def top_k(table: pa.Table) -> int:
    """How many of the likeliest tokens a table of scores has."""
    return int(_metadata(table, "top_k"))


def rollouts_hash(table: pa.Table) -> str:
    """The hash of the rollouts that a table of scores belongs to."""
    return _metadata(table, "rollouts")


def _metadata(table: pa.Table, key: str) -> str:
    return (table.schema.metadata or {})[key.encode()].decode()


def _writers(table: pa.Table) -> list[Writer]:
    found: list[Mapping[str, Any]] = json.loads(_metadata(table, "writers"))
    return [Writer(policy=one["policy"], version=one["version"], sampling=Sampling(**one["sampling"])) for one in found]


def _lists(values: Tensor, mask: Tensor, kind: pa.DataType) -> pa.Array:
    """The values of each row's tokens, one list a row; several values a token follow one another."""
    each = values.shape[2] if values.ndim == 3 else 1
    flat = values.detach().cpu()[mask].flatten().numpy()
    ends = np.concatenate([[0], np.cumsum(mask.sum(1).numpy() * each)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(flat).cast(kind))


def _flat(table: pa.Table, name: str) -> Shaped[Tensor, " value"]:
    """The values of all rows of a column of lists, one after another."""
    chunks = [chunk.flatten().to_numpy() for chunk in table[name].chunks]
    return torch.from_numpy(np.concatenate(chunks) if chunks else np.zeros(0))


def _flat_or_unknown(table: pa.Table) -> Shaped[Tensor, " value"]:
    """The log-probabilities of the writer's own model, NaN in a table without them."""
    if OF_MODEL in table.column_names:
        return _flat(table, OF_MODEL)
    return torch.full_like(_flat(table, "logprobs"), torch.nan)


def _lengths(table: pa.Table, name: str) -> list[int]:
    return [int(length) for chunk in table[name].chunks for length in chunk.value_lengths().to_numpy()]


def _padded(flat: Sequence[Tensor], mask: Tensor, dtype: torch.dtype, device: torch.device, each: int = 0) -> Tensor:
    """Values one after another at the places of a mask; 0 elsewhere. `each` of them a token, or one without."""
    values = torch.zeros((*mask.shape, each) if each else mask.shape, dtype=dtype)
    found = torch.cat(list(flat)).to(dtype)
    values[mask] = found.unflatten(0, (-1, each)) if each else found
    return values.to(device)


def _same_lengths(name: str, found: Sequence[int], expected: Sequence[int]) -> None:
    if list(found) != list(expected):
        row = next((row for row, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other), None)
        where = "" if row is None else f": row {row} has {found[row]} and should have {expected[row]}"
        raise ValueError(f"'{name}' has another number of values than the completions have tokens{where}")


def _possible(table: pa.Table, name: str, *, or_unknown: bool = False) -> None:
    values = _flat(table, name)
    impossible = ~torch.isfinite(values) | (values > ROUNDING)
    bad = torch.nonzero(impossible & ~values.isnan() if or_unknown else impossible).flatten()
    if len(bad):
        row = int(np.searchsorted(np.cumsum(_lengths(table, name)), int(bad[0]), side="right"))
        raise ValueError(f"'{name}' of row {row} is {float(values[bad[0]])}, which no log-probability can be")
