"""Laws of terms: rows in any order, padding, absent rows, and whatever is under the mask."""

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

import tiny
from grpo_kit import Experience, Rewards, Scores, SignalKey, Signals
from grpo_kit.batch import NOBODY
from grpo_kit.joining import widen
from grpo_kit.learner_batch import changed
from grpo_kit.learner_rewards import LearnerRewards
from grpo_kit.memory import Memory
from laws.data import normal, order, poison
from tolerances import EXACT


@dataclass(frozen=True)
class Case:
    """An experience with rewards, which of its rows count, and the current scores (leaves)."""

    experience: Experience
    rewards: torch.Tensor
    kept: torch.Tensor
    counted: torch.Tensor
    current: Scores

    def applies(self, term) -> torch.Tensor:
        """Which tokens count for a term: those of the rows that it applies to."""
        where, sampled = getattr(term, "where", None), self.experience.rollouts.sampled
        rows = torch.ones_like(sampled) if where is None else where(self.experience)
        return self.counted & (rows & sampled if getattr(term, "needs_writer", False) else rows)[:, None]

    @property
    def returns(self) -> LearnerRewards:
        """The rewards as a learner has them, of one component called task."""
        kept = self.kept & ~self.rewards.isnan()
        return tiny.learner_rewards(self.experience.rollouts, self.rewards, kept, self.counted, {"task": 1.0})


def case(draw) -> Case:
    count = draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    groups = draw(st.lists(st.sampled_from([4, 9]), min_size=count, max_size=count))
    rows = tiny.rollouts(lengths, groups, seed=draw(st.integers(0, 99)))
    data = torch.tensor(draw(st.lists(st.sampled_from([False, False, True]), min_size=count, max_size=count)))
    writer = torch.where(data[:, None], NOBODY, rows.behavior.writer)
    rows = replace(rows, behavior=replace(rows.behavior, writer=writer))
    scores = {SignalKey(name, 0): Scores(logprobs=normal(draw, *rows.mask.shape)) for name in ("small", "other")}
    whole = torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    rewards = torch.where(data, torch.nan, normal(draw, count))
    return Case(
        experience=Experience(
            rollouts=rows, signals=Signals(scores), rewards=Rewards({"task": tiny.component(rewards)})
        ),
        rewards=rewards,
        kept=torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count))),
        counted=rows.mask & whole[:, None],
        current=Scores(logprobs=normal(draw, *rows.mask.shape), entropy=normal(draw, *rows.mask.shape).abs()),
    )


def value_and_gradients(term, given: Case):
    """The loss of each token, and the gradients of a fixed sum of them."""
    leaves = [given.current.logprobs.detach().requires_grad_(), given.current.entropy.detach().requires_grad_()]
    frozen = term.freeze(given.experience, given.returns, "small", Memory())
    mask = given.experience.rollouts.mask
    loss = term(Scores(logprobs=leaves[0], entropy=leaves[1]), frozen, mask, given.applies(term))
    gradients = [None, None]
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
    return [loss, *(torch.zeros_like(loss) if gradient is None else gradient for gradient in gradients)]


def with_rows(given: Case, rows: list[int]) -> Case:
    """The rows of a case in another order; nothing is cut."""
    taken = given.experience.take(rows)
    width = taken.rollouts.mask.shape[1]
    return Case(
        experience=taken,
        rewards=given.rewards[rows],
        kept=given.kept[rows],
        counted=given.counted[rows, :width],
        current=Scores(logprobs=given.current.logprobs[rows, :width], entropy=given.current.entropy[rows, :width]),
    )


def wider(given: Case, columns: int, draw) -> Case:
    """A case with more columns of padding, everything in them and under the masks poisoned."""
    rollouts, width = given.experience.rollouts, given.counted.shape[1] + columns
    mask, counted = widen(rollouts.mask, width), widen(given.counted, width)
    behavior = replace(
        rollouts.behavior,
        writer=widen(rollouts.behavior.writer, width),
        logprobs=poison(draw, widen(rollouts.behavior.logprobs, width), mask),
    )
    scores = {
        key: Scores(logprobs=poison(draw, widen(value.logprobs, width), mask))
        for key, value in given.experience.signals.scores.items()
    }
    return Case(
        experience=Experience(
            rollouts=replace(rollouts, tokens=widen(rollouts.tokens, width), mask=mask, behavior=behavior),
            signals=Signals(scores),
            rewards=given.experience.rewards,
        ),
        rewards=given.rewards,
        kept=given.kept,
        counted=counted,
        current=Scores(
            logprobs=poison(draw, widen(given.current.logprobs, width), counted),
            entropy=poison(draw, widen(given.current.entropy, width), counted),
        ),
    )


