"""What users of other trainers met with stored rollouts; the ids are those of reports.md.

B145, a half-written line that the next one is glued to, has no like here: a shard is a file that is never appended to;
see tests/buffers/test_fill.py.
"""

from dataclasses import replace

import pytest
import torch

import tiny
from buffers.buffering import PROMPTS, SAMPLER, begun, filled, policies
from grpo_kit import GroupMean, PromptStream, Refresh, Replay
from grpo_kit.joining import concatenate

ANEW = Refresh(every=100)


def of_versions(path, versions):
    """A buffer whose prompt n has three rows that version `versions[n]` wrote, its last token by the version before."""
    parts = []
    for number, version in enumerate(versions):
        rows = tiny.rollouts([2, 4, 3], [number] * 3, seed=number)
        writer = replace(rows.behavior.writers[0], version=version)
        parts.append(
            replace(rows, prompts=(PROMPTS.ids[number],) * 3, behavior=replace(rows.behavior, writers=(writer,)))
        )
    together = concatenate(parts)
    buffer = begun(path)
    buffer.write_rollouts(0, together, together.groups.tolist())
    return Replay(buffer=str(path), of=SAMPLER, max_age=1, refresh=ANEW)


def test_b144_rows_older_than_the_limit_are_left_out_and_counted(tmp_path):
    replay, own = of_versions(tmp_path / "b", [0, 1, 2]), policies()
    own["small"].version = 2
    found = replay(PROMPTS.take([0, 1, 2], first_group=7), own, torch.Generator())
    assert found.rollouts.groups.tolist() == [8, 8, 8, 9, 9, 9]
    assert {writer.version for writer in found.rollouts.behavior.writers} >= {1, 2}
    assert found.metrics == {"sampler/too_old": pytest.approx(1 / 3)}
    own["small"].version = 9
    with pytest.raises(ValueError, match="every group has a row older than 1 optimizer steps"):
        replay(PROMPTS.take([0, 1, 2]), own, torch.Generator())


def test_b144_one_old_token_makes_the_whole_group_too_old(tmp_path):
    replay, own = of_versions(tmp_path / "b", [1, 2]), policies()
    rows = tiny.rollouts([3, 3], [0, 0])
    old, new = (replace(rows.behavior.writers[0], version=version) for version in (0, 2))
    writer = torch.ones_like(rows.tokens)
    writer[1, 2] = 0
    rows = replace(
        rows, prompts=(PROMPTS.ids[0],) * 2, behavior=replace(rows.behavior, writers=(old, new), writer=writer)
    )
    young = replace(tiny.rollouts([2], [1]), prompts=(PROMPTS.ids[1],))
    young = replace(young, behavior=replace(young.behavior, writers=(new,)))
    buffer = begun(tmp_path / "c")
    buffer.write_rollouts(0, concatenate([rows, young]), [0, 0, 1])
    own["small"].version = 2
    found = replace(replay, buffer=str(tmp_path / "c"))(PROMPTS.take([0, 1]), own, torch.Generator())
    assert found.rollouts.groups.tolist() == [1]


def test_b149_one_epoch_of_replay_visits_every_prompt_long_ones_too(tmp_path):
    filled(tmp_path / "b")
    replay, stream = Replay(buffer=str(tmp_path / "b"), of=SAMPLER), PromptStream(PROMPTS, seed=0)
    for _ in range(2):
        seen = [replay(stream.take(4), policies(), torch.Generator()).rollouts for _ in range(3)]
        answers = [answer for rows in seen for answer in rows.columns["answer"]]
        assert sorted(answers) == sorted("abcdefghijkl" * 3)


def test_b150_rows_that_are_dropped_are_in_no_group_statistic(tmp_path):
    # Of a group of three one row is too old: the whole group goes, rather than leaving a baseline of two, or of three
    # over two.
    rows = tiny.rollouts([2, 4, 3] * 2, [0] * 3 + [1] * 3)
    old, new = (replace(rows.behavior.writers[0], version=version) for version in (0, 2))
    writer = torch.ones_like(rows.tokens)
    writer[1] = 0
    rows = replace(rows, prompts=(PROMPTS.ids[0],) * 3 + (PROMPTS.ids[1],) * 3)
    buffer, own = begun(tmp_path / "b"), policies()
    behavior = replace(rows.behavior, writers=(old, new), writer=writer)
    buffer.write_rollouts(0, replace(rows, behavior=behavior), rows.groups.tolist())
    own["small"].version = 2
    replay = Replay(buffer=str(buffer.path), of=SAMPLER, max_age=1, refresh=ANEW)
    found = replay(PROMPTS.take([0, 1]), own, torch.Generator())
    assert found.rollouts.groups.tolist() == [1, 1, 1]
    assert len(found.rollouts.columns["answer"]) == len(found.rollouts) == 3
    # A row without a token stays a row of its group: it counts in the baseline and has no token to train on.
    buffer = begun(tmp_path / "c")
    rows = replace(tiny.rollouts([2, 0, 3], [0] * 3), prompts=(PROMPTS.ids[0],) * 3)
    buffer.write_rollouts(0, rows, [0, 0, 0])
    again = Replay(buffer=str(tmp_path / "c"), of=SAMPLER)(PROMPTS.take([0]), own, torch.Generator()).rollouts
    assert again.lengths.tolist() == [2, 0, 3]
    assert GroupMean()(torch.tensor([1.0, 0.0, 0.5]), again.groups).tolist() == [0.5, -0.5, 0.0]


def test_b151_a_buffer_of_another_tokenizer_template_or_order_is_refused(tmp_path):
    template, words = (tiny.tokenizer.__wrapped__() for _ in range(2))
    template.chat_template = "{{ messages }}"
    words.add_tokens(["k"])
    changes = {
        "tokenizer.vocabulary": {"tokenizer": words},
        "tokenizer.chat_template": {"tokenizer": template},
        "data.prompts": {"prompts": replace(PROMPTS, ids=PROMPTS.ids[::-1])},
        "data.columns.answer": {"prompts": replace(PROMPTS, columns={"answer": PROMPTS.ids})},
    }
    begun(tmp_path / "b")
    begun(tmp_path / "b", tokenizer=tiny.tokenizer.__wrapped__())
    for name, change in changes.items():
        with pytest.raises(ValueError, match=rf"not this recipe's: {name} is .* there and .* here"):
            begun(tmp_path / "b", **change)


def test_b152_a_group_with_rows_missing_is_never_mixed_with_the_next(tmp_path):
    rows = concatenate([tiny.rollouts([2, 2, 2], [0] * 3), tiny.rollouts([3] * 4, [1] * 4, seed=1)])  # 3 of 4, then 4
    rows = replace(rows, prompts=tuple(PROMPTS.ids[number] for number in (0, 0, 0, 1, 1, 1, 1)))
    buffer = begun(tmp_path / "b")
    buffer.write_rollouts(0, rows, rows.groups.tolist())
    found, _ = buffer.take(PROMPTS.take([1, 0], first_group=5), torch.device("cpu"))
    assert found.groups.tolist() == [5, 5, 5, 5, 6, 6, 6]
    assert found.prompts == (PROMPTS.ids[1],) * 4 + (PROMPTS.ids[0],) * 3
    assert GroupMean()(torch.tensor([1.0, 1, 1, 1, 0, 0, 3]), found.groups).tolist() == [0, 0, 0, 0, -1, -1, 2]
