"""The spread of a batch's values as a divisor."""

from jaxtyping import Float
from torch import Tensor

from grpo_kit.shapes import Scalar


def deviation(values: Float[Tensor, " value"]) -> Scalar:
    """The standard deviation (with n - 1); infinite where all values are the same, so that dividing by it gives 0.

    Example:
        >>> import torch
        >>> deviation(torch.tensor([0.0, 0.0, 3.0])), deviation(torch.full((3,), 0.1))
        (tensor(1.7321), tensor(inf))
    """
    if len(values) < 2 or bool(values.max() == values.min()):
        return values.new_tensor(float("inf"))
    return values.std()
