"""A buffer that was broken off goes on to the same buffer; what is damaged is found, named and written again."""

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny
from buffers.buffering import PROMPTS, SAMPLER, begun, files, filled, policies
from grpo_kit import Policy, PromptSet, Scores
from grpo_kit.buffers import Buffer, fill
from grpo_kit.buffers.shards import DamagedShardError
from grpo_kit.detail import Detail
from grpo_kit.joining import concatenate

NOTHING = {"large": Detail()}


def test_a_shard_depends_on_its_number_alone_not_on_the_ones_before(tmp_path):
    whole = filled(tmp_path / "a")
    assert len(files(whole)) == 6
    seen = []
    broken = begun(tmp_path / "b")
    for _ in range(3):
        found = fill(
            broken, SAMPLER, PROMPTS, policies(), NOTHING, progress=lambda f: seen.append(f.done) or f.done < len(seen)
        )
        assert not found.damaged
    assert files(broken) == files(whole)
    assert found.done == found.shards == 3
    assert found.rows == 36
    assert fill(whole, SAMPLER, PROMPTS, {}, NOTHING).written == 0  # no policy is called


def test_another_seed_gives_other_rows(tmp_path):
    assert files(filled(tmp_path / "a")) != files(filled(tmp_path / "b", seed=1))


def test_a_second_teacher_comes_later_and_touches_no_rows(tmp_path):
    buffer = filled(tmp_path / "b")
    before = files(buffer)
    buffer.begin(buffer.identity, {"other": {"weights": "x", "temperature": 1.0, "top_k": 0}})
    policies_ = {"other": tiny.policy("other", 2)}
    found = fill(buffer, SAMPLER, PROMPTS, policies_, {"other": Detail()})
    assert (found.written, found.sampled) == (3, 0)
    assert set(before) < set(files(buffer))
    assert buffer.scorers == ("large", "other")
    _, scores = buffer.take(PROMPTS.take([4, 9]), torch.device("cpu"))
    assert set(scores) == {"large", "other"}
    assert not torch.equal(scores["large"].logprobs, scores["other"].logprobs)


