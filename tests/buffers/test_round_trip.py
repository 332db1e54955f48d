"""What goes into a buffer comes out, to the bit; it is read through the memory map."""

import math
from dataclasses import replace

import pyarrow as pa
import pytest
import torch

import tiny
from buffers.buffering import PROMPTS, SAMPLER, begun, filled, policies, written_fresh
from grpo_kit import Mixed, PromptStream, Replay, Share, SignalKey
from grpo_kit.batch import NOBODY
from grpo_kit.detail import Detail
from grpo_kit.joining import concatenate
from grpo_kit.samplers import DataRows


def by_row(rows):
    """Everything of each row but its group, as plain values."""
    behavior = rows.behavior
    return [
        {
            "prompt": rows.prompts[row],
            "tokens": rows.tokens[row][rows.mask[row]].tolist(),
            "logprobs": behavior.logprobs[row][rows.mask[row]].tolist(),
            "model_logprobs": behavior.model_logprobs[row][rows.mask[row]].tolist(),
            "writers": [behavior.writers[w] if w != NOBODY else None for w in behavior.writer[row][rows.mask[row]]],
            "reason": rows.stop_reasons[row],
            "text": rows.texts[row],
            "columns": {name: values[row] for name, values in rows.columns.items()},
        }
        for row in range(len(rows))
    ]


SAMPLERS = [
    SAMPLER,
    replace(SAMPLER, temperature=0.7, top_k=5, min_p=0.01, stop=("b",)),
    replace(SAMPLER, greedy=True),
    Mixed(of=(Share(share=0.5, sampler=SAMPLER), Share(share=0.5, sampler=replace(SAMPLER, policy="large")))),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["plain", "restricted", "greedy", "mixed"])
def test_rows_come_out_as_they_went_in_whatever_the_order_of_the_prompts(sampler, tmp_path):
    filled(tmp_path / "b", sampler=sampler)
    wanted = {number: [] for number in range(len(PROMPTS))}
    for rows in written_fresh(sampler):
        for number, row in zip(rows.groups.tolist(), by_row(rows), strict=True):
            wanted[number].append(row)
    replay = Replay(buffer=str(tmp_path / "b"), of=sampler)
    stream = PromptStream(PROMPTS, seed=3)
    seen = []
    for _ in range(3):  # one epoch
        prompts = stream.take(4)
        rows = replay(prompts, policies(), torch.Generator()).rollouts
        expected = [row for number in prompts.numbers for row in wanted[number]]
        assert by_row(rows) == expected
        counts = [len(wanted[number]) for number in prompts.numbers]
        assert rows.groups.tolist() == [
            group for group, n in zip(prompts.groups, counts, strict=True) for _ in range(n)
        ]
        longest = max(len(row["tokens"]) for row in expected)
        assert rows.mask.shape == (sum(counts), longest)
        assert (rows.tokens[~rows.mask] == 0).all()
        assert rows.temperature == getattr(sampler, "temperature", 1)
        seen += prompts.numbers
    assert sorted(seen) == list(range(12))


@pytest.mark.parametrize("top_k", [0, 4])
def test_signals_are_those_of_scoring_now(top_k, tmp_path):
    filled(tmp_path / "b", top_k=top_k)
    own = policies()
    own["large"].model.requires_grad_(False)
    prompts = PromptStream(PROMPTS, seed=1).take(7)
    found = Replay(buffer=str(tmp_path / "b"), of=SAMPLER)(prompts, own, torch.Generator())
    assert set(found.signals) == {SignalKey("large", 0)}
    scores = found.signals[SignalKey("large", 0)]
    fresh = own["large"].score_all(found.rollouts, detail=Detail(top_k=top_k))
    torch.testing.assert_close(scores.logprobs.double(), fresh.logprobs, atol=1e-6, rtol=0)
    assert (scores.top is None) == (top_k == 0)
    if top_k:
        assert torch.equal(scores.top.ids, fresh.top.ids)
        torch.testing.assert_close(scores.top.logprobs.double(), fresh.top.logprobs, atol=1e-6, rtol=0)


