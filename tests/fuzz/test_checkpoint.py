"""A checkpoint with a file that is damaged: skipped by name and refused; a state of any shape comes back."""

import json
import shutil

import pytest
import torch
from hypothesis import example, given, strategies as st

from fuzz.fuzzing import FUZZ, JSON, damaged, with_a_value_replaced
from grpo_kit.checkpoints import CheckpointError, newest, save
from grpo_kit.checkpoints.store import MANIFEST
from grpo_kit.checkpoints.tree import pack, unpack

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)
SHARED = torch.arange(6.0)


def tensor(dtype, shape, form):
    """A tensor that owns its memory, or a view of one in an order of its own."""
    whole = torch.arange(1 + 2 * int(torch.tensor(shape).prod()))[1::2].reshape(shape).to(dtype)
    return {
        "plain": whole,
        "view": whole[..., None][..., 0],
        "turned": whole.mT.contiguous().mT if len(shape) == 2 else whole,
    }[form]


TENSORS = st.builds(
    tensor,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from(["plain", "view", "turned"]),
) | st.sampled_from([SHARED, SHARED.view(2, 3), SHARED[2:]])
TEXTS = st.text(st.characters(), max_size=4) | st.sampled_from(["__metadata__", "a.b", "a", "b", "0", "value"])
STATES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | TENSORS,
    lambda own: (
        st.lists(own, max_size=3)
        | st.tuples(own, own)
        | st.dictionaries(TEXTS | st.integers() | st.booleans(), own, max_size=4)
    ),
    max_leaves=10,
)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        pairs = zip(one, other, strict=len(one) == len(other))
        return len(one) == len(other) and all(map(same, one, other)) and all(same(one[a], other[b]) for a, b in pairs)
    return one == other or (one != one and other != other)


@FUZZ
@given(STATES)
@example({"a": SHARED, "b": SHARED})
@example({"__metadata__": SHARED})
@example({"\ud800": SHARED, "\\ud800": SHARED[1:]})
@example({"": {"": SHARED}, "value": SHARED[1:]})
def test_a_state_of_any_shape_comes_back(tmp_path, state):
    assert same(save(tmp_path, 1, {"loop": state}).read(), {"loop": state})


@pytest.mark.parametrize("value", [torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.complex128)])
def test_tensors_that_no_file_holds_are_refused_with_their_place(value):
    with pytest.raises(TypeError, match=r"^a\.0: a tensor .* cannot be in a checkpoint"):
        pack({"a": [value]})


@FUZZ
@given(JSON | st.dictionaries(st.sampled_from(["dict", "tuple", "float", "tensor"]), JSON, min_size=1, max_size=1))
@example({"dict": [[[1], 2]]})
@example({"dict": [[{"dict": []}, 2]]})
def test_any_json_unpacks_or_is_refused(plain):
    try:
        found = unpack(plain, {})
    except ValueError as error:
        assert "is nothing that a checkpoint holds" in str(error)  # noqa: PT017
    else:
        assert same(unpack(*pack(found)), found)


STATE = {
    "loop": {"step": 2, "generator": torch.arange(9, dtype=torch.uint8), "rate": 0.1, "seen": {3: (1, None)}},
    "optimizer-small": {"lr": 0.5},
    "policy-small": {"a": torch.arange(6.0).view(2, 3)},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return save(tmp_path_factory.mktemp("whole"), 2, STATE)


def check(whole, path, name, content):
    """Whether a copy in which a file has other content is still read; then it is all the same."""
    shutil.rmtree(path, ignore_errors=True)
    save(path, 1, {"loop": 0})
    shutil.copytree(whole.path, path / "step-2")
    (path / "step-2" / name).write_bytes(content)
    found, faults = newest(path)
    assert found is not None
    if found.step == 2:
        assert faults == []
        assert same(found.read(), STATE)
        return True
    assert found.step == 1
    assert len(faults) == 1
    assert str(path / "step-2") in faults[0]
    with pytest.raises(CheckpointError, match="is damaged: "):
        type(whole)(path / "step-2", 2).read()
    return False


def files(whole):
    return st.sampled_from(sorted(file.name for file in whole.path.iterdir()))


@FUZZ
@given(st.data())
def test_any_file_with_its_bytes_damaged(whole, tmp_path, data):
    name = data.draw(files(whole))
    before = (whole.path / name).read_bytes()
    content = data.draw(damaged(before))
    taken = check(whole, tmp_path, name, content)
    if name != MANIFEST and content != before:
        assert not taken


@FUZZ
@given(st.data())
def test_any_manifest_with_its_json_replaced(whole, tmp_path, data):
    before = json.loads((whole.path / MANIFEST).read_text())
    value = data.draw(JSON | with_a_value_replaced(before))
    check(whole, tmp_path, MANIFEST, json.dumps(value).encode())


MANIFESTS = [
    b"[" * 50_000,
    b'{"format": 1, "step": 2, "files": [1]}',
    b'{"format": 1, "step": 2, "files": {"loop.json": 3}}',
]


@pytest.mark.parametrize("content", MANIFESTS)
def test_manifests_that_are_none(whole, tmp_path, content):
    assert not check(whole, tmp_path, MANIFEST, content)


@pytest.mark.parametrize("name", ["loop.json", "policy-small.safetensors", "optimizer-small.json"])
def test_a_manifest_that_leaves_a_file_out_is_damaged(whole, tmp_path, name):
    said = json.loads((whole.path / MANIFEST).read_text())
    del said["files"][name]
    assert not check(whole, tmp_path, MANIFEST, json.dumps(said).encode())
