"""Everything that is compared: our recipes, then parts that have no recipe of their own."""

from cases_of_parts import PARTS
from cases_of_recipes import RECIPES

CASES = (*RECIPES, *PARTS)
