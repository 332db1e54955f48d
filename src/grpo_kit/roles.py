"""All roles, by name, in the order of a step."""

from grpo_kit.advantages import ADVANTAGES
from grpo_kit.corrections import CORRECTIONS
from grpo_kit.data import DATA
from grpo_kit.divergences import DIVERGENCES
from grpo_kit.engines import ENGINES
from grpo_kit.parts import Role
from grpo_kit.ratios import RATIOS
from grpo_kit.rewards import REWARDS
from grpo_kit.samplers import SAMPLERS
from grpo_kit.selections import SELECTIONS
from grpo_kit.surrogates import SURROGATES
from grpo_kit.terms import TERMS
from grpo_kit.weightings import WEIGHTINGS

ROLES: dict[str, Role] = {
    role.name: role
    for role in (
        DATA,
        SAMPLERS,
        ENGINES,
        REWARDS,
        SELECTIONS,
        ADVANTAGES,
        RATIOS,
        SURROGATES,
        CORRECTIONS,
        DIVERGENCES,
        TERMS,
        WEIGHTINGS,
    )
}
