"""Regular expressions as settings of parts, checked when the recipe is read."""

import re
from typing import Annotated

from pydantic import AfterValidator


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern


def _has_one_group(pattern: str) -> str:
    if (groups := re.compile(_compiles(pattern)).groups) != 1:
        raise ValueError(f"{pattern!r} has {groups} groups; mark the part to keep by one ( )")
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]
"""A regular expression."""
OneGroup = Annotated[str, AfterValidator(_has_one_group)]
"""A regular expression whose one group is the part of the text that is wanted."""
