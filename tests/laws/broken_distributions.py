"""Divergences over whole distributions, broken in ways that trainers really shipped; each is rejected by a law."""

from dataclasses import dataclass

import torch

from grpo_kit import JSD, ForwardKL, ReverseKL, TopK
from laws import distributions as laws
from laws.enumerated import K


class Broken:
    """A loss of all log-probabilities of both sides, and the part that it would be."""

    def __init__(self, loss, stands_for):
        self.loss, self.stands_for, self.__name__ = loss, stands_for, loss.__name__

    def __call__(self, current, other):
        return self.loss(current, other)


@dataclass(frozen=True)
class ClampedEnds:
    """A JSD whose beta is kept inside (0, 1), so that its ends train nothing (B082)."""

    __name__ = "clamped_ends"
    beta: float

    def __call__(self, current, other):
        return JSD(beta=min(max(self.beta, 1e-6), 1 - 1e-6))(current, other)


def kl(p, q):
    return (p.exp() * (p - q)).sum(-1)


def top_of(current, other):
    """The log-probabilities of both at the other's top k."""
    top = other.topk(min(K, other.shape[-1]))
    return current.gather(-1, top.indices), top.values


def raw_top_k(current, other):
    """The reverse KL summed over the top k alone (B087)."""
    return kl(*top_of(current, other))


def softened_twice(current, other):
    """The factor T^2 multiplied in where it is not said (B084)."""
    return 4 * ForwardKL(temperature=2.0)(current, other)


def averaged(current, other):
    """Distances minus the batch's mean."""
    found = kl(current, other)
    return found - found.mean()


def clamped_ids(current, other):
    """Ids beyond the smaller vocabulary read as its last one (B077)."""
    return kl(current[..., :2], other[..., :2])


def renormalized_teacher(current, other):
    """The teacher divided by the mass of its top k, the student not."""
    mine, theirs = top_of(current, other)
    return kl(theirs.log_softmax(-1), mine)


def always_a_tail(current, other):
    """log(1 - sum(exp)) of both, whatever is left there: NaN or the rounding of the sum."""
    both = [torch.cat([each, (1 - each.exp().sum(-1, keepdim=True)).log()], -1) for each in top_of(current, other)]
    return kl(*both)


def swapped(current, other):
    """The arguments of the KL the other way around (B083)."""
    return kl(current, other)


def share_of_the_student(current, other):
    """beta taken for the student's share of the mixture (B080)."""
    return JSD(beta=0.9)(current, other)


def masked_product(current, other):
    """A reverse KL whose NaN products are set to zero: the gradient keeps them."""
    return (current.exp() * (current - other)).nan_to_num(nan=0.0).sum(-1)


def no_teacher(current, other):
    """The student's entropy alone."""
    return kl(current, 0 * current)


def all_of_it(current, other):
    """A top k that nobody reads."""
    return kl(other, current)


FORWARD, REVERSE = ForwardKL(top_k=TopK(k=K)), ReverseKL(top_k=TopK(k=K))
BROKEN = [
    (laws.nothing_at_an_equal_teacher, raw_top_k),
    (laws.never_below_zero, raw_top_k),
    (laws.equal_to_enumeration, Broken(raw_top_k, REVERSE)),
    (laws.equal_to_enumeration, Broken(swapped, ForwardKL())),
    (laws.equal_to_enumeration, Broken(share_of_the_student, JSD(beta=0.1))),
    (laws.equal_to_enumeration, Broken(softened_twice, ForwardKL(temperature=2.0))),
    (laws.impossible_events_are_harmless, Broken(masked_product, ReverseKL())),
    (laws.another_teacher_is_another_gradient, no_teacher),
    (laws.a_top_k_sees_nothing_outside, all_of_it),
    (laws.a_part_is_not_above_the_whole, Broken(renormalized_teacher, FORWARD)),
    (laws.the_top_of_everything_is_everything, Broken(always_a_tail, REVERSE)),
    (laws.tokens_are_apart, averaged),
    (laws.ids_have_no_order, clamped_ids),
    (laws.the_ends_are_a_jump, ClampedEnds(beta=1.0)),
    (laws.the_ends_are_a_jump, ClampedEnds(beta=0.0)),
]
