"""Divergences and their terms, broken in ways that trainers really shipped; each is rejected by a law."""

from grpo_kit import DivergenceTerm, SampledKL
from grpo_kit.masked import select
from laws import broken_distributions, divergences

ANY_WRITER = divergences.off_policy_gradient_is_that_of(divergences.reverse_kl)


def k1(current, other):
    """The log-ratio itself as a loss: the teacher drops out of the gradient (B016)."""
    return current - other


def k3_swapped(current, other):
    """k3 with its arguments swapped (B016: 0.718 in place of 0.3679): its mean over the policy's tokens is no KL."""
    return (current - other).exp() - 1 - (current - other)


def batch_centered(current, other):
    """Distances minus the batch's mean: tokens see each other."""
    return (current - other).square() - (current - other).square().mean()


def k2(current, other):
    """Half the square: another value than the KL's."""
    return (current - other).square() / 2


def k3(current, other):
    """Has the gradient of the forward KL, where k1 has none."""
    return (other - current).exp() - 1 + current - other


class Weighed:
    """A divergence term whose loss is weighed by another importance weight."""

    weight, adaptive, needs_entropy = 1.0, None, False

    def __init__(self, weigh):
        self.weigh, self.inner = weigh, DivergenceTerm(to="other", divergence=SampledKL(estimator="k3"))

    def reads(self, learner):
        return self.inner.reads(learner)

    def freeze(self, experience, returns, learner, memory):
        frozen = self.inner.freeze(experience, returns, learner, memory)
        own = experience.signals[learner].logprobs
        return {**frozen, "behavior": experience.rollouts.behavior.logprobs, "own": own}

    def __call__(self, current, frozen, written, counted):
        return select(self.inner(current, frozen, written, counted) * self.weigh(current.logprobs, frozen), counted)


def detached(current, frozen):
    """The weight without its gradient: the forward KL's gradient."""
    return (current - frozen["behavior"]).detach().exp()


def truncated(current, frozen):
    """The weight bounded, as for a policy gradient."""
    return (current - frozen["behavior"]).exp().clamp(max=1.2)


def from_the_anchor(current, frozen):
    """current / anchor in place of current / behavior: the policy gradient's own ratio."""
    return (current - frozen["own"]).exp()


BROKEN = [
    (divergences.the_teacher_matters, k1),
    (divergences.nothing_at_the_teacher, k1),
    (divergences.never_negative, k1),
    (divergences.expected_gradient_is_that_of(divergences.reverse_kl), k1),
    (divergences.expected_gradient_is_that_of(divergences.reverse_kl), k3),
    (divergences.expected_gradient_is_that_of(divergences.forward_kl), k3_swapped),
    (divergences.tokens_do_not_see_each_other, batch_centered),
    (divergences.expected_gradient_is_that_of(divergences.nothing), k3),
    (divergences.expected_value_is_the_reverse_kl, k2),
    (divergences.expected_value_is_the_reverse_kl, k3_swapped),
    (ANY_WRITER, Weighed(detached)),
    (ANY_WRITER, Weighed(truncated)),
    (ANY_WRITER, Weighed(from_the_anchor)),
    *broken_distributions.BROKEN,
]
