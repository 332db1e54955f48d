"""Files and folders are whole or not there, whatever the disk refuses."""

import resource
from contextlib import contextmanager

import pytest

from grpo_kit.disk import UNFINISHED, append_line, remove_leftovers, whole_folder, write_text


@contextmanager
def no_file_beyond(size):
    """Let the system refuse bytes of a file behind a size, as a full disk does: what fits is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_that_has_no_room_leaves_nothing(tmp_path):
    file = tmp_path / "lines"
    append_line(file, "first")
    for room in range(9):
        with no_file_beyond(6 + room), pytest.raises(OSError, match=r"(File too large|No space left).*lines'$"):
            append_line(file, "the second")
        assert file.read_text() == "first\n"
    append_line(file, "the second")
    assert file.read_text() == "first\nthe second\n"


def test_a_small_file_that_has_no_room_stays_as_it_was(tmp_path):
    file = tmp_path / "file"
    write_text(file, "before")
    with no_file_beyond(3), pytest.raises(OSError, match="File too large"):
        write_text(file, "after that")
    assert file.read_text() == "before"


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_whose_filling_fails_is_as_it_was(tmp_path, there):
    path = tmp_path / "own"
    if there:
        with whole_folder(path) as folder:
            (folder / "a").write_text("first")

    def half():
        with whole_folder(path) as folder:
            (folder / "a").write_text("second")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.exists() == there
    assert [file.name for file in tmp_path.iterdir()] == ["own"] * there
    assert not there or (path / "a").read_text() == "first"


def test_a_folder_takes_the_place_of_the_one_before_with_all_of_it(tmp_path):
    path = tmp_path / "own"
    for names in (("a", "b"), ("b", "c")):
        with whole_folder(path) as folder:
            assert not path.exists() or (path / "below" / "a").exists()
            for name in names:
                (folder / "below" / name).parent.mkdir(exist_ok=True)
                (folder / "below" / name).touch()
    assert sorted(file.name for file in (path / "below").iterdir()) == ["b", "c"]


def test_of_two_writers_of_one_folder_neither_touches_the_other(tmp_path):
    path = tmp_path / "own"

    def slow():
        with whole_folder(path, replace=False) as one:
            (one / "a").write_text("one")
            with whole_folder(path, replace=False) as other:
                (other / "b").write_text("other")
            assert (one / "a").read_text() == "one"

    with pytest.raises(FileExistsError):
        slow()
    assert [file.name for file in path.iterdir()] == ["b"]
    with pytest.raises(FileExistsError), whole_folder(path, replace=False):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["own"]


def test_what_a_killed_writer_left_is_removed(tmp_path):
    for name in (f"{UNFINISHED}own", f"{UNFINISHED}gone-own", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
