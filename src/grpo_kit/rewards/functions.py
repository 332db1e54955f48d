"""Reward functions by name and by signature: importing one, and what it asks for."""

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, cast

RewardFunction = Callable[..., Any]
"""`f(completions, **columns)`: one number (or None) a completion; may be `async`."""

GIVEN = ("prompts", "completions", "completion_ids")
"""What every reward function is offered beside the data set's columns."""
NOT_GIVEN = ("trainer_state", "log_extra", "log_metric", "environments")
"""What TRL offers beyond that; a function that cannot do without is refused."""
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_imported: dict[str, RewardFunction] = {}


@cache
def resolve(name: str) -> RewardFunction:
    """Import the function named `module:function`; ValueError says what is wrong with the name."""
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise ValueError(f"{name!r} names no function; write 'module:function'")
    try:
        function: Any = getattr(import_module(module_name), function_name, None)
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"{name!r}: module '{module_name}' cannot be imported ({problem})") from error
    if not callable(function):
        raise ValueError(f"{name!r}: module '{module_name}' has no function '{function_name}'")
    _imported[name] = cast(RewardFunction, function)
    return _imported[name]


def imported(function: str | RewardFunction) -> RewardFunction | None:
    """The function itself; of a name only what `resolve` has imported, so that asking never runs code."""
    return _imported.get(function) if isinstance(function, str) else function


def signature_fault(function: RewardFunction) -> str | None:
    """Why a function cannot be a reward: it insists on an argument that nobody gives; None where it can be."""
    for parameter in _parameters(function):
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            return f"its parameter '{parameter.name}' cannot be given by name; remove the / behind it"
        if parameter.name in NOT_GIVEN and _is_required(parameter):
            return (
                f"its parameter '{parameter.name}' is TRL's own and is not given here; "
                f"write {parameter.name}=None if the function can do without"
            )
    return None


def required_columns(function: RewardFunction) -> tuple[str, ...]:
    """The columns of the data set that a function insists on: its parameters without a default that are not `GIVEN`.

    Example:
        >>> required_columns(lambda completions, ground_truth, level=1, **columns: [])
        ('ground_truth',)
    """
    return tuple(each.name for each in _parameters(function) if _is_required(each) and each.name not in GIVEN)


def accepted(function: RewardFunction, offered: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Of all arguments those that a function takes: all with `**columns` (or without a signature), else by name."""
    parameters = _parameters(function)
    if not parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return offered
    names = {parameter.name for parameter in parameters if parameter.kind in BY_NAME}
    return {name: values for name, values in offered.items() if name in names}


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.kind in BY_NAME and parameter.default is parameter.empty


def _parameters(function: RewardFunction) -> list[inspect.Parameter]:
    """The parameters; none for a built-in function that does not tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
