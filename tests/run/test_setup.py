"""What a recipe names in the world is looked at before anything is trained, together with the recipe itself."""

import pytest

from grpo_kit import RecipeError
from grpo_kit.run.setup import open_recipe


def mistakes(recipe: str, *settings: str) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        open_recipe(recipe, settings=settings)
    return [mistake.split(":")[0] for mistake in caught.value.mistakes]


def test_mistakes_of_the_recipe_and_of_the_world_are_listed_together(tmp_path):
    found = mistakes(
        "gsm8k",
        "stepz=3",
        "learners.student.rewards.fromat=1.0",
        f"policies.student.model={tmp_path / 'nowhere'}",
        f"data.path={tmp_path / 'none.jsonl'}",
        "data.name=",
    )
    assert found == ["stepz", "learners.student.rewards", "policies.student.model", "data", "evaluation.data"]
    found = mistakes("gsm8k", "stepz=3", "policies.student.model=tiny:small", "data.path=none.jsonl", "data.name=")
    assert found == ["stepz", "data", "evaluation.data"]


def test_data_with_a_mistake_of_its_own_is_not_read():
    assert mistakes("grpo", "data.rowz=3", "steps=0") == ["steps", "data.rowz"]


def test_a_model_needs_positions_for_the_longest_row():
    with pytest.raises(RecipeError) as caught:
        open_recipe("grpo", settings=["sampler.max_new_tokens=250"])
    assert caught.value.mistakes == (
        "policies.small: the longest prompt (10 tokens) and max_new_tokens = 250 need 260 positions; 'tiny:small' has "
        "256. Lower max_new_tokens or max_prompt_tokens.",
    )
    open_recipe("grpo", settings=["sampler.max_new_tokens=246"])
    assert mistakes("grpo", "evaluation.max_new_tokens=247") == ["policies.small"]
