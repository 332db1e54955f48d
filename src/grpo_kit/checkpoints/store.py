"""Checkpoints on disk: each a folder that is whole or not there, whose bytes are verified before they are read."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from grpo_kit.checkpoints.tree import pack, unpack
from grpo_kit.disk import file_hash, reason, remove, whole_folder

FORMAT = 1
"""Version of the layout; another one is refused."""
MANIFEST = "manifest.json"
NAME = re.compile(r"step-(\d+)")


class CheckpointError(ValueError):
    """A checkpoint that cannot be written or read; says which and why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint.

    ```
    step-25/
      manifest.json           format, step, and size and SHA-256 of the files
      <part>.json             what is no tensor
      <part>.safetensors      the tensors, where there are any
    ```

    Attributes:
        path: its folder.
        step: steps of the loop that it has behind it.
    """

    path: Path
    step: int

    def fault(self) -> str | None:
        """Why it cannot be used, None where its bytes are those that were written."""
        try:
            said = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
            if not isinstance(said, dict) or said.get("format") != FORMAT:
                return f"format {said.get('format') if isinstance(said, dict) else said!r}, where {FORMAT} is read"
            if said["step"] != self.step:
                return f"it is of step {said['step']}"
            for name, known in said["files"].items():
                file = self.path / str(name)
                if file.parent != self.path:
                    return f"{name} is not in it"
                if file.stat().st_size != known["bytes"] or file_hash(file) != known["sha256"]:
                    return f"{name} is not what was written"
            parts = {file.name for file in self.path.iterdir() if file.suffix in (".json", ".safetensors")}
            if unknown := sorted(parts - {MANIFEST, *said["files"]}):
                return f"{unknown[0]} is not in its {MANIFEST}"
        except OSError as error:
            return f"{Path(error.filename or self.path).name}: {error.strerror}"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return f"{MANIFEST} is damaged"
        return None

    def read(self) -> dict[str, Any]:
        """Its parts by their names; CheckpointError where it is damaged."""
        if fault := self.fault():
            raise CheckpointError(f"{self.path} is damaged: {fault}")
        files = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))["files"]
        try:
            return {name.removesuffix(".json"): self._part(name, files) for name in files if name.endswith(".json")}
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            raise CheckpointError(f"{self.path} cannot be read: {error}") from None

    def part(self, name: str) -> Any:
        """One part by its name, unverified; CheckpointError where it cannot be read."""
        try:
            return self._part(f"{name}.json", {file.name: {} for file in self.path.iterdir()})
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            raise CheckpointError(f"{self.path} cannot be read: {error}") from None

    def _part(self, name: str, files: Mapping[str, Any]) -> Any:
        tensors = f"{name.removesuffix('.json')}.safetensors"
        found = load_file(self.path / tensors) if tensors in files else {}
        return unpack(json.loads((self.path / name).read_text(encoding="utf-8")), found)


def save(folder: Path, step: int, parts: Mapping[str, Any]) -> Checkpoint:
    """Write the parts of a state as `folder/step-N`, by one rename after all bytes have reached the disk.

    Another writing of the same step is replaced. CheckpointError says what the disk refused; what was there stays.
    """
    path = folder / f"step-{step}"
    try:
        packed = {name: pack(value, name) for name, value in parts.items()}
        with whole_folder(path) as unfinished:
            for name, (plain, tensors) in packed.items():
                (unfinished / f"{name}.json").write_text(json.dumps(plain, allow_nan=False), encoding="utf-8")
                if tensors:
                    save_file(tensors, unfinished / f"{name}.safetensors")
            written = sorted(unfinished.iterdir())
            files = {file.name: {"bytes": file.stat().st_size, "sha256": file_hash(file)} for file in written}
            manifest = {"format": FORMAT, "step": step, "files": files}
            (unfinished / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    except (OSError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"the checkpoint of step {step} cannot be written to {folder}: {reason(error)}") from None
    return Checkpoint(path, step)


def all_in(folder: Path) -> list[Checkpoint]:
    """The checkpoints of a folder, the latest first; by number, so that step 1000 comes after step 900."""
    found = [(path, NAME.fullmatch(path.name)) for path in (folder.iterdir() if folder.is_dir() else ())]
    steps = [Checkpoint(path, int(name[1])) for path, name in found if name is not None]
    return sorted(steps, key=lambda own: own.step, reverse=True)


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The latest checkpoint that is whole, None without any; and what is wrong with the later ones, a line each."""
    faults: list[str] = []
    for own in all_in(folder):
        if (fault := own.fault()) is None:
            return own, faults
        faults.append(f"{own.path} is skipped: {fault}")
    return None, faults


def prune(folder: Path, *, last: int, keep: frozenset[int] = frozenset()) -> list[Path]:
    """Remove all but the latest `last` checkpoints (at least 1) and those of the steps to keep; the removed ones."""
    if last < 1:
        raise ValueError(f"last = {last}: keep at least one checkpoint")
    gone = [own.path for own in all_in(folder)[last:] if own.step not in keep]
    for path in gone:
        remove(path)
    return gone


def remove_later(folder: Path, step: int) -> None:
    """Remove the checkpoints of later steps, whole or not: a run that goes on from this one writes them anew."""
    for own in all_in(folder):
        if own.step > step:
            remove(own.path)
