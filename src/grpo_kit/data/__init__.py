"""Data: where prompts and gold answers come from."""

from typing import Protocol, runtime_checkable

import datasets

from grpo_kit.data.arithmetic import Arithmetic
from grpo_kit.data.curriculum import Curriculum, PassRates
from grpo_kit.data.dataset import DatasetRows
from grpo_kit.data.encode import encode_prompts
from grpo_kit.data.few_shot import Example
from grpo_kit.data.prompts import PromptSet, PromptStream
from grpo_kit.data.reasoning_gym import ReasoningGymTasks
from grpo_kit.data.rows import Fault, Rows, as_rows
from grpo_kit.parts import Role


@runtime_checkable
class Data(Protocol):
    """Nothing in, a table out: the column `prompt` (a text or a list of chat messages) and whatever rewards read.

    A `datasets.Dataset` is enough; `Rows` can also hold values of several types in a column, say where each row stands
    in its source, and name the rows that could not be read.
    """

    def __call__(self) -> datasets.Dataset | Rows:
        """Load or make the rows."""
        ...


DATA = Role("data", Data, {"arithmetic": Arithmetic, "dataset": DatasetRows, "reasoning_gym": ReasoningGymTasks})

__all__ = [
    "DATA",
    "Arithmetic",
    "Curriculum",
    "Data",
    "DatasetRows",
    "Example",
    "Fault",
    "PassRates",
    "PromptSet",
    "PromptStream",
    "ReasoningGymTasks",
    "Rows",
    "as_rows",
    "encode_prompts",
]
