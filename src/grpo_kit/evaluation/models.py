"""What `grpo-kit eval` is pointed at: a model, or the policies that a run trained."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from grpo_kit.parts import did_you_mean
from grpo_kit.policies import PolicySpec
from grpo_kit.policies.load import DTYPES


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The models to measure.

    Attributes:
        specs: where each one's weights are, by name.
        recipe: the table of the run's recipe; None where it is no run folder.
    """

    specs: Mapping[str, PolicySpec]
    recipe: Mapping[str, Any] | None = None


def find_models(given: str, *, policy: str | None = None, device: str = "auto", dtype: str | None = None) -> Found:
    """The models at a run folder, a model folder, a GGUF file, or under a name; ValueError when there is none.

    Args:
        given: a run folder, a model's folder, a `.gguf` file or a folder with one, `tiny:small`, or a hub name.
        policy: the one policy of a run folder to take; all of them without it.
        device: where they compute, as in a recipe.
        dtype: precision; None for the run's own, else float32.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"--dtype '{dtype}' is unknown.{did_you_mean(dtype, DTYPES)} Known: {', '.join(DTYPES)}.")
    folder = Path(given)
    resolved = folder / "recipe.resolved.toml"
    if resolved.is_file():
        try:
            recipe = tomllib.loads(resolved.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{resolved} cannot be read: {error}") from None
        return Found(specs=_trained(folder, recipe, policy, device, dtype), recipe=recipe)
    if policy is not None:
        raise ValueError(f"--policy picks one of a run folder's policies, and '{given}' is no run folder")
    spec = PolicySpec(model=given, device=device, dtype=dtype or "float32")  # pyright: ignore[reportArgumentType]
    return Found(specs={given.rstrip("/").rsplit("/", 1)[-1]: _with_gguf(spec, folder)})


def _trained(
    folder: Path, recipe: Mapping[str, Any], policy: str | None, device: str, dtype: str | None
) -> dict[str, PolicySpec]:
    """The policies that a run has written, in the order of its recipe."""
    settings = recipe.get("policies", {})
    there = [name for name in settings if (folder / "policies" / name / "config.json").is_file()]
    if not there:
        raise ValueError(f"'{folder}' is a run folder without trained policies (none in {folder / 'policies'})")
    if policy is not None and policy not in there:
        raise ValueError(
            f"'{folder}' has no policy '{policy}'.{did_you_mean(policy, there)} It has: {', '.join(there)}."
        )
    found: dict[str, PolicySpec] = {}
    for name in there if policy is None else [policy]:
        try:
            spec = TypeAdapter(PolicySpec).validate_json(json.dumps(settings[name]))
        except ValidationError:
            raise ValueError(f"policies.{name} of {folder / 'recipe.resolved.toml'} cannot be read") from None
        found[name] = replace(
            spec,
            model=str(folder / "policies" / name),
            gguf_file=None,
            trust_remote_code=False,  # a run folder is no permission to run code
            device=device,
            dtype=dtype or spec.dtype,  # pyright: ignore[reportArgumentType]
        )
    return found


def _with_gguf(spec: PolicySpec, place: Path) -> PolicySpec:
    """The spec with its GGUF file, where the place is one or a folder that holds nothing else to load."""
    if place.suffix == ".gguf" and place.is_file():
        return replace(spec, model=str(place.parent), gguf_file=place.name)
    files = sorted(place.glob("*.gguf")) if place.is_dir() and not (place / "config.json").exists() else []
    if len(files) > 1:
        raise ValueError(f"'{place}' has {len(files)} GGUF files; give one of them: {', '.join(map(str, files))}")
    return replace(spec, gguf_file=files[0].name) if files else spec
