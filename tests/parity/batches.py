"""Random batches for the parity check, written to a file that every side reads: `python batches.py FILE`.

What makes peers differ is in them: rows of uneven length, rewards with ties, a group whose rewards are all equal, rows
cut at the length limit, ratios on both sides of every clip. Numbers are float64 whose values float32 can hold, so that
a side which passes them through float32 loses nothing.
"""

import sys

import torch
from case import WIDTH

SPREADS = {"same": 0.0, "near": 1e-3, "far": 0.4, "exact": 0.4}
"""Deviation of a token's log-ratio: on policy; inside GSPO's clip and out of it; inside PPO's and out of it,
the last where the sampler's own log-probabilities are the old ones."""

GROUPINGS = {
    "even": [row // 4 for row in range(24)],
    "missing": [row // 4 for row in range(24)],
    "single": list(range(20)),
    "ragged": [0, 1, 2, 0, 1, 3, 3, 3, 0, 2, 4, 4, 3, 5, 5, 5, 3, 2, 0, 1],
}
"""The group of each row: equal and in order, which TRL's trainers need; the same without some of the
rewards; one row each; of any size and mixed."""


def batch(grouping: str, spread: str, seed: int) -> dict[str, torch.Tensor]:
    """One batch of rows: what every side needs to know about them."""
    random = torch.Generator().manual_seed(seed)
    groups = torch.tensor(GROUPINGS[grouping])
    rows = len(groups)

    def noise(scale: float) -> torch.Tensor:
        return scale * torch.randn(rows, WIDTH, generator=random)

    lengths = torch.randint(1, WIDTH, (rows,), generator=random)
    truncated = torch.zeros(rows, dtype=torch.bool)
    truncated[[3, rows // 2, rows - 2]] = True
    lengths[truncated] = WIDTH
    rewards = torch.randint(0, 4, (rows,), generator=random) / 4.0
    rewards[groups == 1] = 0.25
    if grouping == "missing":
        rewards[[1, 2, 14]] = torch.nan
    old = -torch.nn.functional.softplus(noise(1.5)) - 0.5
    values = {
        "old": old,
        "current": (old + noise(SPREADS[spread])).clamp(max=-1e-3),
        "rollout": old if spread == "exact" else (old + noise(0.3)).clamp(max=-1e-3),
        "reference": (old + noise(1.2)).clamp(max=-1e-3),
        "rewards": rewards,
        "brief": torch.randint(0, 3, (rows,), generator=random) / 2.0,
        "greedy": (torch.randint(0, 4, (rows,), generator=random) / 4.0)[groups],
    }
    mask = torch.arange(WIDTH) < lengths[:, None]
    return {name: value.double() for name, value in values.items()} | {
        "mask": mask,
        "groups": groups,
        "truncated": truncated,
    }


def all_batches() -> dict[str, dict[str, torch.Tensor]]:
    """Every batch by its name, which starts with its grouping."""
    names = [(grouping, spread, seed) for grouping in GROUPINGS for spread in SPREADS for seed in range(3)]
    return {f"{grouping}-{spread}-{seed}": batch(grouping, spread, seed) for grouping, spread, seed in names}


if __name__ == "__main__":
    torch.save(all_batches(), sys.argv[1])