@pytest.mark.parametrize("kind", ["rollouts", "scores/large"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "longer"])
def test_a_damaged_shard_is_named_never_read_and_written_again(kind, damage, tmp_path):
    buffer = filled(tmp_path / "b")
    before = files(buffer)
    (path,) = (buffer.path / kind).glob("00001-*")
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    path.write_bytes(
        {"truncate": content[: len(content) // 3], "empty": b"", "longer": content + b"x"}.get(damage, content)
    )
    prompts = PROMPTS.take([0, 6])  # 6 is in the damaged one
    with pytest.raises(DamagedShardError) as caught:
        buffer.take(prompts, torch.device("cpu"))
    assert str(caught.value).startswith(f"{path} is damaged: its bytes hash to ")
    assert "`grpo-kit rollout`" in str(caught.value)
    buffer.take(PROMPTS.take([0, 11]), torch.device("cpu"))  # the others are fine
    assert not buffer.is_whole(12, ["large"])
    found = fill(buffer, SAMPLER, PROMPTS, policies(), NOTHING)
    assert [fault.split(" was damaged")[0] for fault in found.damaged] == [str(path)]
    assert files(buffer) == before
    buffer.take(prompts, torch.device("cpu"))
    assert buffer.is_whole(12, ["large"])


def test_every_byte_of_a_shard_counts(tmp_path):
    buffer = filled(tmp_path / "b")
    (path,) = (buffer.path / "scores/large").glob("00002-*")
    content = path.read_bytes()
    for place in random.Random(0).sample(range(len(content)), 40):
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        with pytest.raises(DamagedShardError):
            buffer.table(2, "large")


def test_scores_of_other_rows_are_no_scores(tmp_path):
    buffer, other = filled(tmp_path / "a"), filled(tmp_path / "b", seed=1)
    buffer.remove(0, "large")
    (theirs,) = (other.path / "scores/large").glob("00000-*")
    (buffer.path / "scores/large" / theirs.name).write_bytes(theirs.read_bytes())
    assert buffer.table(0, "large") is None
    _, scores = buffer.take(PROMPTS.take([1]), torch.device("cpu"))
    assert scores == {}
    assert fill(buffer, SAMPLER, PROMPTS, policies(), NOTHING).written == 1


@pytest.mark.parametrize(
    ("value", "said"), [(torch.nan, "nan"), (-torch.inf, "-inf"), (0.001, "0.001"), (torch.inf, "inf")]
)
def test_what_no_log_probability_can_be_is_not_written(value, said, tmp_path):
    buffer, rows = begun(tmp_path / "b"), tiny.rollouts([2, 3], [0, 0])
    buffer.write_rollouts(0, rows, [0, 0])
    logprobs = -torch.ones(2, 3)
    logprobs[1, 2] = value
    with pytest.raises(ValueError, match=rf"'logprobs' of row 1 is {said}\d*, which no log-probability can be"):
        buffer.write_scores(0, "large", Scores(logprobs=logprobs), rows.mask)
    logprobs[1, 2] = 0.00005  # rounding
    buffer.write_scores(0, "large", Scores(logprobs=logprobs), rows.mask)


def test_leftovers_of_a_killed_writer_are_removed_and_there_is_one_writer(tmp_path):
    buffer = begun(tmp_path / "b")
    leftover = buffer.path / "rollouts" / "00000.unfinished"
    leftover.parent.mkdir()
    leftover.write_text("half")
    with buffer.writing():
        assert not leftover.exists()
        with pytest.raises(ValueError, match="is being filled by another process"):
            fill(buffer, SAMPLER, PROMPTS, policies(), NOTHING)


class Fast(Policy):
    """A policy that scores without computing, so that most of the time is spent writing."""

    def score_all(self, rollouts, *, temperature=1.0, detail=None):
        return Scores(logprobs=-rollouts.tokens.float())


def fast(prompts, policies, generator):
    """Rows of every prompt that are a function of its group."""
    rows = concatenate([tiny.rollouts([3, 5], [group, group], seed=group) for group in prompts.groups])
    return replace(rows, prompts=tuple(ids for ids in prompts.ids for _ in range(2)))


MANY = PromptSet(ids=((2,),) * 40, columns={}, skipped=())


def write(path: Path) -> Buffer:
    buffer = begun(path, prompts=MANY, each=4)
    own = tiny.policy("large")
    teacher = Fast(name="large", model=own.model, tokenizer=own.tokenizer, vocabulary=own.vocabulary)
    fill(buffer, fast, MANY, {"large": teacher}, NOTHING)
    return buffer


def test_a_writer_killed_while_it_began_its_buffer_leaves_one_that_goes_on(tmp_path, monkeypatch):
    def killed(unfinished, _):
        raise KeyboardInterrupt(unfinished)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            begun(tmp_path / "cut")
    assert [file.name for file in (tmp_path / "cut").iterdir()] == ["buffer.json.unfinished"]
    assert files(write(tmp_path / "cut")) == files(write(tmp_path / "whole"))
    assert not list((tmp_path / "cut").rglob("*.unfinished"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked writer")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_writer_killed_at_any_moment_leaves_a_buffer_that_goes_on_to_the_same_content(tmp_path):
    started = time.perf_counter()
    whole = files(write(tmp_path / "whole"))
    duration, moments = time.perf_counter() - started, random.Random(0)
    assert len(whole) == 20
    left = []
    for number in range(20):
        path = tmp_path / str(number)
        if (child := os.fork()) == 0:
            write(path)
            os._exit(0)
        time.sleep(moments.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        buffer = Buffer(path)
        present = files(buffer)
        assert set(present) <= set(whole)
        for shard in range(10):
            buffer.table(shard)  # whole or not there
            buffer.table(shard, "large")
        assert files(write(path)) == whole
        assert not list(path.rglob("*.unfinished"))
        left.append(len(present))
    assert len({count for count in left if 0 < count < 20}) > 5, left  # the moments were spread over the writing
