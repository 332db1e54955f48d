"""`grpo-kit rollout`, and what `run` and `check` do with a buffer."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from grpo_kit.cli import app
from grpo_kit.run import session
from grpo_kit.run.folder import read_metrics
from grpo_kit.run.setup import load_policies, open_recipe

SHORT = ["data.rows=40", "evaluation.questions=4", "evaluation.samples=2", "steps=2", "prompts_per_step=8"]
SHORT += ["sampler.prompts_per_shard=16", "sampler.of.max_new_tokens=12"]


def options(*settings):
    return [word for setting in (*SHORT, *settings) for word in ("--set", setting)]


def grpo_kit(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


@pytest.fixture
def buffer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "buffers" / "semi_opd"


def shards(buffer):
    return sorted(path.name for path in buffer.rglob("*.arrow"))


def test_it_fills_names_what_it_mends_and_is_then_done(buffer):
    found = grpo_kit("rollout", "semi_opd", *options())
    assert found.exit_code == 0, found.output
    *_, last = found.output.splitlines()
    amounts = r"40 rows, [\d,]+ tokens, 0\.\d MiB on disk"
    speed = r"[\d,]+ tokens sampled and scored in [\d.]+ s, [\d,]+ tokens/s"
    assert re.fullmatch(rf"buffer buffers/semi_opd: {amounts}; {speed}", last)
    assert "filling buffer buffers/semi_opd" in found.output
    before = shards(buffer)
    assert len(before) == 6
    *_, last = grpo_kit("rollout", "semi_opd", *options()).output.splitlines()
    assert re.fullmatch(rf"buffer buffers/semi_opd: {amounts}; nothing was missing", last)
    (path,) = (buffer / "rollouts").glob("00001-*")
    path.write_bytes(path.read_bytes()[:-7])
    found = grpo_kit("run", "semi_opd", *options(), "--out", "out")
    assert found.exit_code == 0, found.output
    assert f"{path.relative_to(Path.cwd())} was damaged" in found.output
    assert shards(buffer) == before


def test_run_fills_first_and_trains_without_the_teacher(buffer):
    recipe, inputs = open_recipe("semi_opd", settings=SHORT)
    loaded = []
    for out in ("first", "second"):
        begun = session.start(recipe, inputs, "", out=Path(out), console=Console(quiet=True))
        loaded.append(list(begun.policies))
        assert begun.run() == 0
    assert loaded == [["small"], ["small"]]
    assert len(shards(buffer)) == 6
    first, second = (
        [{key: value for key, value in line.items() if not key.startswith("time/")} for line in read_metrics(Path(out))]
        for out in ("first", "second")
    )
    assert first == second


def test_a_teacher_that_is_not_loaded_still_cuts_the_vocabulary(buffer, monkeypatch):
    recipe, _ = open_recipe("semi_opd", settings=SHORT)
    monkeypatch.setattr("grpo_kit.run.setup.vocabulary_size", lambda spec: 9)
    assert [own.vocabulary for own in load_policies(recipe, idle=["large"]).values()] == [9]


@pytest.mark.parametrize("command", ["check", "run", "rollout"])
def test_another_recipes_buffer_is_refused_before_anything_is_loaded(command, buffer, monkeypatch):
    assert grpo_kit("rollout", "semi_opd", *options()).exit_code == 0
    before = shards(buffer)
    monkeypatch.setattr("grpo_kit.run.setup.load_policy", lambda *given, **named: pytest.fail("loaded"))
    found = grpo_kit(command, "semi_opd", *options("sampler.of.temperature=0.5", "data.rows=41"))
    assert found.exit_code == 1
    head, line = found.output.splitlines()
    assert head == "semi_opd: 1 mistake"
    assert line.startswith("  sampler.buffer: buffer buffers/semi_opd is not this recipe's: data.prompts is sha256:")
    for said in ("prompts is 40 there and 41 here", "sampling.temperature is 1.0 there and 0.5 here"):
        assert said in line
    assert shards(buffer) == before


def test_more_prompts_than_the_data_has_are_refused(buffer):
    found = grpo_kit("check", "semi_opd", *options("sampler.prompts=41"))
    assert found.output == "semi_opd: 1 mistake\n  sampler.prompts: 41, and the data has 40 prompts. Lower it.\n"
    assert grpo_kit("check", "semi_opd", *options("sampler.prompts=24")).output.startswith("24 prompts to train on")


def test_a_recipe_without_a_buffer_is_told_so(buffer):
    found = grpo_kit("rollout", "grpo", "--set", "data.rows=8")
    assert found.exit_code == 1
    assert "grpo: its sampler is 'transformers', which has no buffer" in found.output


@pytest.mark.slow
def test_ctrl_c_keeps_the_finished_shards(buffer):
    settings = options("data.rows=4000", "sampler.prompts_per_shard=40")
    command = [str(Path(sys.executable).with_name("grpo-kit")), "rollout", "semi_opd", *settings]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(shards(buffer)) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "stopping after the work at hand" in err
    done = re.search(r"buffer buffers/semi_opd, (\d+) of 100 shards", out)
    assert len(shards(buffer)) == 2 * int(done[1])
