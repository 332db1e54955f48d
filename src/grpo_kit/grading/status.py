"""What can come of grading a completion."""

from typing import Literal

Status = Literal["ok", "no_answer", "unparsed_gold", "timeout", "error"]
"""`ok`: the value is the verdict. `no_answer`: the completion gives none, the value is 0. The others leave the value
missing (NaN): the gold answer cannot be read, the comparison took too long or its numbers are too large to compute, or
it failed."""
