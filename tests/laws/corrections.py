"""Law 6: a correction is 1 where anchor = behavior, keeps its bounds, passes no gradient; the quotients telescope."""

from math import prod

import torch
from hypothesis import strategies as st

from grpo_kit.offers import call_with
from laws.data import any_mask, normal, shape
from laws.levels import asked
from tolerances import EXACT


def one_when_the_two_agree(correction, draw):
    """Law 6: anchor = behavior is weight 1."""
    mask = any_mask(draw, *shape(draw))
    weights = call_with(correction, torch.zeros(mask.shape), mask, **asked(draw, *mask.shape))
    assert torch.equal(weights, mask.to(torch.get_default_dtype()))


def kept_in_its_bounds(correction, draw):
    """Law 6: every weight lies in the declared bounds, or is 0; overflows and underflows included."""
    mask = any_mask(draw, *shape(draw))
    scale = draw(st.sampled_from([0.3, 3.0, 900.0]))
    weights = call_with(correction, normal(draw, *mask.shape, scale=scale), mask, **asked(draw, *mask.shape))
    low, high = bounds(correction)
    assert (((weights >= low) & (weights <= high)) | (weights == 0)).all()
    assert (weights[~mask] == 0).all()


def bounds(correction) -> tuple[float, float]:
    """The smallest weight but 0, and the largest, that a correction states."""
    if hasattr(correction, "factors"):
        lows, highs = zip(*map(bounds, correction.factors), strict=True)
        return prod(lows), prod(highs)
    if hasattr(correction, "metric"):
        return 1.0, 1.0  # it only keeps or drops
    low, high, temper = (getattr(correction, name, other) for name, other in (("low", 0), ("high", 2), ("temper", 1)))
    return low**temper, high**temper


def detached(correction, draw):
    """Law 6: a weight, not a path for gradients."""
    mask = any_mask(draw, *shape(draw))
    values = normal(draw, *mask.shape).requires_grad_()
    assert not call_with(correction, values, mask, **asked(draw, *mask.shape)).requires_grad


def quotients_telescope(quotients, draw):
    """Section 3: log ratio + log raw correction = current - behavior, whatever the anchor. Nothing applies twice.

    `quotients(current, anchor, behavior)` gives the two logarithms.
    """
    rows, tokens = shape(draw)
    current, anchor, behavior = (normal(draw, rows, tokens) for _ in range(3))
    log_ratio, log_correction = quotients(current, anchor, behavior)
    torch.testing.assert_close(log_ratio + log_correction, current - behavior, **EXACT)
