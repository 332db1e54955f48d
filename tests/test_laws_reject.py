"""Each law rejects a part that is broken in a way that a trainer really shipped."""

import pytest
import torch

from grpo_kit import (
    Clip,
    Component,
    EqualRows,
    EqualTokens,
    GroupMean,
    Learner,
    PolicyGradient,
    SequenceRatio,
    objective,
)
from grpo_kit.masked import select
from grpo_kit.terms import EntropyBonus
from laws import (
    broken_advantages,
    broken_corrections,
    broken_divergences,
    broken_rewards,
    broken_selections,
    broken_surrogates,
    broken_terms,
    broken_weightings,
    signatures,
    splits,
    theorem,
)
from laws.check import breaks

pytestmark = pytest.mark.usefixtures("float64")

ALL = [
    *broken_advantages.BROKEN,
    *broken_selections.BROKEN,
    *broken_weightings.BROKEN,
    *broken_corrections.BROKEN,
    *broken_surrogates.BROKEN,
    *broken_divergences.BROKEN,
    *broken_rewards.BROKEN,
    *broken_terms.BROKEN,
]


@pytest.mark.parametrize(
    ("law", "part"), ALL, ids=[f"{law.__name__}-{getattr(part, '__name__', 'term')}" for law, part in ALL]
)
def test_a_broken_part_is_rejected(law, part):
    assert breaks(law, part)


def test_every_law_of_the_table_rejects_something():
    from laws.table import TABLE

    # Law 1's rows are one law around each part, rejected below; so is law 12's.
    rejecting = {law for law, _ in ALL} | {signatures.shapes_are_stated}
    assert [row.name for row in TABLE if row.number != 1 and row.law not in rejecting] == []


def learner(**changes) -> Learner:
    settings = {
        "rewards": {"task": 1.0},
        "terms": {"policy": PolicyGradient(advantage=GroupMean(), surrogate=Clip(), ratio=SequenceRatio())},
        "weighting": EqualTokens(),
        "optimizer": splits.OPTIMIZER,
    }
    return Learner(**settings | changes)


def weights_of_the_micro_batch(live, batch, rows, *, step):
    """Each micro-batch is averaged by itself and the averages are summed (B008, B014)."""
    live.optimizer.zero_grad(set_to_none=True)
    for micro in live.policy.micro_batches(batch.rollouts, rows):
        part = batch.take(micro)
        current = live.policy.score(part.rollouts)
        weights = live.settings.weighting(part.counted)
        for name, term in live.settings.terms.items():
            (weights * term(current, part.frozen[name], part.rollouts.mask, part.counted)).sum().backward()


def test_averaging_each_micro_batch_is_rejected():
    assert breaks(
        lambda part, draw: splits.micro_batches_change_nothing(part, draw, weights_of_the_micro_batch),
        learner(),
        examples=5,
    )


def test_a_surrogate_whitened_in_the_micro_batch_is_rejected():
    term = PolicyGradient(advantage=GroupMean(), surrogate=broken_surrogates.whitened)
    assert breaks(splits.micro_batches_change_nothing, learner(terms={"policy": term}), examples=5)


def test_weights_of_each_rank_are_rejected():
    assert breaks(
        lambda part, draw: splits.ranks_change_nothing(part, draw, weights_of="own rows"), learner(), examples=20
    )


def test_a_mean_entropy_of_the_micro_batch_is_rejected():
    """The bonus as the mean over the micro-batch, spread over its tokens."""

    def mean_entropy(current, frozen, written, counted):
        mean = select(current.entropy, counted).sum() / counted.sum()
        return select((-mean).expand_as(current.entropy), counted)

    term = broken_terms.Broken(mean_entropy, EntropyBonusLike())
    assert breaks(
        splits.micro_batches_change_nothing,
        learner(rewards={}, terms={"entropy": term}, weighting=EqualRows()),
        examples=5,
    )


class EntropyBonusLike(EntropyBonus):
    """An entropy term with the fields that `Broken` copies."""

    advantage, baseline = None, "selected"


def test_codistill_theorem_rejects_a_kd_reward_that_is_swapped(monkeypatch):
    """KL(large || small)'s sign: the student is pushed away from the teacher."""
    real = theorem.OnPolicyKD.__call__

    def swapped(self, rollouts, signals):
        component = real(self, rollouts, signals)
        return Component(values=-component.values, statuses=component.statuses)

    monkeypatch.setattr(theorem.OnPolicyKD, "__call__", swapped)
    with pytest.raises(AssertionError):
        theorem.codistill_theorem(theorem.Setting(vocabulary=2, longest=2, group=2))


def test_codistill_theorem_rejects_a_kd_reward_credited_token_by_token():
    """Own-token credit drops the KL of what follows (gamma = 0): another gradient."""

    def per_token(setting):
        small, large = (theorem.Tree(setting.vocabulary, setting.longest, seed) for seed in (0, 1))
        rows = small.completions
        of_small, of_large = small.logprobs(rows), large.logprobs(rows).detach()
        probability = of_small.detach().sum(1).exp()[:, None]
        kd = theorem.ALPHA / setting.longest * (of_large - of_small.detach())
        task = theorem.task_rewards(small)[:, None]
        loss = (probability * (task + kd) * of_small).sum()
        return torch.autograd.grad(loss, small.logits)[0]

    setting = theorem.Setting(vocabulary=3, longest=3, group=2)
    scale = setting.group * setting.longest / (setting.group - 1)
    stated = theorem.stated_gradient(setting) * scale
    assert (per_token(setting) - stated).abs().max() > 1e-3


def test_an_unstated_shape_is_rejected():
    def untyped(rewards: torch.Tensor, groups) -> torch.Tensor:
        return rewards

    assert signatures.bare_tensors(untyped) == ["rewards", "groups", "return"]
    with pytest.raises(AssertionError):
        signatures.shapes_are_stated(untyped)


def test_the_real_accumulate_is_what_the_broken_one_replaces():
    assert not breaks(splits.micro_batches_change_nothing, learner(), examples=3)
    assert objective.accumulate is splits.micro_batches_change_nothing.__defaults__[0]
