"""The table law x part: holds, or the reason why not. A new part must enter it, in the file of its role."""

from grpo_kit.roles import ROLES as EVERY_ROLE
from laws.row import Row
from laws.table import (
    advantages,
    corrections,
    divergences,
    ratios,
    rewards,
    selections,
    surrogates,
    terms,
    weightings,
)

OF_ROLE = {
    module.ROLE: module
    for module in (advantages, ratios, surrogates, corrections, divergences, weightings, selections, rewards, terms)
}
ROLES = {name: EVERY_ROLE[name] for name in OF_ROLE}
ELSEWHERE = {
    "samplers": "they draw from a model; tests/samplers",
    "data": "they make prompts; tests/data",
    "engines": "they run models; tests/engines",
}
"""Roles whose parts the laws of section 6 say nothing about, and where they are tested."""
PARTS = {name: module.PARTS for name, module in OF_ROLE.items()}
"""Each kind, in the variants that its options make: `kind` or `kind/variant`."""
TABLE: tuple[Row, ...] = tuple(found for module in OF_ROLE.values() for found in module.ROWS)
NOT_ABOUT = {(number, name): why for name, module in OF_ROLE.items() for number, why in module.NOT_ABOUT.items()}
"""Why a law has no row for a role. Laws 8 to 11 are about whole compositions: test_laws.py, 11 in test_objective.py."""
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 12)
