"""Laws of ratios and corrections, both of a log-ratio and a mask: order, padding, what is under the mask."""

import torch
from hypothesis import strategies as st

from grpo_kit.offers import call_with
from laws.data import any_mask, normal, order, poison, shape
from tolerances import EXACT


def asked(draw, rows: int, tokens: int) -> dict:
    """Everything that a ratio or a correction may ask for."""
    groups = torch.tensor(draw(st.lists(st.sampled_from([7, 3]), min_size=rows, max_size=rows)))
    return {"groups": groups, "advantages": normal(draw, rows, tokens)}


def taken(offers: dict, rows) -> dict:
    """The offers of some rows, in their order."""
    return {name: value[rows] for name, value in offers.items()}


def rows_may_be_permuted(part, draw):
    """Law 2: where a row stands does not matter."""
    mask = any_mask(draw, *shape(draw))
    values, rows, offers = normal(draw, *mask.shape), order(draw, len(mask)), asked(draw, *mask.shape)
    moved = call_with(part, values[rows], mask[rows], **taken(offers, rows))
    torch.testing.assert_close(moved, call_with(part, values, mask, **offers)[rows], **EXACT)


def padding_changes_nothing(part, draw):
    """Law 2: more columns of padding leave the values alone."""
    rows, tokens = shape(draw)
    more, mask = draw(st.integers(1, 3)), any_mask(draw, rows, tokens)
    values, offers = normal(draw, rows, tokens + more), asked(draw, rows, tokens + more)
    padded = torch.cat([mask, torch.zeros(rows, more, dtype=torch.bool)], dim=1)
    narrow = offers | {"advantages": offers["advantages"][:, :tokens]}
    torch.testing.assert_close(
        call_with(part, values, padded, **offers)[:, :tokens],
        call_with(part, values[:, :tokens], mask, **narrow),
        **EXACT,
    )


def absent_rows_change_nothing(part, draw):
    """Law 2: rows without a token leave the others alone."""
    rows, tokens = shape(draw)
    mask = any_mask(draw, rows, tokens)
    more = torch.cat([mask, torch.zeros(2, tokens, dtype=torch.bool)])
    values, offers = normal(draw, rows + 2, tokens), asked(draw, rows + 2, tokens)
    present = torch.arange(rows)
    alone = call_with(part, values[:rows], mask, **taken(offers, present))
    torch.testing.assert_close(call_with(part, values, more, **offers)[:rows], alone, **EXACT)


def what_is_masked_does_not_matter(part, draw):
    """Law 3: NaN, inf or 1e4 under the mask changes neither value nor gradient, and comes out as 0."""
    mask = any_mask(draw, *shape(draw))
    offers = asked(draw, *mask.shape)
    poisoned = offers | {"advantages": poison(draw, offers["advantages"], mask)}
    clean = normal(draw, *mask.shape).requires_grad_()
    bad = poison(draw, clean.detach(), mask).requires_grad_()
    at_clean, at_bad = call_with(part, clean, mask, **offers), call_with(part, bad, mask, **poisoned)
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
