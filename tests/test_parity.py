"""`make parity` needs the peers' environment; that its cases are still ours and its page shows them is tested here."""

import sys
from pathlib import Path

import pytest
import torch

from grpo_kit import read_recipe
from grpo_kit.shipped import shipped_recipes

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "parity.md").read_text()
sys.path.insert(0, str(TESTS / "parity"))
try:
    from compare import options, verdict
    from differences import DIFFERENCES

    from cases import CASES, RECIPES
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_a_case_is_a_recipe_of_ours_and_on_the_page(case):
    recipe = read_recipe(case.recipe, settings=case.ours)
    assert "policy" in recipe.learners["small"].terms
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {case.name} | {case.peer} |")]
    assert row.endswith(f"| {', after '.join(['equal', *(f'*{name}*' for name in case.differences)])} |")
    assert options(case) in PAGE.splitlines()


def test_every_shipped_recipe_whose_algorithm_a_peer_has_is_compared():
    without_a_peer = {"codistill", "codistill_paper", "codistill_qwen", "maxrl"}
    grpo_again = {"gsm8k", "grpo_qwen"}
    # these are held to dense references
    distillation = {"dgrpo", "gkd", "kdrl", "opd", "opd_qwen", "semi_opd", "semi_opd_real", "sft"}
    assert {case.recipe for case in RECIPES} == set(shipped_recipes()) - without_a_peer - grpo_again - distillation


def test_every_difference_is_needed_and_explained():
    assert {name for case in CASES for name in case.differences} == set(DIFFERENCES)
    assert all(f"- *{name}* ({what.whose}): {what.why}" in PAGE for name, what in DIFFERENCES.items())


def test_a_difference_is_seen_and_an_explanation_that_explains_nothing_too():
    case = next(case for case in CASES if case.differences == ("constant",))
    batches = {"even": {"old": torch.tensor([[-1.0, -2.0]])}}
    ours = {
        "even": {name: torch.tensor([[0.5, 1.0]]) for name in ("advantages", "gradient")} | {"loss": torch.tensor(1.0)}
    }
    right = {"even": ours["even"] | {"loss": torch.tensor(1.0 - 0.5 - 2.0)}}
    assert verdict(case, ours, right, batches) == "equal, after *constant*"
    assert verdict(case, ours, ours, batches) == "DIFFERENT"
    for wrong in (1e-4, torch.nan):
        broken = {"even": right["even"] | {"advantages": ours["even"]["advantages"] + wrong}}
        assert verdict(case, ours, broken, batches) == "DIFFERENT"
    plain = {"even": {"old": torch.zeros(1, 2)}}
    assert verdict(case, ours, ours, plain) == "OUT OF DATE: constant"


def test_a_case_has_a_name_of_its_own():
    assert len({case.key for case in CASES}) == len(CASES)
