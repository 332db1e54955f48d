"""Mistakes of a recipe as cases: settings that make them, what is reported, settings that mend it, which recipe."""

import pytest

from grpo_kit import RecipeError, read_recipe


def reported_and_mended(case, default: str) -> None:
    """The settings are refused with exactly these mistakes, and the mended ones with none."""
    wrong, mistakes, mended, *named = case
    recipe = named[0] if named else default
    with pytest.raises(RecipeError) as caught:
        read_recipe(recipe, settings=wrong)
    assert list(caught.value.mistakes) == mistakes
    read_recipe(recipe, settings=mended)
