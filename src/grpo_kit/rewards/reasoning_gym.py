"""The verdict of a reasoning-gym task's own verifier."""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator

from grpo_kit.batch import Component, Rollouts
from grpo_kit.grading.overdue import is_overdue, note_overdue
from grpo_kit.parts import part
from grpo_kit.patterns import OneGroup
from grpo_kit.rewards.answers import find_answer, idle_strict
from grpo_kit.rewards.deadline import OverdueError, within
from grpo_kit.rewards.runnable import is_runnable
from grpo_kit.signals import Signals

TAG = "<answer>(.*?)</answer>"
"""Where reasoning-gym's own system prompts ask for the answer."""
READERS = frozenset({"codeio", "propositional_logic"})
"""Tasks whose modules have a function of such a name, but evaluate no answer: code for new puzzles, a parser."""


@part("reasoning_gym")
class ReasoningGymScore:
    r"""What the task's own verifier in the library reasoning-gym (arXiv:2505.24760) gives, in [0, 1].

    1 is a right answer; many verifiers give a little (0.01, 0.05) or a share to wrong ones. The data part
    `reasoning_gym` has the column `entry` that this reads. The answer is what stands in the last
    `<answer>...</answer>`, which the library's system prompts ask for, else the final answer by the kit's rule.

    Statuses: `ok`; `no_answer` (0: the completion gives none); `refused` (0: see below); `unparsed_gold` (missing,
    NaN: the column holds no entry of a task; such rows are reported before the run), `timeout` and `error` (missing:
    the verifier did not end, or failed).

    Some verifiers *evaluate* the answer, or texts of the entry, as Python or sympy code. For those an answer that calls
    anything but a function of numbers, or names an attribute, is refused, as no right answer does; an entry that does
    is no entry. That is a fence, not a sandbox. Needs the extra `reasoning-gym`.

    Attributes:
        column: the data set's column with the task's entry as JSON: `question`, `answer`, and `metadata` with
            `source_dataset`.
        strict: without the tags only a `\boxed{...}` is an answer.
        pattern: instead: a regular expression whose one group is the answer; the last match counts.
        timeout: seconds that one verdict may take.

    Example:
        >>> entry = {"question": "2 + 3 =", "answer": "5", "metadata": {"source_dataset": "chain_sum"}}
        >>> ReasoningGymScore().grade(json.dumps(entry), "<answer>5</answer>")
        (1.0, 'ok')
    """

    column: str = "entry"
    strict: bool = False
    pattern: OneGroup | None = None
    timeout: Annotated[float, Field(gt=0)] = 5.0

    @model_validator(mode="after")
    def _can_be_used(self) -> "ReasoningGymScore":
        idle_strict(self.strict, self.pattern)
        if find_spec("reasoning_gym") is None:
            raise ValueError("it needs the extra reasoning-gym; install it by: pip install 'grpo-kit[reasoning-gym]'")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The data set's columns it reads."""
        return (self.column,)

    def row_faults(self, columns: Mapping[str, Sequence[Any]]) -> dict[int, str]:
        """The rows whose column holds no entry of a task that reasoning-gym knows, with the reason."""
        faults = {}
        for row, text in enumerate(columns[self.column]):
            try:
                _read(text)
            except ValueError as error:
                faults[row] = f"column '{self.column}': {error}"
        return faults

    def __call__(self, rollouts: Rollouts, signals: Signals) -> Component:
        """Ask the verifier of every row; see the class."""
        grades = [
            self.grade(entry, text) for entry, text in zip(rollouts.columns[self.column], rollouts.texts, strict=True)
        ]
        values = torch.tensor([value for value, _ in grades], device=rollouts.mask.device)
        return Component(values=values, statuses=tuple(status for _, status in grades))

    def grade(self, entry: object, text: str) -> tuple[float, str]:
        """The value and status of one completion."""
        missing = float("nan")
        try:
            task = _task(entry)
        except ValueError:
            return missing, "unparsed_gold"
        answer = self._answer(text)
        if answer is None:
            return 0.0, "no_answer"
        if task.evaluates and is_runnable(answer):
            return 0.0, "refused"
        judgement = ("reasoning_gym", self.timeout, str(entry), answer)
        if is_overdue(*judgement):
            return missing, "timeout"
        try:
            return float(within(self.timeout, lambda: task.score(answer))), "ok"
        except OverdueError:
            note_overdue(*judgement)
            return missing, "timeout"
        except (Exception, SystemExit):  # whatever a verifier does with a free text: no verdict, counted as such
            return missing, "error"

    def _answer(self, text: str) -> str | None:
        if self.pattern is not None:
            return find_answer(text, strict=False, pattern=self.pattern)
        return find_answer(text, strict=False, pattern=TAG) or find_answer(text, strict=self.strict, pattern=None)


class _Task:
    """One entry with its verifier."""

    def __init__(self, entry: dict[str, Any]) -> None:
        name = entry["metadata"]["source_dataset"]
        self.verify, self.evaluates = _verifier(name)
        self.entry = entry
        # JSON has no tuples, and the verifiers of grids compare with one: take the form in which the entry's own
        # answer is right.
        gold = entry.get("answer")
        if isinstance(gold, str) and not self.evaluates and self.score(gold) < 1:
            self.entry = _with_tuples(entry)
            if self.score(gold) < 1:
                self.entry = entry

    def score(self, answer: str) -> float:
        return self.verify(answer=answer, entry=self.entry)


def _read(text: object) -> dict[str, Any]:
    """The entry that a column's JSON text holds; ValueError says what it is not."""
    try:
        entry = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        entry = None
    if not isinstance(entry, dict) or not isinstance(entry.get("metadata"), dict):
        raise ValueError("no entry of a reasoning-gym task (JSON with question, answer and metadata)")
    name = entry["metadata"].get("source_dataset")
    if not isinstance(name, str):
        raise ValueError("the entry's metadata names no source_dataset")
    if _verifier(name)[1] and any(map(is_runnable, _texts([entry.get("answer"), entry["metadata"]]))):
        raise ValueError(f"the entry of {name} holds code, which its verifier would run")
    return entry


@lru_cache(maxsize=4096)
def _task(text: object) -> _Task:
    return _Task(_read(text))


@lru_cache
def _verifier(name: str) -> tuple[Callable[..., float], bool]:
    """The verifier of a task, and whether it evaluates answers as code; ValueError where there is no such task."""
    import reasoning_gym

    try:
        verify = reasoning_gym.get_score_answer_fn(name)
    except (ValueError, AssertionError):  # the second for what is only made of other tasks
        raise ValueError(f"reasoning-gym has no task {name!r}") from None
    source = inspect.getsource(sys.modules[verify.__module__])
    evaluates = re.search(r"\b(?:eval|exec|parse_expr|sympify)\(", source) is not None
    return verify, evaluates and name not in READERS


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value of JSON but the names of its members."""
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(item)


def _with_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_with_tuples, value))
    return {key: _with_tuples(item) for key, item in value.items()} if isinstance(value, dict) else value
