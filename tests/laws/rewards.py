"""Laws of rewards: a row's value is its own, whatever stands beside it, after it or under its mask."""

import json
from dataclasses import replace

import torch
from hypothesis import strategies as st

import tiny
from grpo_kit import Component, Experience, Rewards, Scores, SignalKey, Signals
from grpo_kit.joining import widen
from grpo_kit.memory import Memory
from laws.data import normal, order, poison
from tolerances import EXACT

TEXTS = [r"so \boxed{12}", r"\boxed{ 0.5 }", "12", "", r"\boxed{7} or \boxed{\frac{1}{2}}", "12 12 12"]
ANSWERS = ["12", r"\frac{1}{2}", "7"]


def entry(answer: str) -> str:
    """A reasoning-gym task with that answer."""
    return json.dumps({"question": "?", "answer": answer, "metadata": {"source_dataset": "chain_sum"}})


def experience(draw) -> Experience:
    """Random rows with texts, gold answers, tasks and the signals of two policies."""
    count = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    texts = draw(st.lists(st.sampled_from(TEXTS), min_size=count, max_size=count))
    answers = draw(st.lists(st.sampled_from(ANSWERS), min_size=count, max_size=count))
    columns = {"answer": tuple(answers), "entry": tuple(map(entry, answers))}
    rows = tiny.rollouts(lengths, [0] * count, texts=texts, columns=columns)
    scores = {SignalKey(name, 0): Scores(logprobs=normal(draw, *rows.mask.shape)) for name in ("small", "large")}
    return Experience(rollouts=rows, signals=Signals(scores), rewards=Rewards({}))


def judged(reward, given: Experience) -> Component:
    """A reward of some rows, as the loop calls it; one with a memory is in its first step."""
    return Memory().call("reward", reward, given.rollouts, given.signals)


def rows_may_be_permuted(reward, draw):
    """Law 2: each row keeps its value and status wherever it stands."""
    given = experience(draw)
    rows = order(draw, len(given.rollouts)).tolist()
    moved = given.take(rows)
    before, after = judged(reward, given), judged(reward, moved)
    torch.testing.assert_close(after.per_row(), before.per_row()[rows], equal_nan=True, **EXACT)
    assert after.statuses == tuple(before.statuses[row] for row in rows)


def rows_do_not_see_each_other(reward, draw):
    """Law 2: a row judged alone has the value it has among others, absent ones included."""
    given = experience(draw)
    together = judged(reward, given).per_row()
    for row in range(len(given.rollouts)):
        alone = judged(reward, given.take([row])).per_row()
        torch.testing.assert_close(alone, together[row : row + 1], equal_nan=True, **EXACT)


def padding_and_what_is_masked_do_not_matter(reward, draw):
    """Laws 2 and 3: more columns, and NaN, inf or 1e4 under the mask, leave the values alone and finite."""
    given = experience(draw)
    wide = given.rollouts.mask.shape[1] + draw(st.integers(0, 3))
    mask, behavior = widen(given.rollouts.mask, wide), given.rollouts.behavior
    rows = replace(
        given.rollouts,
        tokens=widen(given.rollouts.tokens, wide),
        mask=mask,
        behavior=replace(
            behavior, writer=widen(behavior.writer, wide), logprobs=poison(draw, widen(behavior.logprobs, wide), mask)
        ),
    )
    signals = Signals(
        {
            key: Scores(logprobs=poison(draw, widen(scores.logprobs, wide), mask))
            for key, scores in given.signals.scores.items()
        }
    )
    wider = judged(reward, replace(given, rollouts=rows, signals=signals))
    torch.testing.assert_close(wider.per_row(), judged(reward, given).per_row(), equal_nan=True, **EXACT)
