"""DAPO's soft overlong punishment."""

import pytest
import torch
from pydantic import ValidationError

import tiny
from grpo_kit import Signals, SoftOverlong
from grpo_kit.config import RecipeError, read_recipe
from tolerances import EXACT


def by_the_paper(length, longest, cache):
    """Equation 13 of arXiv:2503.14476."""
    if length <= longest - cache:
        return 0.0
    if length <= longest:
        return ((longest - cache) - length) / cache
    return -1.0


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("longest", "cache"), [(10, 4), (10, 10), (7, 1), (20480, 4096)])
def test_it_is_the_papers(longest, cache):
    lengths = sorted({0, 1, longest - cache, longest - cache + 1, longest - 1, longest, longest + 1, 3 * longest})
    expected = torch.tensor([by_the_paper(length, longest, cache) for length in lengths])
    found = SoftOverlong(max_length=longest, cache=cache).punish(torch.tensor(lengths))
    torch.testing.assert_close(found, expected, **EXACT)


def test_the_length_is_that_of_the_completion_in_tokens_and_cut_rows_count():
    rows = tiny.rollouts([2, 5, 8], [0, 0, 0], prompt_lengths=[9, 9, 9], width=12)
    assert rows.stop_reasons[2] == "length"
    component = SoftOverlong(max_length=8, cache=4)(rows, Signals({}))
    assert component.values.tolist() == [0.0, -0.25, -1.0]
    assert component.statuses == ("ok",) * 3


def test_a_cache_that_does_not_fit_is_refused():
    with pytest.raises(ValidationError, match="cache = 9 is more than max_length = 8"):
        SoftOverlong(max_length=8, cache=9)
    with pytest.raises(ValidationError, match="cache"):
        SoftOverlong(max_length=8, cache=0)


def test_a_punishment_that_no_completion_reaches_is_reported():
    settings = ["sampler.max_new_tokens=24", "learners.small.rewards={correctness=1.0, long=1.0}"]
    with pytest.raises(
        RecipeError, match=r"rewards\.long: no completion passes max_length - cache = 24 tokens .* always 0"
    ):
        read_recipe("grpo", settings=[*settings, "rewards.long={kind='soft_overlong', max_length=32, cache=8}"])
    read_recipe("grpo", settings=[*settings, "rewards.long={kind='soft_overlong', max_length=32, cache=9}"])
