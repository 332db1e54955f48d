"""Rewards broken in ways that trainers shipped, each with the law that finds it."""

import torch

from grpo_kit import Component
from laws import rewards


def scaled_in_the_batch(rollouts, signals):
    """A component normalized over the batch before it is added: rows see each other."""
    values = torch.tensor([float(len(text)) for text in rollouts.texts])
    return Component(values=values - values.mean(), statuses=("ok",) * len(rollouts))


def by_place(rollouts, signals):
    """Completions come back in another order than the prompts (B074)."""
    return Component(values=torch.arange(len(rollouts)).double(), statuses=("ok",) * len(rollouts))


def product_masked_kd(rollouts, signals):
    """The log-ratio times the mask (B089's kind)."""
    log_ratio = signals["large"].logprobs - signals["small"].logprobs
    return Component(values=(log_ratio * rollouts.mask).sum(1), statuses=("ok",) * len(rollouts))


BROKEN = [
    (rewards.rows_do_not_see_each_other, scaled_in_the_batch),
    (rewards.rows_may_be_permuted, by_place),
    (rewards.padding_and_what_is_masked_do_not_matter, product_masked_kd),
]
