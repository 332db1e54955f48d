"""What the references of advantages are made of, in plain Python."""

import torch
from hypothesis import strategies as st


def members(rewards, groups, row):
    return [float(rewards[other]) for other in range(len(rewards)) if groups[other] == groups[row]]


def mean(values):
    return sum(values) / len(values)


def deviation(values):
    return (sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1)) ** 0.5


def flat(values):
    return max(values) == min(values)


def drawn_lengths(draw, rows, longest=4):
    """A length of each row, and the mask of rows that long."""
    lengths = draw(st.lists(st.integers(1, longest), min_size=rows, max_size=rows))
    return lengths, torch.arange(longest) < torch.tensor(lengths)[:, None]
