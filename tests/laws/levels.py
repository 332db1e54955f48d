"""Laws of ratios and corrections, both of a log-ratio and a mask: order, padding, what is under the mask."""

import torch
from hypothesis import strategies as st

from laws.data import any_mask, normal, order, poison, shape
from tolerances import EXACT


def rows_may_be_permuted(part, draw):
    """Law 2: rows do not see each other."""
    mask = any_mask(draw, *shape(draw))
    values, rows = normal(draw, *mask.shape), order(draw, len(mask))
    torch.testing.assert_close(part(values[rows], mask[rows]), part(values, mask)[rows], **EXACT)


def padding_changes_nothing(part, draw):
    """Law 2: more columns of padding leave the values alone."""
    rows, tokens = shape(draw)
    more, mask = draw(st.integers(1, 3)), any_mask(draw, rows, tokens)
    values = normal(draw, rows, tokens + more)
    padded = torch.cat([mask, torch.zeros(rows, more, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(part(values, padded)[:, :tokens], part(values[:, :tokens], mask), **EXACT)


def absent_rows_change_nothing(part, draw):
    """Law 2: rows without a token leave the others alone."""
    rows, tokens = shape(draw)
    mask = any_mask(draw, rows, tokens)
    more = torch.cat([mask, torch.zeros(2, tokens, dtype=torch.bool)])
    values = normal(draw, rows + 2, tokens)
    torch.testing.assert_close(part(values, more)[:rows], part(values[:rows], mask), **EXACT)


def what_is_masked_does_not_matter(part, draw):
    """Law 3: NaN, inf or 1e4 under the mask changes neither value nor gradient, and comes out as 0."""
    mask = any_mask(draw, *shape(draw))
    clean = normal(draw, *mask.shape).requires_grad_()
    bad = poison(draw, clean.detach(), mask).requires_grad_()
    at_clean, at_bad = part(clean, mask), part(bad, mask)
    torch.testing.assert_close(at_bad, at_clean, **EXACT)
    assert (at_bad[~mask] == 0).all()
    if at_clean.requires_grad:
        upstream = normal(draw, *mask.shape)
        (of_clean,) = torch.autograd.grad(at_clean.exp(), clean, upstream)
        (of_bad,) = torch.autograd.grad(at_bad.exp(), bad, upstream)
        torch.testing.assert_close(of_bad, of_clean, **EXACT)
        assert (of_bad[~mask] == 0).all()


def a_ratio_of_one_stays_one(ratio, draw):
    """Law 5's premise: current = anchor is the log-ratio 0 at every level, with each token's own gradient."""
    mask = any_mask(draw, *shape(draw))
    values = torch.zeros(mask.shape, requires_grad=True)
    level = ratio(values, mask)
    assert (level == 0).all()
    weights = normal(draw, len(mask), 1).expand(mask.shape)  # constant in a row, for sequence levels
    (gradient,) = torch.autograd.grad(level, values, weights)
    torch.testing.assert_close(gradient, torch.where(mask, weights, 0), **EXACT)
