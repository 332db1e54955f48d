"""Data: where prompts and gold answers come from."""

from typing import Protocol, runtime_checkable

import datasets

from grpo_kit.data.arithmetic import Arithmetic
from grpo_kit.data.dataset import DatasetRows
from grpo_kit.data.prompts import PromptSet, PromptStream, encode_prompts
from grpo_kit.parts import Role


@runtime_checkable
class Data(Protocol):
    """Nothing in, a data set out: the column `prompt` (a text or a list of chat messages) and whatever rewards read."""

    def __call__(self) -> datasets.Dataset:
        """Load or make the rows."""
        ...


DATA = Role("data", Data, {"arithmetic": Arithmetic, "dataset": DatasetRows})

__all__ = ["DATA", "Arithmetic", "Data", "DatasetRows", "PromptSet", "PromptStream", "encode_prompts"]
