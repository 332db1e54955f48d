"""Surrogates and corrections broken in ways that trainers shipped, each with the law that finds it."""

import torch

from grpo_kit.masked import row_mean, select
from laws import corrections, levels, surrogates


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


def over_all_rows(log_ratio, mask):
    """Self-normalized over all rows, those without a token among them."""
    weights = select(row_mean(log_ratio.detach(), mask).exp()[:, None].expand_as(log_ratio), mask)
    return weights / weights.amax(dim=1).mean().clamp(min=1e-9)


def normalized_by_place(log_ratio, mask):
    """Divided by the first row's weight: the groups are taken from the rows' places."""
    weights = select(log_ratio.detach(), mask).exp()
    return select(weights / weights[:1], mask)


def bound_after_the_power(log_ratio, mask):
    """The bound of the power instead of the weight."""
    return select((0.5 * select(log_ratio.detach(), mask)).exp().clamp(max=4.0), mask)


BROKEN = [
    (surrogates.rows_do_not_see_each_other, mean_over_all_rows),
    (surrogates.rows_do_not_see_each_other, padding_in_the_mean),
    (surrogates.no_ratio_overflows, exponent_first),
    (surrogates.it_says_what_it_clips, clips_in_silence),
    (levels.absent_rows_change_nothing, over_all_rows),
    (levels.rows_may_be_permuted, normalized_by_place),
    (corrections.kept_in_its_bounds, bound_after_the_power),
]
