"""A buffer with a file that is damaged: the rows that were written, or an error that says so; never others."""

import json
import shutil

import pytest
import torch
from hypothesis import given, strategies as st

from buffers.buffering import PROMPTS, filled
from fuzz.fuzzing import JSON, SLOW_FUZZ, check_refusal, damaged, with_a_value_replaced
from grpo_kit.buffers import Buffer
from grpo_kit.buffers.shards import release

SCORER = {"weights": "x", "temperature": 1.0, "top_k": 0}


def everything(buffer):
    """All that is read of a buffer, as plain values; None where it is refused in words."""
    try:
        rows, scores = buffer.take(PROMPTS.take(range(len(PROMPTS))), torch.device("cpu"))
    except ValueError as error:
        check_refusal(error)
        return None
    numbers = (rows.tokens, rows.mask, rows.groups, rows.behavior.logprobs, rows.behavior.writer)
    said = {name: own.logprobs.tolist() for name, own in scores.items()}
    return [one.tolist() for one in numbers], rows.prompts, rows.texts, rows.stop_reasons, rows.behavior.writers, said


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A buffer, and all that is read of it."""
    buffer = filled(tmp_path_factory.mktemp("whole") / "b")
    expected = everything(buffer)
    assert expected is not None
    return buffer, expected


def copied(whole, path):
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(whole[0].path, path)
    release()
    return Buffer(path)


def check(whole, path, name, content):
    """What is read of a copy of the buffer in which a file has other content: all the same, or nothing."""
    buffer = copied(whole, path)
    (path / name).write_bytes(content)
    found = everything(buffer)
    if found is not None:
        assert found == whole[1]
    for line in buffer.mistakes(whole[0].identity, {"large": SCORER}):
        assert line.strip()
    try:
        is_whole = buffer.is_whole(len(PROMPTS), ["large"])
    except ValueError:
        is_whole = False
    assert is_whole <= (found is not None)
    return found


def names(whole, suffix):
    path = whole[0].path
    return st.sampled_from(sorted(str(file.relative_to(path)) for file in path.rglob(f"*{suffix}")))


@SLOW_FUZZ
@given(st.data())
def test_any_file_with_its_bytes_damaged(whole, tmp_path, data):
    name = data.draw(names(whole, ".arrow") | names(whole, ".json"))
    before = (whole[0].path / name).read_bytes()
    content = data.draw(damaged(before))
    found = check(whole, tmp_path / "b", name, content)
    if name.endswith(".arrow") and content != before:
        assert found is None


@SLOW_FUZZ
@given(st.data())
def test_any_description_with_its_json_replaced(whole, tmp_path, data):
    name = data.draw(names(whole, ".json"))
    before = json.loads((whole[0].path / name).read_text())
    value = data.draw(JSON | with_a_value_replaced(before))
    check(whole, tmp_path / "b", name, json.dumps(value).encode())


DESCRIPTIONS = [
    b"[" * 50_000,
    b'{"format": 1, "identity": {"top_k": "2"}}',
    b'{"format": 1, "identity": {"prompts_per_shard": "5"}}',
    b'{"format": 1, "identity": {"prompts_per_shard": 0}}',
]


@pytest.mark.parametrize("name", ["buffer.json", "scores/large/scores.json"])
@pytest.mark.parametrize("content", DESCRIPTIONS)
def test_descriptions_that_are_none(whole, tmp_path, name, content):
    check(whole, tmp_path / "b", name, content)


@SLOW_FUZZ
@given(st.data())
def test_a_shard_under_the_name_of_another_is_not_taken_for_it(whole, tmp_path, data):
    source, target = (data.draw(names(whole, ".arrow")) for _ in range(2))
    buffer = copied(whole, tmp_path / "b")
    content = (buffer.path / source).read_bytes()
    (buffer.path / target).unlink()
    (buffer.path / (target.partition("-")[0] + "-" + source.partition("-")[2])).write_bytes(content)
    found = everything(buffer)
    if found is not None:
        assert found[:-1] == whole[1][:-1]
        assert found[-1] in (whole[1][-1], {})  # scores of other rows are no scores
