"""Checkpoints on disk: whole or not there, and never taken when they are damaged."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from grpo_kit import checkpoints
from grpo_kit.checkpoints import CheckpointError, newest, save
from grpo_kit.checkpoints.tree import pack, unpack
from grpo_kit.disk import remove_leftovers

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
TREES = st.recursive(
    LEAVES,
    lambda own: st.lists(own) | st.tuples(own, own) | st.dictionaries(st.integers() | st.text(), own),
    max_leaves=12,
)


def same(one, other):
    if isinstance(one, float):
        return one == other or (one != one and other != other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@given(TREES)
def test_whatever_is_packed_comes_back(value):
    plain, tensors = pack(value)
    assert same(unpack(json.loads(json.dumps(plain, allow_nan=False)), tensors), value)


def test_numbers_of_numpy_are_numbers():
    found = unpack(
        *pack({"mean": np.float64(1.5), "few": np.float32(0.1), "count": np.int64(3), "yes": np.bool_(True)})
    )
    assert found == {"mean": 1.5, "few": float(np.float32(0.1)), "count": 3, "yes": True}
    assert [type(value) for value in found.values()] == [float, float, int, bool]


def test_a_state_with_an_object_in_it_is_refused_in_words(tmp_path):
    with pytest.raises(CheckpointError, match=r"step 3 cannot be written to .*: loop\.x: object cannot be in"):
        save(tmp_path, 3, {"loop": {"x": object()}})
    assert not list(tmp_path.iterdir())


def test_objects_are_refused_with_their_place():
    with pytest.raises(TypeError, match=r"^a\.1: PosixPath cannot be in a checkpoint"):
        pack({"a": [1, Path("x")]})


def test_keys_that_read_alike_are_two():
    value = {"a": {1: torch.zeros(1), "1": torch.ones(1)}, "a.1": torch.full((1,), 2.0)}
    found = unpack(*pack(value))
    assert [float(found["a"][1]), float(found["a"]["1"]), float(found["a.1"])] == [0, 1, 2]


@given(TREES)
def test_other_json_is_refused_in_words(value):
    with pytest.raises(ValueError, match="is nothing that a checkpoint holds"):
        unpack({"object": value if not isinstance(value, dict) else 0}, {})


def state():
    generator = torch.Generator().manual_seed(3)
    return {
        "loop": {"step": 7, "generator": generator.get_state(), "rate": 0.1, "seen": {3: (1, None)}},
        "policy-small": {"a": torch.randn(3, 2, generator=generator).to(torch.bfloat16), "b": torch.arange(4)[::2]},
    }


def test_a_state_comes_back_to_the_bit(tmp_path):
    before = state()
    after = save(tmp_path, 7, before).read()
    assert after["loop"]["seen"] == {3: (1, None)}
    assert after["loop"]["rate"] == 0.1
    assert torch.equal(after["loop"]["generator"], before["loop"]["generator"])
    for name, tensor in before["policy-small"].items():
        assert torch.equal(after["policy-small"][name], tensor)
        assert after["policy-small"][name].dtype == tensor.dtype


def test_b108_the_latest_is_so_by_number_and_one_is_always_kept(tmp_path):
    for step in (900, 1000, 5):
        save(tmp_path, step, state())
    assert newest(tmp_path)[0].step == 1000
    assert [path.name for path in checkpoints.prune(tmp_path, last=1, keep=frozenset({5}))] == ["step-900"]
    assert [own.step for own in checkpoints.all_in(tmp_path)] == [1000, 5]
    with pytest.raises(ValueError, match="keep at least one"):
        list(checkpoints.prune(tmp_path, last=-1))


def damage(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


DAMAGES = {
    "a flipped bit in a tensor": lambda path: damage(path / "policy-small.safetensors"),
    "a flipped bit in a number": lambda path: damage(path / "loop.json"),
    "a file that is cut": lambda path: os.truncate(path / "policy-small.safetensors", 20),
    "a file that is gone": lambda path: (path / "loop.safetensors").unlink(),
    "no manifest": lambda path: (path / checkpoints.store.MANIFEST).unlink(),
    "a manifest that is cut": lambda path: os.truncate(path / checkpoints.store.MANIFEST, 30),
    "a manifest of something else": lambda path: (path / checkpoints.store.MANIFEST).write_text("[1]"),
    "another format": lambda path: (path / checkpoints.store.MANIFEST).write_text('{"format": 2}'),
    "another step's": lambda path: path.rename(path.with_name("step-21")),
}


@pytest.mark.parametrize("damaged", DAMAGES)
def test_a_damaged_one_is_named_and_the_one_before_is_taken(tmp_path, damaged):
    save(tmp_path, 10, state())
    DAMAGES[damaged](save(tmp_path, 20, state()).path)
    found, faults = newest(tmp_path)
    assert found is not None
    assert found.step == 10
    (fault,) = faults
    assert "is skipped: " in fault
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoints.all_in(tmp_path)[0].read()


def test_a_full_disk_leaves_the_last_one_and_a_sentence(tmp_path, monkeypatch):
    save(tmp_path, 10, state())

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoints.store, "save_file", full)
    with pytest.raises(CheckpointError, match=r"the checkpoint of step 20 cannot be written .*No space left on device"):
        save(tmp_path, 20, state())
    assert newest(tmp_path)[0].step == 10
    assert [path.name for path in tmp_path.iterdir()] == ["step-10"]


WRITER = """
import sys, torch
from pathlib import Path
from grpo_kit.checkpoints import save
folder, step = Path(sys.argv[1]), 1
while True:
    save(folder, step, {"loop": {"step": step, "x": torch.full((200_000,), float(step))}})
    print(step, flush=True)
    step += 1
"""


@pytest.mark.slow
def test_b106_b107_a_kill_at_any_moment_leaves_a_whole_one(tmp_path):
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
        said = [int(process.stdout.readline()) for _ in range(1 + number % 3)]
        try:
            process.wait(timeout=0.003 * number)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.communicate()[0].split()]
        found, faults = newest(folder)
        assert not faults
        assert found.step >= said[-1]
        read = found.read()["loop"]
        assert read["step"] == found.step
        assert torch.equal(read["x"], torch.full((200_000,), float(found.step)))
        remove_leftovers(folder)
        assert all(path.name.startswith("step-") for path in folder.iterdir())
