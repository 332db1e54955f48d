"""The axis names of every public tensor, in one place, so that a signature reads as words.

`row` is one completion, `token` one position of the longest completion in the batch. The aliases are checked in the
test run by the jaxtyping + beartype import hook; in production they cost nothing.
"""

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

PerRow = Float[Tensor, " row"]
"""One number a completion: a reward, an advantage."""

PerToken = Float[Tensor, "row token"]
"""One number a completion token: a log-probability, a loss, a weight."""

TokenMask = Bool[Tensor, "row token"]
"""True where a token counts."""

RowMask = Bool[Tensor, " row"]
"""True where a row counts."""

GroupId = Int[Tensor, " row"]
"""Which group (prompt) a row belongs to; equal ids are one group, in any order."""

TokenIds = Int[Tensor, "row token"]
"""Vocabulary ids of completion tokens."""

Logits = Float[Tensor, "row token vocabulary"]
"""Unnormalized log-probabilities over the vocabulary."""

AnyShape = Shaped[Tensor, "..."]
"""Numbers along any axes: what a change of rows or columns is applied to."""

Scalar = Float[Tensor, ""]
"""One number."""