def test_a_policy_that_learns_or_has_moved_is_scored_anew(tmp_path):
    filled(tmp_path / "b")
    replay, prompts = Replay(buffer=str(tmp_path / "b"), of=SAMPLER), PROMPTS.take([0, 7])
    own = policies()
    assert replay(prompts, own, torch.Generator()).signals == {}  # it requires gradients
    own["large"].model.requires_grad_(False)
    assert len(replay(prompts, own, torch.Generator()).signals) == 1
    own["large"].version = 1
    assert replay(prompts, own, torch.Generator()).signals == {}
    del own["large"]
    assert len(replay(prompts, own, torch.Generator()).signals) == 1


def test_rows_of_the_data_alone_have_no_behavior(tmp_path):
    sampler = DataRows(policy="small", column="answer", max_new_tokens=4)
    buffer = begun(tmp_path / "b", sampler=sampler)
    rows = sampler(PROMPTS.take(range(5)), policies(), torch.Generator())
    buffer.write_rollouts(0, rows, rows.groups.tolist())
    found, _ = buffer.take(PROMPTS.take([3, 1]), torch.device("cpu"))
    assert found.behavior is None
    assert found.texts == (rows.texts[3], rows.texts[1])


def test_rows_of_before_there_were_model_logprobs_are_read_and_stay_unknown(tmp_path):
    buffer, generator = begun(tmp_path / "b", each=3), torch.Generator().manual_seed(0)
    old, new = (SAMPLER(PROMPTS.take(range(at, at + 3), first_group=at), policies(), generator) for at in (0, 3))
    old = replace(old, behavior=replace(old.behavior, model_logprobs=None))
    for shard, rows in enumerate((old, new)):
        buffer.write_rollouts(shard, rows, rows.groups.tolist())
    assert "model_logprobs" not in buffer.table(0).column_names
    device = torch.device("cpu")
    assert buffer.take(PROMPTS.take([1, 2]), device)[0].behavior.model_logprobs is None
    both, _ = buffer.take(PROMPTS.take([1, 4]), device)
    assert both.behavior.model_logprobs[:3][both.mask[:3]].isnan().all()
    known = new.behavior.model_logprobs[3:6][new.mask[3:6]]
    assert torch.equal(both.behavior.model_logprobs[3:][both.mask[3:]], known)


def test_unknown_is_no_fault_and_impossible_is_one(tmp_path):
    buffer = begun(tmp_path / "b", each=3)
    rows = SAMPLER(PROMPTS.take(range(3)), policies(), torch.Generator())
    for value in (torch.nan, 0.1, torch.inf):
        own = rows.behavior.model_logprobs.clone()
        own[2, 0] = value
        odd = replace(rows, behavior=replace(rows.behavior, model_logprobs=own))
        if math.isnan(value):
            buffer.write_rollouts(0, odd, rows.groups.tolist())
        else:
            with pytest.raises(ValueError, match=r"'model_logprobs' of row 2 is .*, which no log-probability can be"):
                buffer.write_rollouts(1, odd, rows.groups.tolist())


def test_a_row_without_a_token_is_a_row(tmp_path):
    buffer = begun(tmp_path / "b", each=3)
    rows = tiny.rollouts([0, 4, 0, 2, 1, 0], [0, 0, 1, 1, 2, 2])
    rows = replace(rows, prompts=tuple(PROMPTS.ids[number] for number in (0, 0, 1, 1, 2, 2)))
    buffer.write_rollouts(0, rows, [0, 0, 1, 1, 2, 2])
    found, _ = buffer.take(PROMPTS.take([2, 0]), torch.device("cpu"))
    assert found.lengths.tolist() == [1, 0, 0, 4]
    assert torch.equal(found.tokens[3], rows.tokens[1])


def test_a_buffer_is_read_through_the_memory_map(tmp_path):
    buffer = begun(tmp_path / "b", each=400)
    rows = concatenate([tiny.rollouts([500] * 4, [0] * 4, seed=seed) for seed in range(100)])
    buffer.write_rollouts(0, rows, [row // 40 for row in range(400)])
    size = buffer.bytes
    assert size > 1_500_000
    before = pa.total_allocated_bytes()
    table = buffer.table(0)
    assert table["logprobs"].chunks[0].values.to_numpy().sum() < 0  # the values are there, in no memory of Arrow's
    assert pa.total_allocated_bytes() - before < size / 100
