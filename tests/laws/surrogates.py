"""Law 5: at ratio 1 a surrogate's gradient is REINFORCE's; a hard clip never pushes a clipped ratio further out."""

from math import log, log1p

import torch
from hypothesis import strategies as st

from laws.data import any_mask, normal, shape
from tolerances import EXACT


def on_policy_it_is_reinforce(surrogate, draw):
    """Law 5: at ratio 1 the gradient of the loss is -A."""
    rows, tokens = shape(draw)
    log_ratio = torch.zeros(rows, tokens, requires_grad=True)
    advantages = normal(draw, rows, 1).expand(rows, tokens)  # constant in a row, for sequence-level surrogates
    (gradient,) = torch.autograd.grad(surrogate(log_ratio, advantages).sum(), log_ratio)
    torch.testing.assert_close(gradient, -advantages, **EXACT)


def clipped_is_not_pushed_further(surrogate, draw):
    """Law 5: beyond the edge that its advantage drives it to, a ratio has no gradient outward."""
    rows, tokens = shape(draw)
    advantages = normal(draw, rows, tokens)
    beyond = 1e-3 + normal(draw, rows, tokens, scale=2.0).abs()
    high, low = log1p(getattr(surrogate, "high", 0.2)), log1p(-getattr(surrogate, "low", 0.2))
    log_ratio = torch.where(advantages > 0, high + beyond, low - beyond).requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(log_ratio, advantages).sum(), log_ratio)
    outward = -gradient * torch.where(advantages > 0, 1.0, -1.0)
    assert (outward <= 0).all()


def a_wrong_move_is_always_pulled_back(surrogate, draw):
    """Law 5, the other half: the clip is pessimistic, a ratio on the wrong side keeps its gradient (up to a cap)."""
    rows, tokens = shape(draw)
    advantages = normal(draw, rows, tokens)
    cap = getattr(surrogate, "cap", None)
    farthest = min(3.0, log(cap) - 1e-3) if cap else 3.0
    away = torch.rand(rows, tokens, generator=torch.Generator().manual_seed(draw(st.integers(0, 999)))) * farthest
    log_ratio = torch.where(advantages > 0, -away, away).requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(log_ratio, advantages).sum(), log_ratio)
    assert (gradient * advantages < 0).all()


def tokens_do_not_see_each_other(surrogate, draw):
    """Law 2 for losses per token: order, padding and absent rows cannot matter."""
    rows, tokens = shape(draw)
    log_ratio, advantages = normal(draw, rows, tokens), normal(draw, rows, tokens)
    mask = any_mask(draw, rows, tokens)
    alone = surrogate(torch.where(mask, log_ratio, 0), torch.where(mask, advantages, 0))
    torch.testing.assert_close(alone[mask], surrogate(log_ratio, advantages)[mask], **EXACT)
    assert (alone[~mask] == 0).all()


def huge_ratios_stay_finite(surrogate, draw):
    """Law 3's other half: no NaN in value or gradient for ratios that overflow on the clipped side."""
    sign = draw(st.sampled_from([-1.0, 1.0]))
    log_ratio = torch.full((1, 1), sign * draw(st.sampled_from([50.0, 1e4])), requires_grad=True)
    loss = surrogate(log_ratio, torch.full((1, 1), sign * 0.7))
    (gradient,) = torch.autograd.grad(loss.sum(), log_ratio)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
