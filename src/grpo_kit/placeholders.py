"""A table with a faulty key taken out, so that the rest of a recipe can still be read and its other mistakes found."""

from copy import deepcopy
from typing import Any

Loc = tuple[int | str, ...]
"""The place of a value: the keys that lead to it."""
PLACEHOLDERS: dict[str, Any] = {
    "name": "recipe",
    "steps": 1,
    "prompts_per_step": 1,
    "policies": {"policy": {"model": "tiny:small"}},
    "data": {"kind": "arithmetic"},
    "sampler": {"kind": "transformers", "policy": "policy", "samples": 2, "max_new_tokens": 1},
    "learners.*.weighting": {"kind": "equal_tokens"},
    "learners.*.optimizer": {"lr": 1.0},
    "learners.*.terms.*.advantage": {"kind": "group_mean"},
    "learners.*.terms.*.surrogate": {"kind": "clip"},
    "learners.*.terms.*.divergence": {"kind": "sampled_kl"},
    "evaluation.data": {"kind": "arithmetic", "split": "eval"},
}
"""What stands in for a required key with a mistake, so that the rest of the recipe can still be checked."""


def dotted(loc: Loc) -> str:
    """A place as messages write it.

    Example:
        >>> dotted(("learners", "small", "epochs"))
        'learners.small.epochs'
    """
    return ".".join(str(key) for key in loc) or "recipe"


def _placeholder(loc: Loc) -> Any:
    for pattern, value in PLACEHOLDERS.items():
        keys = pattern.split(".")
        if len(keys) == len(loc) and all(key in ("*", given) for key, given in zip(keys, loc, strict=True)):
            return deepcopy(value)
    return None


def take_out(table: Any, loc: Loc) -> tuple[str, Any] | None:
    """Take the innermost key that is there out of the table, or put its placeholder there; its place and value.

    None when there is nothing to take out.
    """
    for end in range(len(loc), 0, -1):
        here = table
        for key in loc[: end - 1]:
            here = here.get(key) if isinstance(here, dict) else None
        if not isinstance(here, dict):
            continue
        key, placeholder = loc[end - 1], _placeholder(loc[:end])
        if placeholder is not None and here.get(key) != placeholder:
            value, here[key] = here.get(key), placeholder
            return dotted(loc[:end]), value
        if key in here:
            return dotted(loc[:end]), here.pop(key)
    return None
