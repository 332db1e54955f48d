"""Random inputs for the laws: shapes, masks and groups are drawn by hypothesis, numbers from a drawn seed."""

import torch
from hypothesis import strategies as st

seeds = st.integers(0, 2**31 - 1)


def generator(draw) -> torch.Generator:
    return torch.Generator().manual_seed(draw(seeds))


def normal(draw, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=generator(draw), dtype=torch.get_default_dtype())


def shape(draw, *, max_rows: int = 4, max_tokens: int = 5) -> tuple[int, int]:
    return draw(st.integers(1, max_rows)), draw(st.integers(1, max_tokens))


def any_mask(draw, rows: int, tokens: int) -> torch.Tensor:
    """Any mask at all, holes and empty rows included."""
    bits = draw(st.lists(st.booleans(), min_size=rows * tokens, max_size=rows * tokens))
    return torch.tensor(bits).reshape(rows, tokens)


def grouped_rewards(draw, *, max_rows: int = 8, distinct: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards with spread and with ties (unless distinct), and groups in any order with ids of no meaning."""
    count = draw(st.integers(1, max_rows))
    groups = torch.tensor(draw(st.lists(st.sampled_from([7, 3, 11]), min_size=count, max_size=count)))
    if distinct:
        rewards = torch.randperm(count, generator=generator(draw)).to(torch.get_default_dtype()) / 3
    else:
        rewards = torch.tensor(draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, -1.5]), min_size=count, max_size=count)))
    return rewards.to(torch.get_default_dtype()), groups


def order(draw, rows: int) -> torch.Tensor:
    return torch.tensor(draw(st.permutations(range(rows))), dtype=torch.long)


def poison(draw, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The values with NaN, inf, -inf or 1e4 put where the mask is False."""
    bad = torch.tensor([float("nan"), float("inf"), float("-inf"), 1e4, -1e4])
    chosen = bad[torch.randint(len(bad), values.shape, generator=generator(draw))].to(values)
    return torch.where(mask, values, chosen)
