"""A buffer: a folder of rollouts in shards, whole prompts each, and of policies' scores beside them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from filelock import FileLock, Timeout

from grpo_kit.batch import Prompts, Rollouts
from grpo_kit.buffers.columns import (
    check_belongs,
    check_rollouts,
    check_scores,
    lengths_of,
    rollout_table,
    rollouts_hash,
    score_table,
    to_rollouts,
    to_scores,
)
from grpo_kit.buffers.fingerprints import Identity, differences
from grpo_kit.buffers.shards import (
    DamagedShardError,
    find_shard,
    hash_in,
    read_shard,
    remove_unfinished,
    write_shard,
)
from grpo_kit.disk import write_text
from grpo_kit.shapes import TokenMask
from grpo_kit.signals import Scores

FORMAT = 1
"""Version of the layout; another one is refused."""
LOCK = "lock"
OURS = {LOCK, "rollouts", "scores", "refreshed", "buffer.json.unfinished"}
"""What may be in a folder before its buffer is begun; the last is of a writer that was killed while it began."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer on disk.

    ```
    buffer.json                       format and identity: what the rollouts are a function of
    rollouts/00000-<sha256>.arrow     a shard: all rows of `prompts_per_shard` prompts
    scores/<policy>/scores.json       the identity of who scored
    scores/<policy>/00000-<sha256>.arrow
    ```

    A shard appears by one rename, so that it is whole or not there; its content's hash is in its name and is compared
    before the first read. Scores name the hash of the rollouts that they belong to. Reading goes through the memory
    map: a buffer may be larger than memory.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def exists(self) -> bool:
        """Whether it was ever begun."""
        return (self.path / "buffer.json").exists()

    @property
    def identity(self) -> Identity:
        """What its rollouts are a function of; ValueError where it does not say."""
        return _read_identity(self.path / "buffer.json")

    @property
    def prompts_per_shard(self) -> int:
        """Prompts whose rows are in one shard."""
        found = self.identity.get("prompts_per_shard")
        if not isinstance(found, int) or found < 1:
            raise ValueError(
                f"{self.path / 'buffer.json'} does not say how many prompts a shard has; fill a new folder"
            )
        return found

    @property
    def scorers(self) -> tuple[str, ...]:
        """The policies that scored rows of it."""
        return tuple(sorted(file.parent.name for file in (self.path / "scores").glob("*/scores.json")))

    def mistakes(self, identity: Identity, scorers: Mapping[str, Identity]) -> list[str]:
        """Everything in which it is another buffer than the one asked for; nothing when it was not begun."""
        if not self.exists:
            return []
        try:
            found = differences(self.identity, identity)
            for name in self.scorers:
                if name in scorers:
                    there = dict(_read_identity(self._folder(name) / "scores.json"))
                    top_k = there.get("top_k")
                    if isinstance(top_k, int) and top_k > scorers[name]["top_k"]:  # more than asked for will do
                        there["top_k"] = scorers[name]["top_k"]
                    own = differences(there, scorers[name])
                    found += [f"scores/{name}: {line}" for line in own]
        except ValueError as error:
            return [str(error)]
        return found

    def begin(self, identity: Identity, scorers: Mapping[str, Identity]) -> None:
        """Make what is not there yet; ValueError names all in which it is another buffer."""
        if found := self.mistakes(identity, scorers):
            raise ValueError(refusal(self.path, found))
        if not self.exists:
            if self.path.exists() and any(file.name not in OURS for file in self.path.iterdir()):
                raise ValueError(f"{self.path} holds other files and no buffer. Give a new folder")
            _write_identity(self.path / "buffer.json", identity)
        for name in scorers:
            if name not in self.scorers:
                _write_identity(self._folder(name) / "scores.json", scorers[name])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer; leftovers of a killed one are removed. ValueError where another is at work."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path / LOCK, timeout=0):
                remove_unfinished(self.path)
                yield
        except Timeout:
            raise ValueError(f"{self.path} is being filled by another process. Wait for it, or end it") from None

    def write_rollouts(self, shard: int, rollouts: Rollouts, numbers: Sequence[int]) -> None:
        """Write a shard; `numbers` has the prompt's number of each row."""
        write_shard(self._folder(None), shard, rollout_table(rollouts, numbers))

    def write_scores(self, shard: int, policy: str, scores: Scores, mask: TokenMask) -> None:
        """Write a policy's scores of a shard's rows, in their order."""
        written = self._file(shard, None)
        assert written is not None, "rows are written before they are scored"
        write_shard(self._folder(policy), shard, score_table(scores, mask, hash_in(written)))

    def table(self, shard: int, policy: str | None = None) -> pa.Table | None:
        """A shard's rows, or a policy's scores of them; None where they were not written.

        DamagedShardError where the file is not what was written. Scores of rows that are no longer there count as none.
        """
        rows, path = self._file(shard, None), self._file(shard, policy)
        if rows is None or path is None:
            return None
        if policy is None:
            return read_shard(path, check_rollouts)
        scores = read_shard(path, check_scores)
        if rollouts_hash(scores) != hash_in(rows):
            return None
        check_belongs(scores, read_shard(rows, check_rollouts))
        return scores

    def lengths(self, shard: int) -> list[int]:
        """Completion tokens of each row of a shard."""
        table = self.table(shard)
        return [] if table is None else lengths_of(table)

    def is_whole(self, prompts: int, policies: Iterable[str]) -> bool:
        """Whether the rows of so many prompts are there, with scores of the policies, and nothing is damaged."""
        if not self.exists:
            return False
        wanted, policies = range(ceil(prompts / self.prompts_per_shard)), tuple(policies)
        try:
            return all(self.table(shard, policy) is not None for policy in (None, *policies) for shard in wanted)
        except DamagedShardError:
            return False

    def remove(self, shard: int, policy: str | None = None) -> None:
        """Remove the files of a shard's rows, or of a policy's scores of it."""
        while path := self._file(shard, policy):
            path.unlink()

    def take(
        self, prompts: Prompts, device: torch.device, scorers: Iterable[str] | None = None
    ) -> tuple[Rollouts, dict[str, Scores]]:
        """The rows of prompts, by their numbers, with the scores of those `scorers` (all by default) that scored them.

        Rows come prompt after prompt, in the order they were written. ValueError where a prompt has no rows, was
        another one when they were written, or a row cannot be what some policy wrote or scored.
        """
        if len(prompts.numbers) != len(prompts):
            raise ValueError("a buffer finds rows by the numbers of the prompts: take prompts from a PromptSet")
        each = self.prompts_per_shard
        shard_of = [number // each for number in prompts.numbers]
        tables = self._tables(set(shard_of), None)
        rows: list[pa.Table] = []
        places: list[tuple[int, slice]] = []
        for shard, number, ids in zip(shard_of, prompts.numbers, prompts.ids, strict=True):
            place = _place(tables[shard], number) if shard in tables else slice(0, 0)
            if place.start == place.stop:
                raise ValueError(f"buffer {self.path} has no rows of prompt {number}. Fill it: grpo-kit rollout RECIPE")
            found = tables[shard][place]
            if tuple(found["prompt_ids"][0].as_py()) != tuple(ids):
                raise ValueError(f"buffer {self.path}: prompt {number} was another one when its rows were written")
            rows.append(found)
            places.append((shard, place))
        rollouts = to_rollouts(rows, prompts, device)
        scores: dict[str, Scores] = {}
        for policy in self.scorers if scorers is None else [name for name in scorers if name in self.scorers]:
            own = self._tables(set(shard_of), policy)
            if len(own) == len(tables):
                scores[policy] = to_scores([own[shard][place] for shard, place in places], rollouts.mask)
        return rollouts, scores

    @property
    def bytes(self) -> int:
        """Its size on disk, without what runs wrote anew."""
        files = (file for folder in ("rollouts", "scores") for file in (self.path / folder).rglob("*"))
        return sum(file.stat().st_size for file in files if file.is_file())

    def bytes_of(self, shards: int) -> int:
        """Size on disk of the first so many shards, rows and scores."""
        files = [self._file(shard, policy) for shard in range(shards) for policy in (None, *self.scorers)]
        return sum(file.stat().st_size for file in files if file is not None)

    def _tables(self, wanted: Iterable[int], policy: str | None) -> dict[int, pa.Table]:
        """Those shards that are there."""
        return {shard: table for shard in wanted if (table := self.table(shard, policy)) is not None}

    def _folder(self, policy: str | None) -> Path:
        """Where rows are, or a policy's scores."""
        return self.path / "rollouts" if policy is None else self.path / "scores" / policy

    def _file(self, shard: int, policy: str | None) -> Path | None:
        return find_shard(self._folder(policy), shard)


def refusal(path: Path, differing: Sequence[str]) -> str:
    """The sentence for a buffer that is another one than asked for."""
    what = "; ".join(differing)
    return f"buffer {path} is not this recipe's: {what}. Give another folder, or remove this one to fill it anew"


def _place(table: pa.Table, number: int) -> slice:
    """Where a prompt's rows stand in a shard, which is sorted by prompt."""
    numbers = table["prompt"].to_numpy()
    return slice(*(int(np.searchsorted(numbers, number, side)) for side in ("left", "right")))


def _read_identity(file: Path) -> Identity:
    """The identity in a file; ValueError where there is none that this version reads."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        version, identity = found["format"], dict(found["identity"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read ({error}); remove its folder to fill it anew") from None
    if version != FORMAT:
        raise ValueError(f"{file} is of format {version}, and this version of grpo_kit reads {FORMAT}")
    return identity


def _write_identity(file: Path, identity: Identity) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps({"format": FORMAT, "identity": identity}, indent=2) + "\n")
