"""Levels and corrections broken in ways that trainers shipped, each with the law that finds it."""

from grpo_kit.masked import row_mean, select
from laws import corrections, levels


def product_masked(log_ratio, mask):
    """The product is masked instead of the input: inf x 0 is NaN (B018, Soup#342)."""
    return log_ratio * mask


def mean_over_width(log_ratio, mask):
    """GSPO's mean over the padded width."""
    own = select(log_ratio, mask)
    return select(own.mean(1, keepdim=True).expand_as(own), mask)


def batch_mean(log_ratio, mask):
    """One ratio for the whole batch."""
    own = select(log_ratio, mask)
    return select((own.sum() / mask.sum().clamp(min=1)).expand_as(own), mask)


def against_neighbors(log_ratio, mask):
    """Each row minus the row before it: rows see each other."""
    own = select(log_ratio, mask)
    return select(own - own.roll(1, 0), mask)


def undetached(log_ratio, mask):
    """The weight lets the gradient through."""
    return select(log_ratio, mask).exp().clamp(max=2.0)


def unbounded(log_ratio, mask):
    """No cap at all."""
    return select(select(log_ratio.detach(), mask).exp(), mask)


def biased_to_half(log_ratio, mask):
    """A sigmoid in place of the exponential: 1/2 where the two agree."""
    return select(2 * 0.5 * select(log_ratio.detach(), mask).sigmoid(), mask)


def product_masked_weight(log_ratio, mask):
    """exp before the mask: NaN and inf reach the loss (B018, B089's kind)."""
    return log_ratio.detach().exp().clamp(max=2.0) * mask


def bypass_and_correction(current, anchor, behavior):
    """The sampler's log-probabilities are the anchor, and the weight is applied all the same (double counting)."""
    return current - behavior, anchor - behavior


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
    (levels.what_is_masked_does_not_matter, product_masked),
    (levels.padding_changes_nothing, mean_over_width),
    (levels.absent_rows_change_nothing, against_neighbors),
    (levels.rows_may_be_permuted, against_neighbors),
    (levels.a_ratio_of_one_stays_one, lambda log_ratio, mask: select(log_ratio.exp(), mask)),
    (levels.a_ratio_of_one_stays_one, batch_mean),
    (corrections.detached, undetached),
    (corrections.kept_in_its_bounds, unbounded),
    (corrections.one_when_the_two_agree, biased_to_half),
    (levels.what_is_masked_does_not_matter, product_masked_weight),
    (corrections.quotients_telescope, bypass_and_correction),
    (levels.absent_rows_change_nothing, over_all_rows),
    (levels.rows_may_be_permuted, normalized_by_place),
    (corrections.kept_in_its_bounds, bound_after_the_power),
]
