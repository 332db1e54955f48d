"""The records: taking rows, joining, whose tokens and whose signals."""

from dataclasses import replace

import pytest
import torch

import tiny
from grpo_kit import Behavior, Component, Experience, Rewards, Sampling, Scores, SignalKey, Signals, Writer
from grpo_kit.joining import concatenate, join

WRITERS = tuple(Writer(policy=name, version=0, sampling=Sampling()) for name in ("small", "large"))


def test_take_cuts_to_the_longest_row_taken():
    rows = tiny.rollouts([2, 4, 1], [0, 0, 5])
    taken = rows.take([2, 0])
    assert taken.tokens.shape == (2, 2)
    assert taken.lengths.tolist() == [1, 2]
    assert taken.groups.tolist() == [5, 0]
    assert taken.prompts == (rows.prompts[2], rows.prompts[0])
    assert taken.stop_reasons == ("length", "eos")
    assert torch.equal(taken.behavior.logprobs, rows.behavior.logprobs[[2, 0], :2])


def test_no_rows_can_be_taken():
    assert len(tiny.rollouts([2, 4], [0, 0]).take([])) == 0


def test_written_by_knows_each_tokens_writer():
    rows = tiny.rollouts([3, 2], [0, 0])
    mixed = Behavior(writers=WRITERS, writer=torch.tensor([[1, 0, 0], [1, 1, 0]]), logprobs=rows.behavior.logprobs)
    rows = replace(rows, behavior=mixed)
    assert rows.written_by("large").tolist() == [[True, False, False], [True, True, False]]
    assert rows.written_by("small").tolist() == [[False, True, True], [False, False, False]]
    assert not rows.written_by("nobody").any()
    assert not replace(rows, behavior=None).written_by("small").any()


def test_concatenate_joins_equal_writers_and_renumbers_the_others():
    first = tiny.rollouts([2], [0], writer="small")
    second = tiny.rollouts([4, 1], [1, 1], writer="large")
    both = concatenate([first, second, first])
    assert both.mask.shape == (4, 4)
    assert both.lengths.tolist() == [2, 4, 1, 2]
    assert [writer.policy for writer in both.behavior.writers] == ["small", "large"]
    assert both.written_by("large").sum(1).tolist() == [0, 4, 1, 0]
    assert torch.equal(both.take([1, 2]).tokens, second.tokens)


def with_model_logprobs(rows, value):
    """The rows with one log-probability under the writer's own model, None for unknown."""
    own = None if value is None else torch.full_like(rows.behavior.logprobs, value)
    return replace(rows, behavior=replace(rows.behavior, model_logprobs=own))


def test_the_model_s_own_logprobs_are_taken_and_joined():
    known = with_model_logprobs(tiny.rollouts([2, 1], [0, 0]), -0.5)
    unknown = with_model_logprobs(tiny.rollouts([4], [1]), None)
    data = replace(tiny.rollouts([3], [2]), behavior=None)
    whole = concatenate([known, unknown, data])
    found = whole.behavior.model_logprobs
    assert found.shape == whole.mask.shape
    assert (found[:2][whole.mask[:2]] == -0.5).all()
    assert found[2:][whole.mask[2:]].isnan().all()
    assert torch.equal(whole.take([1]).behavior.model_logprobs, torch.full((1, 1), -0.5))
    assert concatenate([unknown, data]).behavior.model_logprobs is None
    assert unknown.take([0]).behavior.model_logprobs is None


def test_join_is_undone_by_take():
    parts = [
        tiny.experience(tiny.rollouts(lengths, [0] * len(lengths)), {"task": [1.0] * len(lengths)}, [tiny.policy()])
        for lengths in ([2, 1], [5], [3, 3])
    ]
    whole = join(parts)
    assert len(whole.rollouts) == 5
    for rows, part in zip(([0, 1], [2], [3, 4]), parts, strict=True):
        back = whole.take(rows)
        assert torch.equal(back.signals["small"].logprobs, part.signals["small"].logprobs)
        assert torch.equal(back.rollouts.tokens, part.rollouts.tokens)
        assert back.rewards.components["task"].statuses == part.rewards.components["task"].statuses


def test_the_newest_version_of_a_signal_is_taken_and_views_are_apart():
    old, new, hinted = (Scores(logprobs=torch.full((1, 1), value)) for value in (-1.0, -2.0, -3.0))
    signals = Signals({SignalKey("t", 3): new, SignalKey("t", 0): old, SignalKey("t", 9, "privileged"): hinted})
    assert signals["t"] is new
    assert signals.of("t", "privileged") is hinted
    with pytest.raises(ValueError, match=r"no signal of policy 'x'.*`reads`"):
        signals["x"]


def test_rewards_are_weighted_and_missing_where_a_part_is_missing():
    per_token = Component(values=torch.tensor([[0.5, 0.25], [1.0, 0.0], [0.0, 0.0]]), statuses=("ok",) * 3)
    per_row = Component(values=torch.tensor([1.0, torch.nan, 3.0]), statuses=("ok", "timeout", "ok"))
    rewards = Rewards({"a": per_token, "b": per_row})
    assert rewards.total({"a": 2.0}).tolist() == [1.5, 2.0, 0.0]
    total = rewards.total({"a": 2.0, "b": 1.0})
    assert total[[0, 2]].tolist() == [2.5, 3.0]
    assert total[1].isnan()


def test_half_precision_rewards_are_added_in_float32():
    """In bfloat16 1 + 1/256 is 1, and 256 + 1 is 256."""
    per_token = Component(values=torch.ones(1, 257, dtype=torch.bfloat16), statuses=("ok",))
    per_row = Component(values=torch.ones(1, dtype=torch.bfloat16), statuses=("ok",))
    total = Rewards({"a": per_token, "b": per_row}).total({"a": 1.0, "b": 1 / 256})
    assert total.dtype == per_row.per_row().dtype == torch.float32
    assert total.tolist() == [257 + 1 / 256]


def test_an_experience_takes_entropies_and_token_rewards_along():
    rows = tiny.rollouts([3, 1], [0, 0])
    scores = Scores(logprobs=torch.zeros(2, 3), entropy=torch.ones(2, 3))
    rewards = Rewards({"token": Component(values=torch.ones(2, 3), statuses=("ok", "ok"))})
    taken = Experience(rollouts=rows, signals=Signals({SignalKey("p", 0): scores}), rewards=rewards).take([1])
    assert taken.signals["p"].entropy.shape == (1, 1)
    assert taken.rewards.components["token"].values.shape == (1, 1)
