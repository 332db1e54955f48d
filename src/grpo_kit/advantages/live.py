"""Advantages that are taken at every update, on the current policy's log-probabilities."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from grpo_kit.detail import Detail
from grpo_kit.shapes import PerToken, TokenMask
from grpo_kit.signals import Scores


@runtime_checkable
class LiveAdvantage(Protocol):
    """Current log-probabilities and another policy's in, advantages out, detached; `at_update` is True.

    `baseline` is what is added where the whole distributions are at hand, None for nothing.
    """

    @property
    def at_update(self) -> bool:
        """True."""
        ...

    @property
    def teacher(self) -> str:
        """The other policy."""
        ...

    @property
    def detail(self) -> Detail:
        """How much of the other policy's distributions it reads."""
        ...

    def __call__(self, current: PerToken, teacher: PerToken) -> PerToken:
        """Give each token its advantage."""
        ...

    def baseline(self, current: Scores, teacher: Scores, counted: TokenMask) -> PerToken | None:
        """What is added to each token."""
        ...


def is_live(advantage: object) -> bool:
    """Whether an advantage is taken at every update."""
    return getattr(advantage, "at_update", False) is True


def live(advantage: object, weight: float = 1.0) -> Iterator[tuple[float, LiveAdvantage]]:
    """The live advantages in a (weighted sum of) advantage(s), each with its weight."""
    if is_live(advantage):
        assert isinstance(advantage, LiveAdvantage)
        yield weight, advantage
    for summand in getattr(advantage, "of", ()):
        yield from live(summand.advantage, weight * summand.weight)
