"""What a user is told of a data set: how many rows cannot be used, by kind, the first of them, and what repeats."""

from collections.abc import Iterator, Sequence

from grpo_kit.data.prompts import PromptSet
from grpo_kit.data.rows import Fault, in_words, tally

SHOWN = 5
"""Faults that are named; the others are counted."""
LONGEST = 200
"""Characters of one fault that are shown."""


def bad_rows(prompts: PromptSet) -> str:
    """How many rows cannot be used, in all and by kind.

    Example:
        >>> faults = (Fault(place="line 2", kind="malformed", reason="not JSON"),)
        >>> bad_rows(PromptSet(ids=((1, 2),), columns={}, skipped=faults))
        '1 of 2 rows cannot be used (1 malformed)'
    """
    total = len(prompts) + len(prompts.skipped)
    return f"{len(prompts.skipped)} of {total} rows cannot be used ({in_words(tally(prompts.skipped))})"


def first_faults(faults: Sequence[Fault]) -> Iterator[str]:
    """The first faults, each cut to a length, and how many more there are."""
    for fault in faults[:SHOWN]:
        text = str(fault)
        yield text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    if len(faults) > SHOWN:
        yield f"... and {len(faults) - SHOWN} more"


def describe_set(name: str, prompts: PromptSet, training: PromptSet | None = None) -> Iterator[str]:
    """Lines on what is unusual about a set: rows left out, prompts that come twice or are those trained on."""
    if prompts.skipped:
        yield f"{name}: {bad_rows(prompts)} and are skipped:"
        yield from (f"  {line}" for line in first_faults(prompts.skipped))
    if prompts.repeats:
        yield f"{name}: {prompts.repeats} of {len(prompts)} prompts are the same as an earlier one"
    if training is not None and (shared := prompts.shared_with(training)):
        yield f"{name}: {shared} of {len(prompts)} prompts are among those trained on"
