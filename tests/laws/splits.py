"""Law 1: any split of an optimizer step's rows into micro-batches, or over ranks, gives the same gradient."""

from dataclasses import replace

import torch
from hypothesis import strategies as st

import tiny
from grpo_kit import (
    AdamW,
    Component,
    Experience,
    Learner,
    Rewards,
    Sampling,
    SignalKey,
    Signals,
    Writer,
    learner_batch,
    objective,
)
from grpo_kit.detail import Detail
from grpo_kit.learner import LiveLearner
from grpo_kit.memory import Memory
from laws.data import normal
from laws.enumerated import K
from tolerances import MODEL

OPTIMIZER = AdamW(lr=1e-3, max_grad_norm=1e9)  # a norm no gradient here reaches: nothing is clipped


def experience(draw) -> Experience:
    """Rows of uneven lengths that `small` wrote, scored by `small` as it was and by `other`.

    The last row of each group is a greedy one. The rewards are `task`, one a row, and `price`, one a token.
    """
    count = draw(st.integers(1, 5))
    groups = draw(st.lists(st.sampled_from([4, 9]), min_size=count, max_size=count))
    sampled, groups = count, [*groups, *sorted(set(groups))]
    count = len(groups)
    lengths = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    prompts = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    rows = tiny.rollouts(lengths, groups, seed=draw(st.integers(0, 99)), prompt_lengths=prompts)
    writers = (*rows.behavior.writers, Writer(policy="small", version=0, sampling=Sampling(temperature=0.0)))
    greedy = (torch.arange(count) >= sampled).long()[:, None].expand(rows.mask.shape)
    rows = replace(rows, behavior=replace(rows.behavior, writers=writers, writer=greedy))
    price = torch.where(rows.mask, normal(draw, *rows.mask.shape).abs(), 0)
    rewards = {
        "task": tiny.component(normal(draw, count).abs()),
        "price": Component(values=price, statuses=("ok",) * count),
    }
    scores = {
        SignalKey(name, 0): tiny.policy(name, seed=seed).score_all(rows, detail=Detail(top_k=K, full=True))
        for seed, name in enumerate(("small", "other"))
    }
    return Experience(rollouts=rows, signals=Signals(scores), rewards=Rewards(rewards))


def frozen(learner: Learner, draw) -> learner_batch.LearnerBatch:
    """A batch of the rows that some selection kept, at least one of them."""
    given = experience(draw)
    count = len(given.rollouts)
    kept = torch.tensor([True, *draw(st.lists(st.booleans(), min_size=count - 1, max_size=count - 1))])
    return learner_batch.freeze("small", learner, given, kept, Memory())


def gradient(learner: Learner, own, batch, rows, accumulate=objective.accumulate) -> torch.Tensor:
    live = LiveLearner.start("small", learner, own, loop_steps=1)
    accumulate(live, batch, rows, step=1)
    return tiny.gradient_of(own)


def micro_batches_change_nothing(learner: Learner, draw, accumulate=objective.accumulate):
    """Law 1: row by row, in small lots and at once are one gradient."""
    batch = frozen(learner, draw)
    count = len(batch.rollouts)
    own = tiny.policy("small", seed=2)  # it has moved since the rows were scored
    own.micro_batch_tokens = 10**6
    at_once = gradient(learner, own, batch, range(count), accumulate)
    for budget in (1, draw(st.integers(8, 24))):
        own.micro_batch_tokens = budget
        torch.testing.assert_close(gradient(learner, own, batch, range(count), accumulate), at_once, **MODEL)


def ranks_change_nothing(learner: Learner, draw, weights_of="all rows"):
    """Law 1: the sum over ranks, each with some rows and weights taken from all rows, is the same gradient."""
    batch = frozen(learner, draw)
    count = len(batch.rollouts)
    own = tiny.policy("small", seed=2)
    at_once = gradient(learner, own, batch, range(count))
    ranks = draw(st.lists(st.sampled_from([0, 1]), min_size=count, max_size=count))
    total = torch.zeros_like(at_once)
    for rank in set(ranks):
        rows = [row for row in range(count) if ranks[row] == rank]
        weights = learner.weighting(batch.counted)[rows]
        weighting = (lambda mask, own=weights: own) if weights_of == "all rows" else learner.weighting
        shard = Learner(
            rewards=learner.rewards,
            terms=learner.terms,
            weighting=weighting,
            optimizer=learner.optimizer,
            mask_truncated=learner.mask_truncated,
        )
        total += gradient(shard, own, batch, rows)
    torch.testing.assert_close(total, at_once, **MODEL)
