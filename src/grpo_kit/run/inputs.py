"""What of a recipe can be checked without loading weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from grpo_kit.data import PromptSet


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What can be checked without loading weights: tokenizers and prompts.

    Attributes:
        tokenizers: of every policy with a model of its own.
        prompts: to train on.
        questions: to evaluate on, or None without evaluation.
    """

    tokenizers: Mapping[str, PreTrainedTokenizerBase]
    prompts: PromptSet
    questions: PromptSet | None
