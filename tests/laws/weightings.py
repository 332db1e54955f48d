"""Laws of weightings: zero where nothing counts, and the same whatever the padding, the order or the absent rows."""

import torch
from hypothesis import strategies as st

from laws.data import any_mask, order, shape
from tolerances import EXACT


def nothing_counts_outside_the_mask(weighting, draw):
    """Law 3: weights are finite, at least 0, positive exactly where a token counts; all zero without any (B010)."""
    mask = any_mask(draw, *shape(draw))
    weights = weighting(mask)
    assert weights.isfinite().all()
    assert torch.equal(weights > 0, mask)
    assert (weights >= 0).all()


def rows_may_be_permuted(weighting, draw):
    """Law 2: each row keeps its weights wherever it stands."""
    mask = any_mask(draw, *shape(draw))
    rows = order(draw, len(mask))
    torch.testing.assert_close(weighting(mask[rows]), weighting(mask)[rows], **EXACT)


def padding_changes_nothing(weighting, draw):
    """Law 2: more columns of padding leave the weights alone."""
    rows, tokens = shape(draw)
    mask = any_mask(draw, rows, tokens)
    padded = torch.cat([mask, torch.zeros(rows, draw(st.integers(1, 4)), dtype=torch.bool)], dim=1)
    torch.testing.assert_close(weighting(padded)[:, :tokens], weighting(mask), **EXACT)


def absent_rows_change_nothing(weighting, draw):
    """Law 2: rows without a counted token do not dilute the others."""
    rows, tokens = shape(draw)
    mask = any_mask(draw, rows, tokens)
    more = torch.cat([mask, torch.zeros(draw(st.integers(1, 3)), tokens, dtype=torch.bool)])
    torch.testing.assert_close(weighting(more)[:rows], weighting(mask), **EXACT)
