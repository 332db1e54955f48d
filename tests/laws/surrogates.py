"""Law 5: at ratio 1 a surrogate's gradient is REINFORCE's; a hard clip never pushes a clipped ratio further out."""

from math import log, log1p

import torch
from hypothesis import strategies as st

from grpo_kit import LogProbs
from grpo_kit.offers import call_with
from laws.data import any_mask, normal, shape
from tolerances import EXACT

LIKELY = -0.5
"""Log-probability of a drawn token under the likelier of its two policies."""
FAR = 3.0
"""A log-ratio beyond every edge that the table's surrogates have, but for those below."""
EDGES = {"clip": lambda part: (log1p(-part.low), log1p(part.high)), "gmpo": lambda part: (-part.low, part.high)}
"""Where a clip begins, as log-ratios below and above."""


def asked_of(log_ratio, mask=None):
    """Everything that a surrogate may ask for, made from the log-ratios."""
    current = log_ratio.detach().clamp(max=0) + LIKELY
    anchor = current - log_ratio.detach()
    mask = torch.ones_like(log_ratio, dtype=torch.bool) if mask is None else mask
    return {"mask": mask, "logprobs": LogProbs(current=current, anchor=anchor, behavior=anchor)}


def loss_of(surrogate, log_ratio, advantages, mask=None):
    """A surrogate's loss, called with everything it asks for."""
    return call_with(surrogate, log_ratio, advantages, **asked_of(log_ratio, mask))


def on_policy_it_is_reinforce(surrogate, draw):
    """Law 5: at ratio 1 the gradient of the loss is -A."""
    rows, tokens = shape(draw)
    log_ratio = torch.zeros(rows, tokens, requires_grad=True)
    advantages = normal(draw, rows, 1).expand(rows, tokens)  # constant in a row, for sequence-level surrogates
    (gradient,) = torch.autograd.grad(loss_of(surrogate, log_ratio, advantages).sum(), log_ratio)
    torch.testing.assert_close(gradient, -advantages, **EXACT)


def clipped_is_not_pushed_further(surrogate, draw):
    """Law 5: beyond the edge that its advantage drives it to, a ratio has no gradient outward."""
    rows, tokens = shape(draw)
    advantages = normal(draw, rows, tokens)
    beyond = 1e-3 + normal(draw, rows, tokens, scale=2.0).abs()
    low, high = EDGES.get(getattr(surrogate, "kind", ""), lambda part: (-FAR, FAR))(surrogate)
    log_ratio = torch.where(advantages > 0, high + beyond, low - beyond).requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(surrogate, log_ratio, advantages).sum(), log_ratio)
    outward = -gradient * torch.where(advantages > 0, 1.0, -1.0)
    assert (outward <= 0).all()


def a_wrong_move_is_always_pulled_back(surrogate, draw):
    """Law 5, the other half: the clip is pessimistic, a ratio on the wrong side keeps its gradient (up to a cap)."""
    rows, tokens = shape(draw)
    advantages = normal(draw, rows, tokens)
    cap = getattr(surrogate, "cap", None)
    farthest = min(FAR, log(cap) - 1e-3) if cap else FAR
    away = torch.rand(rows, tokens, generator=torch.Generator().manual_seed(draw(st.integers(0, 999)))) * farthest
    log_ratio = torch.where(advantages > 0, -away, away).requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(surrogate, log_ratio, advantages).sum(), log_ratio)
    assert (gradient * advantages < 0).all()


def it_says_what_it_clips(surrogate, draw):
    """Where there is an advantage, the tokens without gradient are those that `clipped` names, and no others."""
    rows, tokens = shape(draw)
    advantages = normal(draw, rows, tokens)
    log_ratio = normal(draw, rows, tokens, scale=0.7).requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(surrogate, log_ratio, advantages).sum(), log_ratio)
    clipped = getattr(surrogate, "clipped", lambda log_ratio, advantages: torch.zeros_like(log_ratio, dtype=torch.bool))
    assert torch.equal(call_with(clipped, log_ratio.detach(), advantages, **asked_of(log_ratio)), gradient == 0)


def tokens_do_not_see_each_other(surrogate, draw):
    """Law 2 for losses per token: order, padding and absent rows cannot matter."""
    rows, tokens = shape(draw)
    log_ratio, advantages = normal(draw, rows, tokens), normal(draw, rows, tokens)
    mask = any_mask(draw, rows, tokens)
    alone = loss_of(surrogate, torch.where(mask, log_ratio, 0), torch.where(mask, advantages, 0), mask)
    torch.testing.assert_close(alone[mask], loss_of(surrogate, log_ratio, advantages)[mask], **EXACT)
    assert (alone[~mask] == 0).all()


def rows_do_not_see_each_other(surrogate, draw):
    """Law 2 for losses per row: a row has the same loss alone and among others, however much it is padded."""
    rows, tokens = shape(draw)
    more, mask = draw(st.integers(0, 2)), any_mask(draw, rows, tokens)
    inputs = [torch.where(mask, normal(draw, rows, tokens), 0) for _ in range(2)]
    together = loss_of(surrogate, *(torch.nn.functional.pad(each, (0, more)) for each in (*inputs, mask)))
    assert (together[:, tokens:] == 0).all()
    assert (together[:, :tokens][~mask] == 0).all()
    for row in range(rows):
        alone = loss_of(surrogate, *(each[row : row + 1] for each in (*inputs, mask)))
        torch.testing.assert_close(together[row : row + 1, :tokens], alone, **EXACT)


def huge_ratios_stay_finite(surrogate, draw):
    """Law 3's other half: no NaN in value or gradient for ratios that overflow on the clipped side."""
    sign = draw(st.sampled_from([-1.0, 1.0]))
    _is_finite(surrogate, sign * draw(st.sampled_from([50.0, 1e4])), sign * 0.7)


def no_ratio_overflows(surrogate, draw):
    """The same on both sides: a ratio that moved the wrong way is bounded, too."""
    _is_finite(surrogate, draw(st.sampled_from([-1e4, 1e4])), draw(st.sampled_from([-0.7, 0.0, 0.7])))


def _is_finite(surrogate, log_ratio, advantage):
    log_ratios = torch.full((1, 1), log_ratio, requires_grad=True)
    loss = loss_of(surrogate, log_ratios, torch.full((1, 1), advantage))
    (gradient,) = torch.autograd.grad(loss.sum(), log_ratios)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
