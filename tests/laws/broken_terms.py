"""Terms broken in ways that trainers shipped, each with the law that finds it."""

import torch

from grpo_kit import Clip, GroupMean, PolicyGradient
from grpo_kit.masked import select
from laws import terms


class Broken:
    """A term with its call replaced, all else as in a policy gradient."""

    def __init__(self, call, inner=PolicyGradient(advantage=GroupMean(), surrogate=Clip())):  # noqa: B008
        self.inner, self.call = inner, call
        self.advantage, self.baseline, self.weight = inner.advantage, inner.baseline, inner.weight
        self.needs_entropy = inner.needs_entropy

    def reads(self, learner):
        return self.inner.reads(learner)

    def freeze(self, *inputs):
        return self.inner.freeze(*inputs)

    def __call__(self, current, frozen, written, counted):
        return self.call(current, frozen, written, counted)


def usual_form(current, frozen, written, counted):
    """exp first, mask the product afterwards (B018)."""
    ratio = (current.logprobs - frozen["anchor"]).exp()
    return -torch.minimum(ratio, ratio.clamp(0.8, 1.2)) * frozen["advantages"] * counted


def whitened_rows(current, frozen, written, counted):
    """Centers the log-probabilities over all rows at hand, absent ones included."""
    logprobs = select(current.logprobs, counted)
    return -select(logprobs - logprobs.sum() / len(counted), counted)


def double_correction(current, frozen, written, counted):
    """Divides by the writer's probabilities and by the anchor's."""
    log_ratio = select(2 * current.logprobs - frozen["anchor"] - frozen["behavior"], written)
    return -select(log_ratio.exp() * select(frozen["advantages"], counted), counted)


def against_the_first_row(current, frozen, written, counted):
    """Subtracts the first row's loss: the order matters."""
    loss = select(-current.logprobs, counted)
    return select(loss - loss[:1], counted)


def geometric(current, frozen, written, counted):
    """A row's mean log-ratio in every token's loss, in a term that claims to be local."""
    log_ratio = select(current.logprobs - frozen["anchor"], counted)
    return -select(log_ratio.mean(1, keepdim=True).exp() * select(frozen["advantages"], counted), counted)


BROKEN = [
    (terms.tokens_are_apart, Broken(geometric)),
    (terms.padding_and_what_is_masked_do_not_matter, Broken(usual_form)),
    (terms.absent_rows_change_nothing, Broken(whitened_rows)),
    (terms.on_policy_it_is_reinforce, Broken(double_correction)),
    (terms.rows_may_be_permuted, Broken(against_the_first_row)),
]
