"""A reward and an advantage that grpo_kit finds by the entry points of this package."""

from acme_rewards.novelty import Novelty
from acme_rewards.rank import Rank

__all__ = ["Novelty", "Rank"]
