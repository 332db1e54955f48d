"""What all tests share: the hypothesis profile, the place of the laws, and float64 where a law is exact."""

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

sys.path.insert(0, str(Path(__file__).parent))  # so that tests can say `from laws.table import ...`

settings.register_profile(
    "grpo_kit",
    deadline=None,
    derandomize=True,
    max_examples=30,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
settings.load_profile("grpo_kit")


@pytest.fixture
def float64():
    """Tensors are float64 inside the test; the default dtype is put back afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
