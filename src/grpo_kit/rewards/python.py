"""Any Python function as a reward."""

import asyncio
import inspect
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from numbers import Real
from typing import Annotated, Any

import torch
from pydantic import Field, field_validator

from grpo_kit.batch import ABSTAINED, Component, Rollouts
from grpo_kit.parts import part
from grpo_kit.rewards.deadline import OverdueError, within
from grpo_kit.rewards.functions import (
    GIVEN,
    RewardFunction,
    accepted,
    imported,
    required_columns,
    resolve,
    signature_fault,
)
from grpo_kit.signals import Signals

__all__ = ["Python", "resolve"]


@part("python")
class Python:
    """Reward from `f(completions, **columns)`, a plain function; those written for TRL work unchanged.

    It is called by name with what its signature takes of `completions`, `prompts`, `completion_ids` (the completions'
    token ids) and every column of the data set, each a list with one entry a completion; with `**columns` it gets all.
    It may be `async`. TRL's `trainer_state`, `log_extra` and `log_metric` are not given: a function that insists on one
    of them, or on a column that the data has not, is reported before the run starts.

    It returns one number a completion, as a list, tuple, tensor or array. None abstains, with status `none`: the
    learner's other rewards decide alone, and where all abstain the row is left out of its group's baseline. NaN is a
    reward that is missing, with status `missing`: the row is left out whatever the others say. Else the status is `ok`.

    A wrong count, an infinite value or one that is no number, an exception, or a call that does not end within
    `timeout` stops the run, naming the function and the row: where the call itself does not tell, the rows are tried
    one by one, for no longer than `timeout` again. What nothing inside Python can stop, one endless call of C code
    (regular expressions and powers are not of that kind), ends the program with a traceback after ten times the
    `timeout` and at least a minute.

    In a recipe the function is code to run, so the command line asks for `--allow-code`.

    Attributes:
        function: `module:function`, importable from the working folder or the environment; in Python a function.
        chat: give completions and prompts as chat messages, as TRL does for conversational data:
            `[{"role": "assistant", "content": text}]` a completion. Without it both are texts; of a prompt of several
            messages the contents, joined by empty lines.
        timeout: seconds that a call for the whole batch may take.

    Example:
        >>> brevity = Python(function=lambda completions, **columns: [-len(text) for text in completions])
    """

    function: str | RewardFunction
    chat: bool = False
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 60.0

    @field_validator("function")
    @classmethod
    def _can_be_called(cls, function: str | RewardFunction) -> str | RewardFunction:
        fault = None if isinstance(function, str) else signature_fault(function)
        if fault:
            raise ValueError(fault)
        return function

    @property
    def columns(self) -> tuple[str, ...]:
        """The data set's columns that the function insists on; none as long as its name was not imported."""
        function = imported(self.function)
        return required_columns(function) if function else ()

    @property
    def name(self) -> str:
        """How error messages call the function."""
        return self.function if isinstance(self.function, str) else getattr(self.function, "__qualname__", "function")

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Call the function on the batch; see the class."""
        function = resolve(self.function) if isinstance(self.function, str) else self.function
        arguments = accepted(function, self._offered(rollouts))
        given = self._call(function, arguments, rollouts)
        if not isinstance(given, list) or len(given) != len(rollouts):
            count = len(given) if isinstance(given, list) else f"a {type(given).__name__}"
            raise ValueError(
                f"the reward function {self.name} returned {count} for {len(rollouts)} completions; "
                "return a list with one number (or None) each"
            )
        values = [self._number(row, value, rollouts) for row, value in enumerate(given)]
        return Component(
            values=torch.tensor(values, device=rollouts.mask.device),
            statuses=tuple(self._status(value, number) for value, number in zip(given, values, strict=True)),
        )

    def _offered(self, rollouts: Rollouts) -> dict[str, list[Any]]:
        """All that a function may ask for, one entry a row."""
        for name in GIVEN:
            if name in rollouts.columns:
                raise ValueError(f"the reward function {self.name} gets {name} by that name; rename the data's column")
        offered = {name: list(values) for name, values in rollouts.columns.items()}
        if "prompt" in offered:
            offered["prompts"] = [_messages(p, "user") if self.chat else _plain(p) for p in offered["prompt"]]
        offered["completions"] = [_messages(text, "assistant") if self.chat else text for text in rollouts.texts]
        rows = zip(rollouts.tokens, rollouts.mask, strict=True)
        offered["completion_ids"] = [tokens[mask].tolist() for tokens, mask in rows]
        return offered

    def _call(self, function: RewardFunction, arguments: Mapping[str, list[Any]], rollouts: Rollouts) -> Any:
        """What the function returns for the batch; ValueError names function and row when it fails or hangs."""
        count = len(rollouts)
        try:
            return within(self.timeout, lambda: _returned(function, arguments, count))
        except OverdueError as error:
            row = self._first_row(function, arguments, count, OverdueError)
            message = f"the reward function {self.name} did not end within timeout = {self.timeout:g} s"
            if row is None:
                message += f"; no row alone takes that long, so give {count} completions a longer timeout"
            else:
                message += f"\n  row {row} alone is enough for that (completion {_excerpt(row, rollouts)})"
            raise ValueError(message) from error
        except (Exception, SystemExit) as error:
            row = self._first_row(function, arguments, count, type(error))
            message = f"the reward function {self.name} failed: {type(error).__name__}: {error}"
            if row is not None:
                message += f"\n  row {row} alone is enough for that (completion {_excerpt(row, rollouts)})"
            if isinstance(error, TypeError | AttributeError):
                form, other = ("chat messages", "texts") if self.chat else ("texts", "chat messages")
                message += (
                    f"\n  (completions and prompts were {form}; chat = {str(not self.chat).lower()} gives {other})"
                )
            raise ValueError(message) from error

    def _first_row(
        self, function: RewardFunction, arguments: Mapping[str, list[Any]], count: int, kind: type[BaseException]
    ) -> int | None:
        """The first row that alone makes the function raise that (or overrun); None where none does in the time."""
        end = time.monotonic() + self.timeout
        for row in range(count):
            alone = {name: values[row : row + 1] for name, values in arguments.items()}
            started = time.monotonic()
            try:
                within(max(end - started, 0.05), lambda alone=alone: _returned(function, alone, 1))
            except OverdueError:
                hangs = time.monotonic() - started > self.timeout / 2
                return row if kind is OverdueError and hangs else None
            except (Exception, SystemExit) as error:
                if type(error) is kind:
                    return row
        return None

    @staticmethod
    def _status(value: object, number: float) -> str:
        if value is None:
            return ABSTAINED
        return "missing" if math.isnan(number) else "ok"

    def _number(self, row: int, value: Any, rollouts: Rollouts) -> float:
        """One reward as a finite number, or NaN where there is none."""
        if value is None:
            return math.nan
        if (hasattr(value, "item") and getattr(value, "size", 1) == 1) or isinstance(value, torch.Tensor):
            value = value.item() if not isinstance(value, torch.Tensor) or value.numel() == 1 else value
        if not isinstance(value, Real) or math.isinf(_as_float32(value)):
            raise ValueError(
                f"the reward function {self.name} returned {value!r} for row {row}; return a finite number or None "
                f"(completion {_excerpt(row, rollouts)})"
            )
        return float(value)


def _as_float32(value: Any) -> float:
    """A number as the rewards' tensor holds it; infinite where that cannot."""
    try:
        return torch.tensor(float(value), dtype=torch.float32).item()
    except OverflowError:
        return math.inf


def _returned(function: RewardFunction, arguments: Mapping[str, list[Any]], count: int) -> Any:
    """Call, wait for an `async` one, and make a list of what can be one."""
    given = function(**arguments)
    if inspect.isawaitable(given):
        given = asyncio.run(_awaited(given))
    if hasattr(given, "tolist"):
        given = given.tolist()  # a tensor or an array
    if isinstance(given, Iterator):
        return list(islice(given, count + 1))
    is_row = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | set | frozenset)
    return list(given) if is_row else given


async def _awaited(given: Any) -> Any:
    return await given


def _messages(given: Any, role: str) -> Any:
    """A text as the one message of a chat; messages as they are."""
    return [{"role": role, "content": given}] if isinstance(given, str) else given


def _plain(prompt: Any) -> Any:
    """Chat messages as a text, a text as it is."""
    if not isinstance(prompt, list):
        return prompt
    return "\n\n".join(str(message.get("content", "")) if isinstance(message, Mapping) else "" for message in prompt)


def _excerpt(row: int, rollouts: Rollouts) -> str:
    text = rollouts.texts[row]
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
