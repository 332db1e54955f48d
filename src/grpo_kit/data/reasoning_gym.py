"""Tasks of reasoning-gym: endless generated puzzles, each with a verifier of its own."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from hashlib import sha256
from itertools import islice
from typing import Annotated, Any, Literal

import datasets
from pydantic import Field, field_validator, model_validator

from grpo_kit.data.wording import Template, chat_prompt, plain_prompt
from grpo_kit.parts import did_you_mean, part

SHARES = ("train", "train", "train", "train", "eval")
OURS = ("seed", "size")
"""Settings of a task that this part decides."""
BATCH = 100
"""Puzzles made at a time; some tasks prepare all of them at once."""
BARREN = 20
"""Batches without a new puzzle after which a task has no more."""


@part("reasoning_gym")
class ReasoningGymTasks:
    r"""Distinct puzzles of reasoning-gym tasks, in turn: `prompt`, `answer` and `entry`.

    `entry` is the whole entry of reasoning-gym as JSON (`question`, `answer`, `metadata` with `source_dataset`), from
    which the reward `reasoning_gym` scores; `answer` is missing where a task has no single right one. A question is in
    one split only, whatever the seeds, see `split_of`. Needs the extra: `pip install 'grpo-kit[reasoning-gym]'`.

    Attributes:
        tasks: task = its settings, for example `{ leg_counting = { max_animals = 5 }, basic_arithmetic = {} }`.
        split: `train` or `eval`: four fifths of the questions and one fifth, by a hash of their text.
        rows: number of puzzles; tasks take turns, and one that runs out of puzzles is passed over.
        seed: which puzzles, in which order.
        template: the prompt's text, with `{prompt}` where the puzzle's own text goes.
        system: a system message; needs `chat`.
        chat: give the text as a user message through the tokenizer's chat template instead of as plain text.
    """

    tasks: Annotated[Mapping[str, Mapping[str, Any]], Field(min_length=1)]
    split: Literal["train", "eval"] = "train"
    rows: Annotated[int, Field(ge=1, le=1_000_000)] = 2048
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    template: Template = "{prompt}"
    system: str | None = None
    chat: bool = False

    @model_validator(mode="after")
    def _system_needs_chat(self) -> "ReasoningGymTasks":
        if self.system is not None and not self.chat:
            raise ValueError("system is a chat message: set chat = true, or put its text into template")
        return self

    @field_validator("tasks")
    @classmethod
    def _tasks_exist(cls, tasks: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        known = _known()
        for task, settings in tasks.items():
            if task not in known:
                raise ValueError(f"there is no task '{task}'.{did_you_mean(task, known)} Known: {', '.join(known)}")
            allowed = [field.name for field in fields(known[task]) if field.name not in OURS]
            for key in settings:
                if key not in allowed:
                    raise ValueError(
                        f"task '{task}' has no setting '{key}'.{did_you_mean(key, allowed)} Known: {', '.join(allowed)}"
                    )
            _make(task, settings, 0)
        return tasks

    def __hash__(self) -> int:
        """Hash of the settings; mappings have none of their own."""
        return hash(repr(self))

    def __call__(self) -> datasets.Dataset:
        """Make the puzzles; ValueError where the tasks have fewer than `rows` in this split."""
        entries = list(islice(self._entries(), self.rows))
        if len(entries) < self.rows:
            raise ValueError(
                f"rows = {self.rows}, but {', '.join(self.tasks)} has only {len(entries)} different questions in the "
                f"split '{self.split}' with these settings"
            )
        return datasets.Dataset.from_dict(
            {
                "prompt": [self._prompt(entry["question"]) for entry in entries],
                "answer": [None if entry["answer"] is None else str(entry["answer"]) for entry in entries],
                "entry": [json.dumps(entry, default=str) for entry in entries],
            }
        )

    def _prompt(self, text: str) -> Any:
        if self.chat:
            return chat_prompt(text, template=self.template, examples=(), system=self.system)
        return plain_prompt(text, template=self.template, examples=(), shot_template="")

    def _entries(self) -> Iterator[dict[str, Any]]:
        """The tasks' entries in turn, each question once."""
        seen: set[str] = set()
        sources = [self._of_task(task, settings, seen) for task, settings in self.tasks.items()]
        while sources:
            for source in list(sources):
                entry = next(source, None)
                if entry is None:
                    sources.remove(source)
                else:
                    yield entry

    def _of_task(self, task: str, settings: Mapping[str, Any], seen: set[str]) -> Iterator[dict[str, Any]]:
        """The entries of one task in this split with questions not seen, until nothing new comes."""
        barren = number = 0
        while barren < BARREN:
            barren += 1
            made = _make(task, settings, self.seed + number * BATCH)  # a puzzle is made from the seed plus its number
            number += 1
            for entry in islice(made, BATCH):
                question = entry["question"]
                if question not in seen and split_of(question) == self.split:
                    seen.add(question)
                    barren = 0
                    yield entry


def split_of(question: str) -> str:
    """The one split that a question belongs to, by its hash: four fifths train, one fifth evaluation.

    Example:
        >>> split_of("Calculate 5 - 3 - 6.")
        'train'
    """
    return SHARES[int.from_bytes(sha256(question.encode()).digest()[:8], "big") % len(SHARES)]


def _known() -> dict[str, type]:
    """The tasks and their classes of settings; ValueError when reasoning-gym is not installed."""
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ValueError("needs reasoning-gym: pip install 'grpo-kit[reasoning-gym]'") from error
    return {name: settings for name, (_, settings) in sorted(DATASETS.items()) if name != "composite"}


def _make(task: str, settings: Mapping[str, Any], seed: int) -> Any:
    """A batch of puzzles; ValueError says what the task does not like about its settings."""
    from reasoning_gym.factory import create_dataset

    try:
        return create_dataset(task, seed=seed, size=BATCH, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"task '{task}' refuses its settings: {error or 'no reason given'}") from error
