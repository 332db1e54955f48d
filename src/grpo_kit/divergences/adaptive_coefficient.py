"""The coefficient of a KL penalty, moved from batch to batch so that the KL comes near a target."""

import math
from typing import Annotated

from pydantic import Field

from grpo_kit.parts import table


@table
class AdaptiveCoefficient:
    r"""Multiply the coefficient by $1 + e / h$ after each batch, $e = \mathrm{KL} / \mathrm{target} - 1$ clipped.

    The controller of Ziegler et al. (arXiv:1909.08593), whose gain of 0.1 is a `horizon` of 10. As there, a batch has
    the coefficient that the batches before it have led to, so that no row is weighed by its own KL. A KL of NaN (no
    token was there to measure it) leaves the coefficient as it is.

    Attributes:
        start: the first coefficient, in reward per nat; above 0.
        target: the KL wanted, in nats a token; above 0.
        horizon: $h$, batches over which an error of 1 would change the coefficient by its own size; at least 1.
        clip: largest size of $e$, in (0, 1).

    Example:
        >>> AdaptiveCoefficient(start=0.5, target=0.02)(0.03, 0.5)
        (0.5, 0.51)
    """

    start: Annotated[float, Field(gt=0)]
    target: Annotated[float, Field(gt=0)]
    horizon: Annotated[float, Field(ge=1)] = 10.0
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2

    def init(self) -> float:
        """The state before the first batch: its coefficient."""
        return self.start

    def __call__(self, kl: float, state: float) -> tuple[float, float]:
        """The coefficient of a batch whose KL is `kl`, and that of the next batch."""
        if math.isnan(kl):
            return state, state
        error = min(max(kl / self.target - 1, -self.clip), self.clip)
        return state, state * (1 + error / self.horizon)
