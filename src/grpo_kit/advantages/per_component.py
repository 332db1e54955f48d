"""Normalize, then sum: an advantage of each reward component alone, as in GDPO."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from einops import rearrange
from pydantic import Field, model_validator

from grpo_kit.advantages.deviation import deviation, formula, refuse_idle_eps
from grpo_kit.advantages.group_mean import GroupMean
from grpo_kit.advantages.own_rewards import refuse_what_only_totals_have
from grpo_kit.advantages.role import ADVANTAGES, Advantage
from grpo_kit.advantages.summed import summed
from grpo_kit.memory import Memory
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow, PerToken

NOISE = 1e-6
"""Sums that differ by less than this share of their largest summand are the same but for rounding."""


@part("per_component")
class PerComponent:
    r"""Sum the advantages that each reward component gives alone: $A_i = \sum_c w_c A^c_i$.

    GDPO (arXiv:2601.05242): a component is normalized before it is added, so that none drowns in the spread of the
    others; a plain `group_mean` of the weighted sum is the reverse. $A^c$ is `advantage` of the component without its
    weight, $w_c$ the learner's weights. The paper's last step, which also centers on the batch, is `scale="batch"`:
    group-centered advantages sum to 0 already, so dividing is all that is left of it (verl takes mean and deviation
    over tokens, and its mean is not 0). A group whose rewards are equal in every component gets exactly 0. A row on
    which a component abstains is left out of that component's baseline alone; one with a missing component has no
    reward, is left out of all of them and gets 0.

    Attributes:
        advantage: of each component; by default the paper's, `group_mean` with `scale="group"`.
        scale: what the sum is divided by: nothing, or the standard deviation of the batch's sums, over rows, or over
            the tokens written where the advantage gives one a token. Sums that cancel but for rounding give 0.
        eps: added to that deviation; at least 0.

    Example:
        >>> components = {"right": torch.tensor([1.0, 0.0]), "short": torch.tensor([0.0, 9.0])}
        >>> part, weights = PerComponent(scale="none"), {"right": 1.0, "short": 0.5}
        >>> given = {"components": components, "weights": weights, "state": part.init()}
        >>> part(torch.tensor([1.0, 4.5]), torch.tensor([0, 0]), **given)[0]
        tensor([ 0.3536, -0.3536])
    """

    advantage: Annotated[Advantage, ADVANTAGES] = Field(default_factory=lambda: GroupMean(scale="group"))
    scale: Literal["none", "batch"] = "batch"
    eps: Annotated[float, Field(ge=0)] = 1e-6

    @model_validator(mode="after")
    def _every_option_is_used(self) -> "PerComponent":
        refuse_what_only_totals_have(self.advantage)
        refuse_idle_eps(self.scale, self.eps)
        return self

    @property
    def compares_rows(self) -> bool:
        """Whether the advantage of a component does."""
        return bool(getattr(self.advantage, "compares_rows", False))

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        total = r"\sum_c w_c \cdot A^c_i"
        if self.scale == "batch":
            total = rf"\frac{{a_i}}{{{formula('a', self.eps)}}}, \quad a_i = {total}"
        inner = getattr(self.advantage, "formula", r"\text{the advantage}")
        return rf"{total}, \quad A^c_i = {inner} \text{{ with component }} c \text{{ as }} r"

    def init(self) -> dict[str, Any]:
        """The states of the advantage, a component each; none yet."""
        return {}

    def __call__(
        self,
        rewards: PerRow,
        groups: GroupId,
        components: Mapping[str, PerRow],
        weights: Mapping[str, float],
        state: Mapping[str, Any],
        **offers: Any,
    ) -> tuple[PerRow | PerToken, dict[str, Any]]:
        """Advantages of the rows (or tokens), and the states of the inner ones; see the class."""
        known, memory = ~rewards.isnan(), Memory(dict(state))
        found: list[PerRow | PerToken] = []
        for name, weight in weights.items():
            own = torch.where(known, components[name], torch.nan)
            given = offers | {"components": {name: own}, "weights": {name: 1.0}}
            found.append(weight * memory.call(name, self.advantage, own, groups, **given))
        total = summed(found)
        if self.scale == "batch" and total.numel():
            counted = known
            if total.ndim == 2:
                if "mask" not in offers:
                    raise ValueError("the deviation of advantages a token needs the keyword mask, the tokens written")
                counted = offers["mask"] & rearrange(known, "row -> row 1")
            noise = NOISE * max(float(each.abs().max()) for each in found)
            total = total / (deviation(total[counted], noise) + self.eps)
        return total, memory.states
