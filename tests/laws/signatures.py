"""Law 12: every public tensor signature is shape-typed, and a wrong shape raises."""

import inspect
from typing import get_args, get_type_hints

import pytest
import torch
from jaxtyping import TypeCheckError

from grpo_kit.logprobs import LogProbs
from grpo_kit.memory import Memory
from grpo_kit.parts import Role
from grpo_kit.policies import Policy

IMPORTED_LATER = {"Policy": Policy}
"""Names that a module gives only as text, since what they are imports the module."""


def bare_tensors(function) -> list[str]:
    """The parameters (and `return`) of a function that are tensors of an unstated shape, or not annotated at all."""
    hints = get_type_hints(function, localns=IMPORTED_LATER, include_extras=True)
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return [name for name in (*names, "return") if name not in hints or _mentions_a_bare_tensor(hints[name])]


def _mentions_a_bare_tensor(annotation) -> bool:
    if annotation is torch.Tensor:
        return True
    return any(_mentions_a_bare_tensor(piece) for piece in get_args(annotation) if not isinstance(piece, str))


def shapes_are_stated(part, draw=None):
    """Law 12: each parameter of the call and its result is annotated, each tensor with its axes."""
    call = part if inspect.isfunction(part) else type(part).__call__
    assert bare_tensors(call) == []


def a_wrong_shape_raises(role: Role, part):
    """Law 12: inputs whose axes do not fit together are refused before anything is computed."""
    row, token = torch.zeros(3), torch.zeros(3, 2)
    ids, mask = torch.zeros(2, dtype=torch.long), torch.ones(2, 2, dtype=torch.bool)
    inputs = {
        "advantages": (row, ids),
        "selections": (row, ids),
        "ratios": (token, mask),
        "corrections": (token, mask),
        "surrogates": (token, torch.zeros(3, 3)),
        "divergences": (token, torch.zeros(3, 3)),
        "weightings": (torch.ones(3, dtype=torch.bool),),
    }[role.name]
    asked = {"mask": torch.ones(3, 2, dtype=torch.bool), "token_rewards": token, "greedy_rewards": row}
    asked |= {"components": {"task": row}, "weights": {"task": 1.0}, "generator": torch.Generator()}
    asked |= {"logprobs": LogProbs(current=token, anchor=token, behavior=token)}
    with pytest.raises(TypeCheckError):
        Memory().call("", part, *inputs, **(asked if role.name in ("advantages", "selections", "surrogates") else {}))
