"""The tutorial, followed word for word in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OFFLINE = ["--isolated", "--no-index", "--no-deps", "--no-build-isolation", "--quiet"]


class Reader:
    """Somebody who does what the page says, in one folder."""

    def __init__(self, folder):
        self.folder, self.site, self.output = folder, folder / ".site", ""
        bin_ = str(Path(sys.executable).parent)
        self.environment = {
            **os.environ,
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.site),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
        }

    def follow(self, remark, language, text):
        """Do one block, as its language and the remark before it say."""
        what, _, name = remark.partition(": ")
        if what == "not run":
            return
        if what in ("file", "append", "change", "replace the end"):
            file = self.folder / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(edited(file.read_text() if file.exists() else "", what, text))
        elif language == "text":
            assert_shown(text, self.output)
        elif language == "python":
            self.run([sys.executable, "-c", text])
        else:
            assert language == "", language
            self.output = ""
            for line in text.splitlines():
                self.run(self.command(line), fails=what == "fails")

    def command(self, line):
        """A line of the page; pip installs beside the environment and asks nobody."""
        pip = [sys.executable, "-m", "pip", "install", *OFFLINE, "--target", str(self.site)]
        return [*pip, line.removeprefix("pip install ")] if line.startswith("pip install ") else line

    def run(self, command, *, fails=False):
        done = subprocess.run(
            command,
            shell=isinstance(command, str),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert done.returncode == fails, f"{command}\n{done.stdout}"
        self.output += done.stdout


def edited(before, what, text):
    """A file after the edit that the page describes."""
    if what == "append":
        return before + "\n" + text
    if what == "replace the end":
        assert before.splitlines()[-3] == text.splitlines()[0]
        return "".join(before.splitlines(keepends=True)[:-3]) + text
    if what == "change":
        for line in text.splitlines():
            key = line.partition(" = ")[0]
            before, count = re.subn(rf"^{key} = .*$", line, before, flags=re.MULTILINE)
            assert count == 1, key
        return before
    assert not before, "a new file"
    return text


def assert_shown(shown, output):
    """Each line shown is one of the output, in its order; numbers that a run decides may differ, `...` is anything."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    for line in shown.splitlines():
        if line == "...":
            continue
        pattern = re.sub(r"\d+(\\\.\d+)?", r"[\\d.]+", re.escape(" ".join(line.split()))).replace(r"\.\.\.", ".*")
        position = next((i for i, found in enumerate(lines) if re.fullmatch(pattern, found)), None)
        assert position is not None, f"{line}\nis not in\n{output}"
        lines = lines[position + 1 :]


@pytest.mark.slow
def test_the_tutorial_word_for_word(tmp_path):
    reader, blocks = Reader(tmp_path), BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 25
    for remark, language, text in blocks:
        reader.follow(remark, language, text)
    for name in ("first", "second", "third"):
        assert (tmp_path / "runs" / name / "curves.png").exists()


def test_only_the_installation_is_not_run():
    assert [text.splitlines()[-1] for remark, _, text in BLOCK.findall(PAGE.read_text()) if "not run" in remark] == [
        "pip install --constraint PATH/TO/grpo_kit/constraints.txt PATH/TO/grpo_kit"
    ]
