"""The distribution a sampler draws from, in plain loops and float64, and whether draws follow it."""

import math
from collections import Counter
from collections.abc import Mapping

import torch


def tempered(logits, sampling):
    """Probabilities at the temperature, nothing cut."""
    heat = sampling.temperature or 1.0
    highest = max(logits)
    weights = [math.exp((logit - highest) / heat) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def restricted(logits, sampling):
    """Temperature, then min-p, then top-k (ties with the last stay), then top-p (of ties the lower ids go first)."""
    chances = tempered(logits, sampling)
    if sampling.temperature == 0:
        return chances
    likeliest = max(chances)
    chances = [0.0 if chance < sampling.min_p * likeliest else chance for chance in chances]
    if sampling.top_k:
        last = sorted(chances, reverse=True)[: sampling.top_k][-1]
        chances = [0.0 if chance < last else chance for chance in chances]
    total, dropped = sum(chances), 0.0
    for token in sorted(range(len(chances)), key=lambda token: (chances[token], token))[:-1]:
        dropped += chances[token] / total
        if dropped > 1 - sampling.top_p:
            break
        chances[token] = 0.0
    return [chance / sum(chances) for chance in chances]


def p_value(drawn: Counter, chances: Mapping) -> float:
    """Of the chi-square test that draws have these chances; rare cells are one, and an impossible draw gives 0."""
    count = drawn.total()
    if any(chances.get(cell, 0) == 0 for cell in drawn):
        return 0.0
    often = [cell for cell, chance in chances.items() if chance * count >= 5]
    cells = [(drawn[cell], chances[cell] * count) for cell in often]
    rare = count - sum(expected for _, expected in cells)
    if rare > 1e-6 * count:
        cells.append((count - sum(found for found, _ in cells), rare))
    if len(cells) < 2:  # nothing is left to chance
        return 1.0
    statistic = sum((found - expected) ** 2 / expected for found, expected in cells)
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))
