"""One row of the table law x part, and how law 1 is asked of a single part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grpo_kit import Clip, EqualRows, GroupMean, Learner, PolicyGradient
from laws import divergences, splits

CLIPPED = {"advantage": GroupMean(), "surrogate": Clip()}


@dataclass(frozen=True)
class WhyNot:
    """The reason why a law does not hold for a part; `shown`: a counter-example is searched and must be found."""

    reason: str
    shown: bool = True


@dataclass(frozen=True)
class Row:
    """One law of the table: its number in the design, the role it is about, which parts it holds for.

    `share`: of the profile's examples, for a law whose examples are slow.
    """

    number: int
    role: str
    law: Callable[[Any, Any], None]
    holds: tuple[str, ...]
    why_not: dict[str, WhyNot]
    share: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.number}-{self.role}-{self.law.__name__}"


def row(number, role, law, *holds, why_not=None, share=1.0) -> Row:
    return Row(number, role, law, holds, why_not or {}, share)


def all_but(parts: dict[str, Any], why_not: dict[str, WhyNot]) -> tuple[str, ...]:
    """The kinds of a role that a law holds for: all but those with a reason why not."""
    return tuple(kind for kind in parts if kind not in why_not)


def split_of(role: str) -> Callable[[Any, Any], None]:
    """Law 1 for one part of a role, inside an otherwise usual learner."""

    def around(part) -> Learner:
        term = {
            "advantages": lambda: PolicyGradient(advantage=part, surrogate=Clip()),
            "ratios": lambda: PolicyGradient(advantage=GroupMean(), surrogate=Clip(), ratio=part),
            "surrogates": lambda: PolicyGradient(advantage=GroupMean(), surrogate=part),
            "corrections": lambda: PolicyGradient(advantage=GroupMean(), surrogate=Clip(), correction=part),
            "divergences": lambda: divergences.term_of(part),
            "weightings": lambda: PolicyGradient(**CLIPPED),
            "terms": lambda: part,
        }[role]()
        weighting = part if role == "weightings" else EqualRows()
        return Learner(rewards={"task": 1.0}, terms={"only": term}, weighting=weighting, optimizer=splits.OPTIMIZER)

    def law(part, draw):
        splits.micro_batches_change_nothing(around(part), draw)

    law.__name__, law.__module__ = "micro_batches_change_nothing", f"laws.splits[{role}]"
    return law
