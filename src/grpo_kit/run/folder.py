"""The run folder: what a run leaves behind."""

import json
import math
import os
import platform
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tomli_w
from transformers import PreTrainedTokenizerBase

from grpo_kit.loop import Report
from grpo_kit.parts import as_table
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.run.statuses import Statuses, example

PACKAGES = ("grpo_kit", "torch", "transformers", "tokenizers", "datasets", "math-verify", "pydantic")


LINES = ("metrics.jsonl", "samples.jsonl", "statuses.jsonl")
"""Files that grow by a line."""


class RunFolder:
    """A folder with the recipe as given and as read, versions, metrics, samples, checkpoints and trained policies."""

    def __init__(self, recipe: Recipe, source: str, out: Path | None) -> None:
        """Create the folder; ValueError when `out` exists."""
        self.path = out or _free(Path("runs"), f"{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}")
        try:
            self.path.mkdir(parents=True)
        except OSError as error:
            raise ValueError(
                f"the run folder {self.path} cannot be made: {error.strerror}. Give another --out."
            ) from None
        (self.path / "recipe.toml").write_text(source, encoding="utf-8")
        (self.path / "recipe.resolved.toml").write_text(tomli_w.dumps(as_table(recipe)), encoding="utf-8")
        (self.path / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n", encoding="utf-8")
        (self.path / "statuses.jsonl").touch()

    @classmethod
    def reopen(cls, path: Path) -> "RunFolder":
        """The folder of a run that ended early."""
        folder = cls.__new__(cls)
        folder.path = path
        return folder

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints are."""
        return self.path / "checkpoints"

    def lengths(self) -> dict[str, int]:
        """Bytes of the files that grow by a line, once these have reached the disk."""
        return {name: _on_disk(self.path / name) for name in LINES}

    def cut_back(self, lengths: Mapping[str, int]) -> None:
        """Drop what came after a checkpoint, a torn last line too; ValueError where lines before it are gone."""
        for name in LINES:
            path, length = self.path / name, lengths.get(name, 0)
            path.touch()
            if path.stat().st_size < length:
                raise ValueError(f"{path} has {path.stat().st_size} bytes, and had {length} at the checkpoint")
            os.truncate(path, length)

    def metrics(self, values: Mapping[str, float]) -> None:
        """Append one step to `metrics.jsonl`; a number that is not finite is null."""
        known = {key: value if math.isfinite(value) else None for key, value in values.items()}
        self._append("metrics.jsonl", known | {"step": int(values["step"])})

    def samples(self, report: Report, count: int, tokenizer: PreTrainedTokenizerBase) -> None:
        """Append the first `count` completions of a step to `samples.jsonl`, with rewards and per-token signals."""
        rollouts, rewards = report.experience.rollouts, report.experience.rewards
        greedy = rollouts.greedy
        for row in range(min(count, len(rollouts))):
            length = int(rollouts.lengths[row])
            behavior = rollouts.behavior
            self._append(
                "samples.jsonl",
                {
                    "step": report.step,
                    "group": int(rollouts.groups[row]),
                    "kept": bool(report.kept[row]),
                    "greedy": bool(greedy[row]),
                    "prompt": tokenizer.decode(list(rollouts.prompts[row])),
                    "completion": rollouts.texts[row],
                    "stop_reason": rollouts.stop_reasons[row],
                    "columns": {name: values[row] for name, values in rollouts.columns.items()},
                    "rewards": {n: _plain(part.per_row()[row]) for n, part in rewards.components.items()},
                    "statuses": {name: part.statuses[row] for name, part in rewards.components.items()},
                    "tokens": rollouts.tokens[row, :length].tolist(),
                    "behavior": _rounded(behavior.logprobs[row, :length]) if behavior else None,
                    "logprobs": {
                        key.policy: _rounded(scores.logprobs[row, :length])
                        for key, scores in report.experience.signals.scores.items()
                    },
                },
            )

    def statuses(self, report: Report, statuses: Statuses, tokenizer: PreTrainedTokenizerBase) -> None:
        """Count the statuses of a step, and append the first rows of each that is not `ok` to `statuses.jsonl`."""
        experience = report.experience
        for name, status, row in statuses.add(experience):
            prompt = str(tokenizer.decode(list(experience.rollouts.prompts[row])))
            line = example(experience, name, status, row, prompt)
            self._append("statuses.jsonl", {"step": report.step} | line)

    def policies(self, policies: Mapping[str, Policy], names: tuple[str, ...]) -> None:
        """Write the final weights of the named policies under `policies/`."""
        for name in names:
            policies[name].save(self.path / "policies" / name)

    def read_metrics(self) -> list[dict[str, Any]]:
        """All lines of `metrics.jsonl` so far."""
        file = self.path / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")


def _on_disk(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def _free(parent: Path, name: str) -> Path:
    """The folder of that name, or with a number behind where it exists: two runs may start in one second."""
    candidates = [parent / name, *(parent / f"{name}-{number}" for number in range(2, 1000))]
    return next(path for path in candidates if not path.exists())


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


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


def _plain(value: Any) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 5) for value in values]
