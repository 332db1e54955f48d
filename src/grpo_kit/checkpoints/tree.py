"""Nested plain data with tensors in it, as JSON beside named tensors, and back again: no code is stored or run."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

Tensors = dict[str, Shaped[Tensor, "..."]]
"""Tensors by the names that the JSON gives them."""
RESERVED = "__metadata__"
"""No tensor's name in the files they are written to, which know all types but these."""
UNKNOWN = (torch.complex128, torch.quint8, torch.qint8, torch.qint32)


def pack(value: Any, place: str = "") -> tuple[Any, Tensors]:
    """JSON and tensors that say the same as nested dicts, lists, tuples, numbers, texts, None and tensors.

    Numbers of numpy come back as Python's own. TypeError names the place of anything else: a checkpoint holds no
    objects, whose code would run when it is read.

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
        case {"dict": list(pairs)} if all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], bool | int | str) for pair in pairs
        ):
            return {key: unpack(part, tensors) for key, part in pairs}
        case _:
            raise ValueError(f"{str(plain)[:80]!r} is nothing that a checkpoint holds")


def _packed(value: Any, place: str, tensors: Tensors) -> Any:
    if isinstance(value, Tensor):
        name = place.encode("ascii", "backslashreplace").decode() or "value"
        while name in tensors or name == RESERVED:  # 1 and "1" are two keys of a dict
            name += "'"
        tensors[name] = _alone(value, place, tensors)
        return {"tensor": name}
    if isinstance(value, np.generic):  # what numpy's mean of numbers is
        value = value.item()
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
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


def _alone(tensor: Tensor, place: str, others: Tensors) -> Tensor:
    """A tensor on the CPU with memory of its own, as the file format wants it."""
    if tensor.layout is not torch.strided or tensor.dtype in UNKNOWN:
        kind = f"{str(tensor.layout).removeprefix('torch.')} {str(tensor.dtype).removeprefix('torch.')}"
        raise TypeError(f"{place or 'the state'}: a tensor that is {kind} cannot be in a checkpoint")
    found = tensor.detach().to("cpu").contiguous()
    whole = found.untyped_storage().nbytes() == found.nbytes
    taken = whole and any(found.data_ptr() == other.data_ptr() for other in others.values())
    return torch.clone(found) if taken or not whole else found
