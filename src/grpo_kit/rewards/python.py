"""Any Python function as a reward."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from numbers import Real
from typing import Any, cast

import torch

from grpo_kit.batch import Component, Rollouts, Signals
from grpo_kit.parts import part

RewardFunction = Callable[..., Sequence[float | None]]
"""`f(completions, **columns)`: the completions as texts, every column of the data set by name; one number each."""


@part("python")
class Python:
    """Reward from `f(completions, **columns)`, a plain function of texts and the data set's columns.

    The function returns one number a completion; None (or NaN) is a missing reward with status `none`: the row is left
    out of its group's baseline. A wrong count, an infinite value or an exception stops the run naming the function. In
    a recipe the function is code to run, so the command line asks for `--allow-code`.

    Attributes:
        function: `module:function`, importable from the working folder or the environment; in Python a function.

    Example:
        >>> brevity = Python(function=lambda completions, **columns: [-len(text) for text in completions])
    """

    function: str | RewardFunction

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Call the function on the batch; see the class."""
        function = resolve(self.function) if isinstance(self.function, str) else self.function
        if "completions" in rollouts.columns:
            raise ValueError(
                f"the reward function {self.name} gets the completions by that name; rename the data's column"
            )
        try:
            given = function(list(rollouts.texts), **{name: list(v) for name, v in rollouts.columns.items()})
        except Exception as error:
            raise ValueError(f"the reward function {self.name} failed: {type(error).__name__}: {error}") from error
        if not isinstance(given, Sequence) or len(given) != len(rollouts):
            count = len(given) if isinstance(given, Sequence) else f"a {type(given).__name__}"
            raise ValueError(
                f"the reward function {self.name} returned {count} for {len(rollouts)} completions; "
                "return a list with one number (or None) each"
            )
        values = [self._number(row, value) for row, value in enumerate(given)]
        return Component(
            values=torch.tensor(values, device=rollouts.mask.device),
            statuses=tuple("none" if math.isnan(value) else "ok" for value in values),
        )

    def _number(self, row: int, value: Any) -> float:
        """One reward as a finite number, or NaN where there is none."""
        if value is None:
            return math.nan
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if not isinstance(value, Real) or math.isinf(value):
            raise ValueError(
                f"the reward function {self.name} returned {value!r} for row {row}; return a finite number or None"
            )
        return float(value)

    @property
    def name(self) -> str:
        """How error messages call the function."""
        return self.function if isinstance(self.function, str) else getattr(self.function, "__qualname__", "function")


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
    return cast(RewardFunction, function)
