"""The group's mean as the baseline, scaled up for the groups that teach nothing: GPG."""

from grpo_kit.masked import centered, group_is_flat
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow


@part("gpg")
class GPG:
    r"""Center rewards on their group, times $B / (B - M)$: $A_i = \frac{B}{B - M} (r_i - \bar r_{g(i)})$.

    $B$ counts the batch's rows and $M$ those of them in groups whose rewards are all equal, so that a mean over all
    rows becomes the mean over the rows with something to tell (GPG, arXiv:2504.02546, with its divisor $F$ = 1; with
    groups of one size it is the same to count groups). verl divides by the number of rows whose reward is not 0
    instead. A group whose rewards are all equal gets exactly 0, so does a group of one. A missing reward (NaN) is not
    counted, is left out of its group's baseline and gets 0.

    Example:
        >>> import torch
        >>> GPG()(torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1]))
        tensor([ 1., -1.,  0.,  0.])
    """

    compares_rows = True

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        counts = r"B \text{ rows}, M \text{ of them in groups without spread}"
        return rf"\frac{{B}}{{B - M}} \cdot (r_i - \operatorname{{mean}}(r_g)), \quad {counts}"

    def __call__(self, rewards: PerRow, groups: GroupId) -> PerRow:
        """Advantages of the rows; see the class."""
        known = ~rewards.isnan()
        with_spread = (known & ~group_is_flat(rewards, groups, known)).sum()
        advantages = centered(rewards, groups, known)
        return advantages * (known.sum().to(advantages) / with_spread.clamp(min=1))
