"""Which of our recipes should equal what of the peers: plain data, read in every environment.

`ours` are `--set` settings of the recipe's learner; `theirs` options of TRL's trainer or names and options of verl's
functions. A default that differs is set equal here, on the side that has the option, so that each row says which
settings make the two the same. What no option can change is a named difference of `differences.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Case:
    """One algorithm in one of our recipes and in one peer."""

    name: str
    peer: Literal["TRL", "verl"]
    recipe: str
    ours: tuple[str, ...] = ()
    theirs: Mapping[str, Any] = field(default_factory=dict)
    differences: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name in the files."""
        return f"{self.name} {self.peer}"


ADVANTAGE, SURROGATE, TERM = "terms.policy.advantage", "terms.policy.surrogate", "terms.policy"

CASES = (
    Case(
        name="GRPO",
        peer="TRL",
        recipe="grpo",
        ours=(f"{ADVANTAGE}.scale=group", f"{ADVANTAGE}.eps=1e-4", "weighting={ kind = 'equal_rows' }"),
        theirs={"loss_type": "grpo"},
    ),
    Case(
        name="GRPO",
        peer="verl",
        recipe="grpo",
        ours=(f"{ADVANTAGE}.scale=group", f"{SURROGATE}.cap=3.0", "weighting={ kind = 'equal_rows' }"),
        theirs={"advantage": "grpo", "loss": "vanilla", "aggregate": "seq-mean-token-mean"},
    ),
)
