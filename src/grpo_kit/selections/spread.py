"""Keep the groups whose rewards differ."""

from grpo_kit.masked import group_is_flat
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow, RowMask


@part("spread")
class Spread:
    """Keep the groups whose rewards differ, with all their known rows, and drop the others whole.

    A group that is right or wrong throughout has no advantage, so that it only thins the batch; left out by DAPO
    (arXiv:2503.14476), which samples again in its place: the usual rule of a `[refill]`. Rewards differ when their
    largest is not their smallest, as numbers are stored: a deviation, or a mean between two bounds, takes rounding for
    a difference or misses groups that are alike. A group of one known reward is dropped.

    Example:
        >>> import torch
        >>> Spread()(torch.tensor([1.0, 0.0, 0.5, 0.5, 0.9]), torch.tensor([0, 0, 1, 1, 2]))
        tensor([ True,  True, False, False, False])
    """

    def __call__(self, rewards: PerRow, groups: GroupId) -> RowMask:
        """Rows to keep; see the class."""
        known = ~rewards.isnan()
        return known & ~group_is_flat(rewards, groups, known)
