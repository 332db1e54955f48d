"""The run folder: what a run leaves behind."""

import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tomli_w
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from grpo_kit.disk import append_line, reason, remove_leftovers, whole_folder, write_text
from grpo_kit.loop import Report
from grpo_kit.parts import as_table
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.run.curves import draw_curves
from grpo_kit.run.sample_lines import sample_lines
from grpo_kit.run.statuses import Statuses, example

PACKAGES = ("grpo_kit", "torch", "transformers", "tokenizers", "datasets", "math-verify", "pydantic")
RECIPE = "recipe.resolved.toml"
"""The recipe as it was read, and as a run that went on changed it."""
LINES = ("metrics.jsonl", "samples.jsonl", "statuses.jsonl")
"""Files that grow by a line."""
OVERDUE = "timeouts.jsonl"
LOCK = "lock"


class RunFolderError(ValueError):
    """A run folder that cannot be made, opened or written; says which, why, and how to go on."""


class RunFolder:
    """A folder with the recipe as given and as read, versions, metrics, samples, checkpoints and trained policies.

    It comes to be by one rename, and one process at a time works in it. Lines are whole whatever happens.
    """

    def __init__(self, recipe: Recipe, source: str, out: Path | None) -> None:
        """Create the folder; RunFolderError when `out` exists, or cannot be written."""
        name = f"{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}"
        path = out or Path("runs") / name
        for number in range(2, 1000):
            try:
                self._make(path, recipe, source)
                break
            except OSError as error:
                if out is not None or not isinstance(error, FileExistsError):
                    said = f"the run folder {path} cannot be made: {reason(error)}. Give another --out."
                    raise RunFolderError(said) from None
                path = Path("runs") / f"{name}-{number}"  # two runs may start in one second
        self._open(path)

    def _make(self, path: Path, recipe: Recipe, source: str) -> None:
        with whole_folder(path, replace=False) as folder:
            (folder / "recipe.toml").write_text(source, encoding="utf-8")
            (folder / RECIPE).write_text(tomli_w.dumps(as_table(recipe)), encoding="utf-8")
            (folder / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n", encoding="utf-8")
            for name in (*LINES, OVERDUE):
                (folder / name).touch()

    @classmethod
    def reopen(cls, path: Path) -> "RunFolder":
        """The folder of a run that ended early; RunFolderError where a process is still at work in it."""
        folder = cls.__new__(cls)
        folder._open(path)
        remove_leftovers(path / "policies")
        remove_leftovers(folder.checkpoints)
        return folder

    def _open(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / LOCK, timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise RunFolderError(f"{path}: another process is at work in it. Wait for it, or end it.") from None
        except OSError as error:
            raise RunFolderError(f"the run folder {path} cannot be written: {reason(error)}.") from None

    def close(self) -> None:
        """Let another process work in it."""
        self._lock.release()

    def recipe(self, recipe: Recipe) -> None:
        """Write the recipe as it is now; RunFolderError where it cannot be written."""
        with self._writing(RECIPE):
            write_text(self.path / RECIPE, tomli_w.dumps(as_table(recipe)))

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints are."""
        return self.path / "checkpoints"

    @property
    def overdue(self) -> Path:
        """What its graders gave up, which a run that goes on gives up, too."""
        return self.path / OVERDUE

    def lengths(self) -> dict[str, int]:
        """Bytes of the files that grow by a line, once these have reached the disk."""
        return {name: _on_disk(self.path / name) for name in LINES}

    def cut_back(self, lengths: Mapping[str, int]) -> list[str]:
        """Drop what came after a checkpoint, a torn last line too; a line for each file that has lost lines before it.

        Nothing of these files is read for training, so a run goes on without them.
        """
        lost: list[str] = []
        for name in LINES:
            path, length = self.path / name, lengths.get(name, 0)
            with self._writing(name):
                path.touch()
                there = path.stat().st_size
                os.truncate(path, length if there >= length else path.read_bytes().rfind(b"\n") + 1)
            if there < length:
                lost.append(f"{path} has {there} bytes, and had {length} at the checkpoint: lines of it are gone")
        return lost

    def metrics(self, values: Mapping[str, float]) -> None:
        """Append one step to `metrics.jsonl`; a number that is not finite is null."""
        known = {key: value if math.isfinite(value) else None for key, value in values.items()}
        self._append("metrics.jsonl", known | {"step": int(values["step"])})

    def samples(self, report: Report, count: int, tokenizer: PreTrainedTokenizerBase, *, max_gib: float) -> str | None:
        """Append the first `count` completions of a step to `samples.jsonl`, with rewards and per-token signals.

        Nothing once the file has `max_gib`, which is then said.
        """
        if _size(self.path / "samples.jsonl") >= max_gib * 2**30:
            return f"samples.jsonl has max_log_gib = {max_gib:g}; no more samples are kept in it"
        for line in sample_lines(report, count, tokenizer):
            self._append("samples.jsonl", line)
        return None

    def statuses(self, report: Report, statuses: Statuses, tokenizer: PreTrainedTokenizerBase) -> None:
        """Count the statuses of a step, and append the first rows of each that is not `ok` to `statuses.jsonl`."""
        experience = report.experience
        for name, status, row in statuses.add(experience):
            prompt = str(tokenizer.decode(list(experience.rollouts.prompts[row])))
            line = example(experience, name, status, row, prompt)
            self._append("statuses.jsonl", {"step": report.step} | line)

    def policy(self, policy: Policy) -> None:
        """Write a policy's weights under `policies/`, whole or as they were before; RunFolderError if not."""
        with self._writing(f"policies/{policy.name}"), whole_folder(self.path / "policies" / policy.name) as folder:
            policy.save(folder)

    def curves(self) -> None:
        """Draw `curves.png` from the metrics so far; RunFolderError where it cannot be written."""
        with self._writing("curves.png"):
            draw_curves(self.read_metrics(), self.path / "curves.png")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All lines of `metrics.jsonl` so far."""
        return read_metrics(self.path)

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        with self._writing(name):
            append_line(self.path / name, json.dumps(line, default=str))

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise RunFolderError(f"{self.path / name} cannot be written: {reason(error)}") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _on_disk(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers, and the number of torch's threads, as it does."""
    found = {"python": platform.python_version(), "torch threads": str(torch.get_num_threads())}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All lines of a run folder's `metrics.jsonl` so far."""
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def versions_of(folder: Path) -> list[str]:
    """Packages whose versions are others than when a run folder was made, a line each."""
    try:
        before = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ["versions.json cannot be read: whether all packages are the same is not known"]
    now = versions()
    return [
        f"{name} is {now[name]} and was {before.get(name, 'not noted')}: what follows may differ in the last bits"
        for name in now
        if before.get(name) != now[name]
    ]
