"""Nested plain data with tensors in it, as JSON beside named tensors, and back again: no code is stored or run."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

Tensors = dict[str, Shaped[Tensor, "..."]]
"""Tensors by the names that the JSON gives them."""


def pack(value: Any, place: str = "") -> tuple[Any, Tensors]:
    """JSON and tensors that say the same as nested dicts, lists, tuples, numbers, texts, None and tensors.

    TypeError names the place of anything else: a checkpoint holds no objects, whose code would run when it is read.

    Example:
        >>> pack({"a": (1, float("inf"))})
        ({'dict': [['a', {'tuple': [1, {'float': 'inf'}]}]]}, {})
    """
    tensors: Tensors = {}
    return _packed(value, place, tensors), tensors


def unpack(plain: Any, tensors: Mapping[str, Shaped[Tensor, "..."]]) -> Any:
    """What was packed; ValueError for JSON that `pack` does not write.

    Example:
        >>> unpack(*pack({"a": (1, float("inf"))}))
        {'a': (1, inf)}
    """
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    if isinstance(plain, list):
        return [unpack(part, tensors) for part in plain]
    match plain:
        case {"tensor": str(name)} if name in tensors:
            return tensors[name]
        case {"float": "nan" | "inf" | "-inf" as said}:
            return float(said)
        case {"tuple": list(parts)}:
            return tuple(unpack(part, tensors) for part in parts)
        case {"dict": list(pairs)} if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            return {unpack(key, tensors): unpack(part, tensors) for key, part in pairs}
        case _:
            raise ValueError(f"{str(plain)[:80]!r} is nothing that a checkpoint holds")


def _packed(value: Any, place: str, tensors: Tensors) -> Any:
    if isinstance(value, Tensor):
        name = place or "value"
        while name in tensors:  # 1 and "1" are two keys of a dict
            name += "'"
        tensors[name] = _alone(value)
        return {"tensor": name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    inner = f"{place}." if place else ""
    if type(value) in (list, tuple):
        parts = [_packed(part, f"{inner}{number}", tensors) for number, part in enumerate(value)]
        return parts if isinstance(value, list) else {"tuple": parts}
    if isinstance(value, Mapping):
        return {"dict": [[_key(key, place), _packed(part, f"{inner}{key}", tensors)] for key, part in value.items()]}
    raise TypeError(
        f"{place or 'the state'}: {type(value).__name__} cannot be in a checkpoint. Keep numbers, texts, None, "
        "tensors, and lists, tuples and dicts of them"
    )


def _key(key: Any, place: str) -> Any:
    if type(key) not in (bool, int, str):
        raise TypeError(f"{place or 'the state'}: a key of type {type(key).__name__} cannot be in a checkpoint")
    return key


def _alone(tensor: Tensor) -> Tensor:
    """A tensor on the CPU with memory of its own, as the file format wants it."""
    found = tensor.detach().to("cpu").contiguous()
    whole = found.untyped_storage().nbytes() == found.nbytes
    return found if whole else torch.clone(found)
