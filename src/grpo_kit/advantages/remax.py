"""The greedy completion's reward as the baseline: ReMax."""

import torch

from grpo_kit.masked import wide
from grpo_kit.parts import part
from grpo_kit.shapes import GroupId, PerRow


@part("remax")
class ReMax:
    r"""Compare each reward with that of its prompt's greedy completion: $A_i = r_i - r^\mathrm{greedy}_{g(i)}$.

    ReMax (arXiv:2310.10505); the sampler must write a greedy completion beside the sampled ones (`greedy = true`), and
    one sampled row a prompt is enough. A row whose prompt has no greedy reward gets 0, so does one whose own reward is
    missing (NaN).

    Example:
        >>> greedy = torch.tensor([0.5, 0.5, torch.nan])
        >>> ReMax()(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 0, 1]), greedy_rewards=greedy)
        tensor([ 0.5000, -0.5000,  0.0000])
    """

    @property
    def formula(self) -> str:
        """The advantage of a row."""
        return r"r_i - r_i^{\text{greedy}}"

    def __call__(self, rewards: PerRow, groups: GroupId, greedy_rewards: PerRow) -> PerRow:
        """Advantages of the rows; see the class."""
        lead = wide(rewards) - greedy_rewards
        return torch.where(lead.isnan(), 0, lead)
