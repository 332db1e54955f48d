"""The mean of the others as the baseline: RLOO."""

from grpo_kit.masked import centered, group_sum
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow


@part("leave_one_out")
class LeaveOneOut:
    r"""Compare each reward with the mean of the others: $A_i = r_i - \frac{1}{n-1}\sum_{j \ne i} r_j$.

    The unbiased baseline of RLOO (arXiv:2402.14740): it equals the group mean's advantage times $n/(n-1)$. A group
    whose rewards are all equal gets exactly 0, so does a group of one. A missing reward (NaN) is left out of its
    group and gets 0.

    Example:
        >>> import torch
        >>> LeaveOneOut()(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([7, 7, 7]))
        tensor([ 1.0000, -0.5000, -0.5000])
    """

    compares_rows = True

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        return r"r_i - \operatorname{mean}(r_g \text{ without } r_i)"

    def __call__(self, rewards: PerRow, groups: GroupId) -> PerRow:
        """Advantages of the rows; see the class."""
        known = ~rewards.isnan()
        advantages = centered(rewards, groups, known)
        count = group_sum(known.to(advantages), groups)
        return advantages * (count / (count - 1).clamp(min=1))
