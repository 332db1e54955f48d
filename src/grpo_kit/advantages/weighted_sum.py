"""Several advantages at once: a weighted sum, each of the whole reward or of components of its own."""

from typing import Annotated, Any

import torch
from pydantic import Field, model_validator

from grpo_kit.advantages.live import is_live
from grpo_kit.advantages.own_rewards import OwnRewards, refuse_what_only_totals_have, weighted
from grpo_kit.advantages.role import ADVANTAGES, Advantage
from grpo_kit.advantages.summed import summed
from grpo_kit.formula import name as in_latex, number
from grpo_kit.masked import wide
from grpo_kit.memory import Memory
from grpo_kit.parts import part, table
from grpo_kit.shapes import GroupId, PerRow, PerToken


@table
class Summand:
    """One advantage of a weighted sum.

    Attributes:
        weight: its factor; not 0.
        advantage: any advantage.
        rewards: weights of the components that it sees in place of the learner's reward; all of them must be rewards
            of the learner.
    """

    weight: float = 1.0
    advantage: Annotated[Advantage, ADVANTAGES]
    rewards: OwnRewards | None = None

    @model_validator(mode="after")
    def _does_something(self) -> "Summand":
        if self.weight == 0:
            raise ValueError("weight 0 does nothing; remove the summand")
        if self.rewards is not None and is_live(self.advantage):
            raise ValueError(f"'{getattr(self.advantage, 'kind', 'it')}' looks at no reward; remove rewards")
        if self.rewards is not None:
            refuse_what_only_totals_have(self.advantage)
        return self

    @property
    def formula(self) -> str:
        """The advantage without its weight."""
        inner = getattr(self.advantage, "formula", rf"\text{{{type(self.advantage).__name__}}}(r)")
        if self.rewards is None:
            return f"[{inner}]"
        own = " + ".join(rf"{number(weight)} \cdot {in_latex(name)}" for name, weight in self.rewards.items())
        return rf"[{inner}]_{{r = {own}}}"


@part("weighted_sum")
class WeightedSum:
    r"""Add advantages: $A = \sum_n \lambda_n A^n$, each of the learner's reward or of components of its own.

    A missing reward (NaN) gets 0 from each of them. Advantages of rows count for every token of the row when another
    summand has one a token. A component that abstains on a row is left out of a summand's own reward there; where all
    of its components do, the row gets 0 from it. A summand with memory keeps its own. A live summand
    (`teacher_log_ratio`) is added at every update, by the policy gradient; the call is about the others.

    Attributes:
        of: the summands, each a table with `advantage` and, where wanted, `weight` and `rewards`.

    Example:
        >>> from grpo_kit.advantages import GroupMean, LeaveOneOut
        >>> both = WeightedSum(of=(Summand(weight=0.5, advantage=GroupMean()), Summand(advantage=LeaveOneOut())))
        >>> both(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), state=both.init())[0]
        tensor([ 1.2500, -1.2500])
    """

    of: Annotated[tuple[Summand, ...], Field(min_length=1)]

    @property
    def compares_rows(self) -> bool:
        """Whether all summands do: only then every advantage would be 0 with one row a group."""
        return all(getattr(summand.advantage, "compares_rows", False) for summand in self.of)

    @property
    def formula(self) -> str:
        """The advantage of a row or token."""
        total = ""
        for summand in self.of:
            factor = "" if abs(summand.weight) == 1 else rf"{number(abs(summand.weight))} \cdot "
            total += f" {'-' if summand.weight < 0 else '+'} {factor}{summand.formula}"
        return total.removeprefix(" + ").lstrip()

    def init(self) -> dict[str, Any]:
        """The states of the summands, by their number; none yet."""
        return {}

    def __call__(
        self, rewards: PerRow, groups: GroupId, state: dict[str, Any], **offers: Any
    ) -> tuple[PerRow | PerToken, dict[str, Any]]:
        """The sum, and the states of the summands; see the class."""
        memory = Memory(dict(state))
        found: list[PerRow | PerToken] = [torch.zeros_like(wide(rewards))]
        for place, summand in enumerate(self.of):
            if is_live(summand.advantage):
                continue
            seen, given = rewards, offers
            if summand.rewards is not None:
                components = offers.get("components", {})
                seen = torch.where(rewards.isnan(), torch.nan, weighted(components, summand.rewards))
                own = {name: components[name] for name in summand.rewards}
                given = offers | {"components": own, "weights": summand.rewards}
            found.append(summand.weight * memory.call(str(place), summand.advantage, seen, groups, **given))
        return summed(found), memory.states
