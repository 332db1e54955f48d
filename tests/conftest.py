"""What all tests share: the hypothesis profile, the place of the laws, and float64 where a law is exact."""

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# What grpo_kit imports comes before it: inside the jaxtyping hook Python would compile all of it anew.
import beartype  # noqa: F401
import datasets  # noqa: F401
import math_verify  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import pytest
import torch
import torch.distributed._tools.mem_tracker
import transformers.models.auto.modeling_auto
import transformers.models.llama.modeling_llama  # noqa: F401
from hypothesis import HealthCheck, Phase, settings

sys.path.insert(0, str(Path(__file__).parent))  # so that tests can say `from laws.table import ...`

EXAMPLES = {"quick": 10, "thorough": 30, "fuzz": 2000}
"""Random examples of a property, by hypothesis profile; `make check-slow` runs the laws thoroughly, `fuzz` is for hand.

The first two try the same examples every time, `fuzz` others each time.
"""
for name, examples in EXAMPLES.items():
    settings.register_profile(
        name,
        deadline=None,
        derandomize=name != "fuzz",
        max_examples=examples,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    )
settings.load_profile("quick")  # another one: pytest --hypothesis-profile fuzz tests/fuzz


@pytest.fixture
def one_thread():
    """Torch has one thread inside the test: tiny matrices are slower on several, much slower on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def float64():
    """Tensors are float64 inside the test; the default dtype is put back afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
