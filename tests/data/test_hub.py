"""What is on the hub, in a folder or nowhere: read, streamed, or named within seconds."""

import json
import socket
import threading
import time

import datasets
import datasets.config
import huggingface_hub.constants
import pytest

from grpo_kit import DatasetRows, hub
from grpo_kit.data.tables import read_table


@pytest.fixture
def online(monkeypatch):
    """As if nobody had asked for offline mode (the tests do, see conftest)."""
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "https://hub.example")
    monkeypatch.setattr(hub, "_asked", [])
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path):
    """A folder of two files of ten rows each."""
    for part in range(2):
        rows = ({"n": 10 * part + number} for number in range(10))
        (tmp_path / f"train-{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_without_a_network_a_hub_name_fails_within_seconds(online, monkeypatch, tmp_path):
    def fail(*where):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", fail)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waits {seconds} seconds to try again"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        DatasetRows(path="nobody/nothing")()
    assert str(caught.value) == (
        f"data set 'nobody/nothing' is not on this machine: there is no file or folder of that name in {tmp_path}, "
        "nothing in the cache, and the hub cannot be reached (hub.example: Name or service not known). Give a local "
        "file, or connect to the network."
    )
    assert datasets.config.HF_HUB_OFFLINE is False
    assert huggingface_hub.constants.HF_HUB_OFFLINE is False


def test_a_hub_that_does_not_answer_is_not_waited_for(online, monkeypatch):
    done = threading.Event()

    def wait(*where):
        done.wait(60)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", wait)
    monkeypatch.setattr(hub, "PATIENCE", 0.1)
    begin = time.monotonic()
    assert hub.unreachable() == "no answer from hub.example in 0.1 seconds"
    assert time.monotonic() - begin < 10
    done.set()


def test_a_hub_that_answers_and_a_proxy_are_left_to_the_library(online, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert hub.unreachable() is None
    assert hub.unreachable() is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert hub.unreachable() is None


def test_offline_mode_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"the hub cannot be reached \(offline mode is on, by HF_HUB_OFFLINE or "):
        DatasetRows(path="nobody/nothing")()


def test_a_folder_is_read_by_the_library(folder):
    assert read_table(str(folder))["n"] == list(range(20))
    assert read_table(str(folder), split="train[5:8]")["n"] == [5, 6, 7]
    assert read_table(str(folder), rows=3)["n"] == [0, 1, 2]
    table = read_table(str(folder), rows=99)
    assert (len(table), table.places[-1]) == (20, "row 19")


def test_a_stream_reads_no_further_than_its_rows(folder):
    (folder / "train-1.jsonl").write_text("{broken\n")
    assert read_table(str(folder), rows=10, stream=True)["n"] == list(range(10))
    with pytest.raises(ValueError, match=r"^data set '.*' cannot be read: "):
        read_table(str(folder), rows=11, stream=True)
    with pytest.raises(ValueError, match=r"^data set '.*' cannot be read: "):
        read_table(str(folder), rows=10)


def test_a_split_that_is_not_there_is_named(folder):
    with pytest.raises(ValueError, match=r"^data set '.*' cannot be read: Unknown split \"test\"\."):
        read_table(str(folder), split="test")