def rows_may_be_permuted(term, draw):
    """Law 2: each row keeps its loss and gradient wherever it stands."""
    given = case(draw)
    rows = order(draw, len(given.rewards)).tolist()
    for after, before in zip(
        value_and_gradients(term, with_rows(given, rows)), value_and_gradients(term, given), strict=True
    ):
        torch.testing.assert_close(after, before[rows], **EXACT)


def padding_and_what_is_masked_do_not_matter(term, draw):
    """Laws 2 and 3: more columns, and NaN, inf or 1e4 where nothing counts, change neither value nor gradient."""
    given = case(draw)
    padded = wider(given, draw(st.integers(0, 3)), draw)
    width = given.counted.shape[1]
    for after, before in zip(value_and_gradients(term, padded), value_and_gradients(term, given), strict=True):
        torch.testing.assert_close(after[:, :width], before, **EXACT)
        assert (after[:, width:] == 0).all()
        assert (after[~padded.counted] == 0).all()


def absent_rows_change_nothing(term, draw):
    """Law 2: a row with neither tokens nor a reward leaves the others alone and gets nothing."""
    given = case(draw)
    count = len(given.rewards)
    rows = [*range(count), 0]
    more = with_rows(given, rows)
    empty = torch.arange(len(rows))[:, None] < count
    rollouts = replace(more.experience.rollouts, mask=more.experience.rollouts.mask & empty)
    absent = replace(
        more,
        experience=replace(more.experience, rollouts=rollouts),
        rewards=torch.where(empty[:, 0], more.rewards, torch.nan),
        counted=more.counted & empty,
    )
    for after, before in zip(value_and_gradients(term, absent), value_and_gradients(term, given), strict=True):
        torch.testing.assert_close(after[:count], before, **EXACT)
        assert (after[count] == 0).all()


def on_policy_it_is_reinforce(term, draw):
    """Law 5 for the whole term: with current = anchor = behavior the gradient is -A on each counted token."""
    given = case(draw)
    rollouts = given.experience.rollouts
    same = Scores(logprobs=given.current.logprobs)
    behavior = replace(rollouts.behavior, logprobs=given.current.logprobs)
    on_policy = replace(
        given,
        experience=Experience(
            rollouts=replace(rollouts, behavior=behavior),
            signals=Signals({SignalKey("small", 0): same}),
            rewards=given.experience.rewards,
        ),
    )
    advantages = term.freeze(given.experience, given.returns, "small", Memory())["advantages"]
    gradient = value_and_gradients(term, on_policy)[1]
    torch.testing.assert_close(gradient, -torch.where(given.applies(term), advantages, 0), **EXACT)


def tokens_are_apart(term, draw):
    """Law 1 for `token_local`: the losses and gradients of some tokens, taken as one row, are those they had before."""
    given = case(draw)
    rollouts = given.experience.rollouts
    frozen = term.freeze(given.experience, given.returns, "small", Memory())
    chosen = torch.nonzero(rollouts.mask.flatten()).flatten()
    chosen = chosen[order(draw, len(chosen))][: draw(st.integers(1, len(chosen)))]

    def taken(values):
        return values.flatten(0, 1)[chosen][None]

    def called(current, fixed, written, counted):
        leaves = [current.logprobs.detach().requires_grad_(), current.entropy.detach().requires_grad_()]
        loss = term(Scores(logprobs=leaves[0], entropy=leaves[1]), fixed, written, counted)
        own = torch.autograd.grad(loss.sum(), leaves, allow_unused=True) if loss.requires_grad else (None, None)
        return [loss, *(torch.zeros_like(loss) if gradient is None else gradient for gradient in own)]

    applies = given.applies(term)
    whole = called(given.current, frozen, rollouts.mask, applies)
    (fixed,) = changed({"": frozen}, taken).values()
    part = called(given.current.map(taken), fixed, taken(rollouts.mask), taken(applies))
    for alone, together in zip(part, whole, strict=True):
        torch.testing.assert_close(alone, taken(together), **EXACT)
