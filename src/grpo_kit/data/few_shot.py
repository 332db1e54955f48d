"""Few-shot examples: worked questions put in front of every prompt."""

from typing import Annotated

from pydantic import Field

from grpo_kit.data.tables import read_table
from grpo_kit.parts import table


@table
class Example:
    """One few-shot example.

    Attributes:
        prompt: a question, as a row's own text would be.
        answer: the answer to imitate, with its steps.
    """

    prompt: Annotated[str, Field(min_length=1)]
    answer: Annotated[str, Field(min_length=1)]


def read_examples(path: str, count: int | None) -> list[Example]:
    """The first examples of a local file with the columns `prompt` and `answer`; ValueError on its first fault."""
    try:
        rows = read_table(path, rows=count)
    except ValueError as error:
        raise ValueError(f"few_shot_path: {error}") from error
    if rows.faults:
        raise ValueError(f"few_shot_path: {rows.source}, {rows.faults[0]}")
    for name in ("prompt", "answer"):
        if name not in rows.columns:
            raise ValueError(f"few_shot_path: {rows.source} has no column '{name}'. It has: {', '.join(rows.columns)}")
        for place, value in zip(rows.places, rows[name], strict=True):
            if not isinstance(value, str | int | float) or isinstance(value, bool) or not str(value).strip():
                raise ValueError(f"few_shot_path: {rows.source}, {place}: column '{name}' has no text")
    if count is not None and len(rows) < count:
        raise ValueError(f"few_shot_count = {count}, but {rows.source} has {len(rows)} rows")
    return [
        Example(prompt=str(prompt), answer=str(answer))
        for prompt, answer in zip(rows["prompt"], rows["answer"], strict=True)
    ]
