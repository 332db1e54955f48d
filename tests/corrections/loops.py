"""Levels in plain loops, for the references of the corrections."""

import torch

LEVELS = ("token", "prefix", "window", "sequence", "geometric")
WINDOW = 2


def at_level(level, values, place, positions):
    """The sum (or mean) over a level of the counted values of one row, given with their positions."""
    own = {
        "token": [values[place]],
        "prefix": values[: place + 1],
        "window": [v for v, p in zip(values, positions, strict=True) if -WINDOW < p - positions[place] <= 0],
    }.get(level, values)
    return sum(own) / (len(own) if level == "geometric" else 1)


def by_loops(values, mask, of_token):
    """For each counted token of each row what `of_token(values, place, positions, row)` says; 0 elsewhere."""
    found = torch.zeros(mask.shape)
    for row in range(len(mask)):
        counted = torch.nonzero(mask[row]).flatten().tolist()
        own = values[row, counted].tolist()
        for place, token in enumerate(counted):
            found[row, token] = of_token(own, place, counted, row)
    return found
