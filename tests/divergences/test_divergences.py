"""Divergences: the values of the estimators, and the one that is refused."""

import math

import pytest
import torch
from pydantic import ValidationError

from grpo_kit import SampledKL

pytestmark = pytest.mark.usefixtures("float64")


def test_k2_is_half_the_square():
    assert float(SampledKL()(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]))) == 2.0  # 2^2 / 2


def test_k3_has_the_reverse_kls_value_in_expectation():
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.5, 0.3])
    found = (p * SampledKL(estimator="k3")(p.log()[None], q.log()[None])[0]).sum()
    exact = sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
    assert float(found) == pytest.approx(exact, rel=1e-12)


def test_k1_is_refused_and_the_message_says_what_to_use():
    with pytest.raises(ValidationError, match=r"expected gradient of zero.*'k2'.*'k3'"):
        SampledKL(estimator="k1")
