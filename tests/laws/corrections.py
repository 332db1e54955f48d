"""Law 6: a correction is 1 where anchor = behavior, keeps its bounds, passes no gradient; the quotients telescope."""

import torch
from hypothesis import strategies as st

from laws.data import any_mask, normal, shape
from tolerances import EXACT


def one_when_the_two_agree(correction, draw):
    """Law 6: anchor = behavior is weight 1."""
    mask = any_mask(draw, *shape(draw))
    assert torch.equal(correction(torch.zeros(mask.shape), mask), mask.to(torch.get_default_dtype()))


def kept_in_its_bounds(correction, draw):
    """Law 6: every weight lies in the declared bounds, or is 0; overflows and underflows included."""
    mask = any_mask(draw, *shape(draw))
    scale = draw(st.sampled_from([0.3, 3.0, 900.0]))
    weights = correction(normal(draw, *mask.shape, scale=scale), mask)
    low, high = getattr(correction, "low", 0.0), getattr(correction, "high", 2.0)
    assert (((weights >= low) & (weights <= high)) | (weights == 0)).all()
    assert (weights[~mask] == 0).all()


def detached(correction, draw):
    """Law 6: a weight, not a path for gradients."""
    mask = any_mask(draw, *shape(draw))
    assert not correction(normal(draw, *mask.shape).requires_grad_(), mask).requires_grad


def quotients_telescope(quotients, draw):
    """Section 3: log ratio + log raw correction = current - behavior, whatever the anchor. Nothing applies twice.

    `quotients(current, anchor, behavior)` gives the two logarithms.
    """
    rows, tokens = shape(draw)
    current, anchor, behavior = (normal(draw, rows, tokens) for _ in range(3))
    log_ratio, log_correction = quotients(current, anchor, behavior)
    torch.testing.assert_close(log_ratio + log_correction, current - behavior, **EXACT)
