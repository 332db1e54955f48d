"""Surrogates broken in ways that trainers shipped, each with the law that finds it."""

import torch

from grpo_kit.masked import select
from laws import surrogates


def clip_of_the_wrong_sign(log_ratio, advantages, logprobs=None):
    """max in place of min: the optimistic clip (B021, trl#3435)."""
    ratio = log_ratio.exp()
    return -torch.maximum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def clip_alone(log_ratio, advantages, logprobs=None):
    """The clipped product without the min: a wrong move is not pulled back."""
    return -log_ratio.exp().clamp(0.8, 1.2) * advantages


def absolute_bound(log_ratio, advantages, logprobs=None):
    """CISPO with `epsilon_high` = 0.2 taken as an absolute bound of the ratio (trl)."""
    return -log_ratio.exp().detach().clamp(max=0.2) * advantages * log_ratio


def forgotten_sign(log_ratio, advantages, logprobs=None):
    """Ascends the loss (B015's kind)."""
    return advantages * log_ratio.exp()


def whitened(log_ratio, advantages, logprobs=None):
    """Advantages whitened over whatever is in the micro-batch."""
    return -(advantages - advantages.mean()) / (advantages.std(unbiased=False) + 1e-8) * log_ratio.exp()


def overflowing(log_ratio, advantages, logprobs=None):
    """The usual form: exp first, clamp afterwards; inf - inf in the min's gradient."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) + 0 * ratio


def mean_over_all_rows(log_ratio, advantages, mask):
    """A geometric mean over the batch in place of the row."""
    level = select(log_ratio, mask).sum() / mask.sum().clamp(min=1)
    return -advantages * (level + 0 * log_ratio).exp()


def padding_in_the_mean(log_ratio, advantages, mask):
    """A geometric mean over the padded width."""
    return -advantages * log_ratio.mean(dim=1, keepdim=True).expand_as(log_ratio).exp()


def exponent_first(log_ratio, advantages):
    """SAPO as it is written: the slope of a saturated gate (0) times an infinite ratio is NaN."""
    return -4 * torch.sigmoid(log_ratio.exp() - 1) * advantages


def clips_in_silence(log_ratio, advantages):
    """Stops tokens and does not say which."""
    return -log_ratio.exp().clamp(0.8, 1.2) * advantages


BROKEN = [
    (surrogates.clipped_is_not_pushed_further, clip_of_the_wrong_sign),
    (surrogates.a_wrong_move_is_always_pulled_back, clip_alone),
    (surrogates.on_policy_it_is_reinforce, absolute_bound),
    (surrogates.on_policy_it_is_reinforce, forgotten_sign),
    (surrogates.tokens_do_not_see_each_other, whitened),
    (surrogates.huge_ratios_stay_finite, overflowing),
    (surrogates.rows_do_not_see_each_other, mean_over_all_rows),
    (surrogates.rows_do_not_see_each_other, padding_in_the_mean),
    (surrogates.no_ratio_overflows, exponent_first),
    (surrogates.it_says_what_it_clips, clips_in_silence),
]
