"""The spread of a batch's values as a divisor."""

from jaxtyping import Float
from torch import Tensor

from grpo_kit.formula import number
from grpo_kit.shapes import Scalar


def deviation(values: Float[Tensor, " value"], noise: float = 0.0) -> Scalar:
    """The standard deviation (with n - 1); infinite where all values are the same, so that dividing by it gives 0.

    Values are the same when none is more than `noise` above another.

    Example:
        >>> import torch
        >>> deviation(torch.tensor([0.0, 0.0, 3.0])), deviation(torch.full((3,), 0.1))
        (tensor(1.7321), tensor(inf))
    """
    if len(values) < 2 or bool(values.max() - values.min() <= noise):
        return values.new_tensor(float("inf"))
    return (values - values.max()).std()  # so that an offset costs no digits


def formula(values: str, eps: float, over: str = "") -> str:
    r"""The deviation of some values plus `eps`, as LaTeX; `over` is the index it is taken over.

    Example:
        >>> formula("R", 0.5)
        '\\operatorname{std}(R) + 0.5'
    """
    return rf"\operatorname{{std}}{over}({values})" + (f" + {number(eps)}" if eps else "")


def refuse_idle_eps(scale: str, eps: float) -> None:
    """ValueError for an `eps` that no division uses."""
    if scale == "none" and eps != 1e-6:
        raise ValueError("scale 'none' divides by nothing and does not use eps; leave eps out, or give a scale")
