"""What an advantage is, and the table of its kinds; apart from the kinds, since some of them hold others."""

from typing import Any, Protocol, runtime_checkable

from grpo_kit.parts import Role
from grpo_kit.shapes import GroupId, PerRow, PerToken


@runtime_checkable
class Advantage(Protocol):
    """Rewards and groups in, advantages out; a NaN reward is a row that does not exist and gets 0.

    An advantage that needs more names it as a parameter: `mask` (TokenMask, the tokens written), `token_rewards`
    (PerToken, the same rewards token by token, those of whole rows on their last token; NaN for absent rows),
    `components` (the named rewards a row, without weights, NaN where missing) and `weights` (theirs), `greedy_rewards`
    (PerRow, the reward of the greedy completion of each row's prompt; the sampler must write one).

    An advantage that compares the rows of a group says so by `compares_rows`, an attribute or property that is True; a
    recipe with groups of one is then refused. An advantage with memory also has `init() -> State`, takes the keyword
    `state` and returns `(advantages, state)`.
    """

    def __call__(self, rewards: PerRow, groups: GroupId, *args: Any, **asked: Any) -> PerRow | PerToken:
        """Give each row (or token) its advantage."""
        ...


ADVANTAGES = Role("advantages", Advantage, {})
