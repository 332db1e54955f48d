"""A running mean of earlier batches as the baseline: REINFORCE with a moving average."""

from typing import Annotated

import torch
from pydantic import Field

from grpo_kit.formula import number
from grpo_kit.masked import wide
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow


@part("ema_baseline")
class EMABaseline:
    r"""Compare each reward with a running mean of earlier batches: $A_i = r_i - b$.

    The baseline $b$ is that from before the batch, which then moves it: $b \leftarrow \text{decay} \cdot b +
    (1 - \text{decay}) \cdot \bar r$, with $\bar r$ the mean of the batch's rewards. The first batch has no earlier one
    and is compared with its own mean. One row a prompt is enough; easy and hard questions share one baseline. A missing
    reward (NaN) gets 0 and is left out of the mean; a batch without any reward leaves $b$ as it was.

    Attributes:
        decay: share of the old baseline that is kept, a batch; in [0, 1). With 0 it is the mean of the last batch.

    Example:
        >>> baseline, groups = EMABaseline(decay=0.5), torch.tensor([0, 1])
        >>> first, state = baseline(torch.tensor([1.0, 0.0]), groups, state=baseline.init())
        >>> second, state = baseline(torch.tensor([1.0, 1.0]), groups, state=state)
        >>> first, second, state
        (tensor([ 0.5000, -0.5000]), tensor([0.5000, 0.5000]), 0.75)
    """

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.9

    @property
    def formula(self) -> str:
        """The advantage of a row, then how the baseline moves."""
        moved = rf"b + {number(1 - self.decay)} \cdot (\operatorname{{mean}}(r_{{\text{{batch}}}}) - b)"
        return rf"r_i - b, \quad b \leftarrow {moved}"

    def init(self) -> float | None:
        """No baseline yet."""
        return None

    def __call__(self, rewards: PerRow, groups: GroupId, state: float | None) -> tuple[PerRow, float | None]:
        """Advantages of the rows, and the baseline of the next batch; see the class."""
        rewards, known = wide(rewards), ~rewards.isnan()
        if not known.any():
            return torch.zeros_like(rewards), state
        mean = float(rewards[known].mean())
        baseline = mean if state is None else state
        return torch.where(known, rewards - baseline, 0), self.decay * baseline + (1 - self.decay) * mean
