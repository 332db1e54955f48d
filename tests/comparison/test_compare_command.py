"""`grpo-kit compare` as a user meets it: results, failures that lose nothing, going on, and mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_kit.cli import app

SETTINGS = [
    "data.rows=64", "evaluation.questions=8", "evaluation.samples=2", "sampler.samples=4", "log_samples=1",
]  # fmt: skip
COMMAND = [str(Path(sys.executable).with_name("grpo-kit"))]
HELD_OUT = ["--questions", "12", "--samples", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}


def options(*settings):
    return [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]


def grpo_kit(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def results(out):
    return {str(file.parent.relative_to(out)): json.loads(file.read_text()) for file in out.rglob("result.json")}


@pytest.mark.slow
def test_two_recipes_side_by_side(tmp_path):
    out = tmp_path / "out"
    short = options("prompts_per_step=2", "steps=2")
    result = grpo_kit("compare", "grpo", "again=grpo", "--seeds", 2, *short, *HELD_OUT, "--out", out)
    assert result.exit_code == 0, result.output
    assert "runs 4/4 again seed 1: small " in result.output
    assert "\nsmall: differences " in result.output
    assert "\nagain  grpo     accuracy     +0.0000 " in result.output
    assert result.output.splitlines()[-1] == f"comparison: {out} (summary.md, summary.json)"
    found = results(out)
    assert sorted(found) == [f"runs/{arm}/seed-{seed}" for arm in ("again", "grpo") for seed in (0, 1)]
    held_out = {name: own["held_out"] for name, own in found.items()}
    assert held_out["runs/grpo/seed-0"] == held_out["runs/again/seed-0"], "the same recipe, data and seed"
    assert held_out["runs/grpo/seed-0"] != held_out["runs/grpo/seed-1"]
    summary = json.loads((out / "summary.json").read_text())
    (row,) = [own for own in summary["metrics"]["small/accuracy"] if own["arm"] == "again"]
    assert row["differences"]["grpo"]["of"]["mean"] == 0
    assert row["differences"]["grpo"]["p"] == 1
    assert summary["costs"]["grpo"]["updates/small"] == 2
    assert summary["notes"] == []
    before = {file: file.stat().st_mtime_ns for file in out.rglob("result.json")}
    again = grpo_kit("compare", "--resume", out)
    assert again.exit_code == 0, again.output
    assert "runs: 4 of 4 runs are there already" not in again.output  # nothing to run is nothing to say
    assert {file: file.stat().st_mtime_ns for file in out.rglob("result.json")} == before


@pytest.mark.slow
def test_a_failed_run_is_a_result_and_is_tried_again(tmp_path):
    """The learning rate of one arm leaves weights that are not finite; the others are summed up all the same."""
    out, plan = tmp_path / "out", tmp_path / "plan.toml"
    plan.write_text(
        f"""
name = "mine"
seeds = [0, 1]
set = {json.dumps([*SETTINGS, "steps=2", "prompts_per_step=2"])}
held_out = {{ questions = 12, samples = 2 }}
[arms.grpo]
recipe = "grpo"
[arms.broken]
recipe = "grpo"
set = ["learners.small.optimizer.lr=1e30", "learners.small.optimizer.warmup_steps=0"]
"""
    )
    result = grpo_kit("compare", "--plan", plan, "--workers", 2, "--out", out)
    assert result.exit_code == 1, result.output
    assert "broken seed 0: FAILED: step 2: policy 'small'" in result.output
    assert "no result: broken seed 1: step 2: policy 'small'" in result.output
    assert f"--resume {out} tries those without a result again" in result.output
    assert sorted(results(out)) == ["runs/grpo/seed-0", "runs/grpo/seed-1"]
    assert "| grpo | " in (out / "summary.md").read_text()
    again = grpo_kit("compare", "--resume", out)
    assert again.exit_code == 1
    assert "runs: 2 of 4 runs are there already" in again.output


@pytest.mark.slow
def test_ctrl_c_and_going_on_gives_the_numbers_of_a_run_that_was_never_stopped(tmp_path):
    settings = options("prompts_per_step=2", "steps=60", "checkpoints.every=5", "evaluation.every=60")
    command = [*COMMAND, "compare", "grpo", "--seeds", "2", "--workers", "2", *settings, *HELD_OUT, "--out"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    subprocess.run([*command, str(whole)], check=True, env=ENVIRONMENT, capture_output=True, timeout=300)
    stopped = subprocess.Popen([*command, str(out)], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    metrics = out / "runs" / "grpo" / "seed-0" / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 8):
        assert stopped.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stopped.send_signal(signal.SIGINT)
    output, _ = stopped.communicate(timeout=120)
    assert stopped.returncode == 130, output
    assert f"stopped; what was done is kept: --resume {out} goes on" in output
    assert not list(out.rglob("failure.json"))
    assert not (out / "runs" / "grpo" / "seed-0" / "result.json").exists()
    lines = metrics.read_text().count("\n")
    assert lines < 60
    subprocess.run(
        [*COMMAND, "compare", "--resume", str(out), "--workers", "2"],
        check=True, env=ENVIRONMENT, capture_output=True, timeout=300,
    )  # fmt: skip
    assert {name: own["held_out"] for name, own in results(out).items()} == {
        name: own["held_out"] for name, own in results(whole).items()
    }
    assert "goes on after step" in (out / "runs" / "grpo" / "seed-0" / "log.txt").read_text()


@pytest.mark.slow
def test_workers_end_with_the_command_that_began_them(tmp_path):
    settings = options("prompts_per_step=2", "steps=5000", "evaluation.every=5000")
    out = tmp_path / "out"
    command = [*COMMAND, "compare", "grpo", "--seeds", "1", *settings, *HELD_OUT, "--out", str(out)]
    killed = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    metrics = out / "runs" / "grpo" / "seed-0" / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    while "run folder: " not in (out / "runs" / "grpo" / "seed-0" / "log.txt").read_text():
        assert time.monotonic() < deadline, "the worker goes on alone"
        time.sleep(0.2)


@pytest.mark.slow
def test_a_buffer_a_grid_and_a_control(tmp_path):
    """A replay recipe fills a buffer of its own, which is a part of its cost; a control takes no step."""
    out, plan = tmp_path / "out", tmp_path / "plan.toml"
    plan.write_text(
        """
name = "mine"
seeds = [3, 4]
set = ["data.rows=32", "evaluation.questions=8", "evaluation.samples=2", "steps=3", "prompts_per_step=2"]
held_out = { questions = 12, samples = 2 }
tuning = { seeds = [1], metric = "small/accuracy" }
[arms.opd]
recipe = "opd"
grid = { "learners.small.optimizer.lr" = [1e-4, 1e-3] }
[arms.semi_opd]
recipe = "semi_opd"
set = ["sampler.prompts=8"]
[arms.base]
recipe = "grpo"
train = false
grid = { "held_out.temperature" = [1.0, 0.01] }
"""
    )
    result = grpo_kit("compare", "--plan", plan, "--workers", 2, "--out", out)
    assert result.exit_code == 0, result.output
    chosen = json.loads((out / "chosen.json").read_text())
    assert set(chosen) == {"opd", "base"}
    assert chosen["base"]["point"] == {"held_out.temperature": 0.01}, "the tiny models are far better greedily"
    job = json.loads((out / "runs" / "opd" / "seed-3" / "job.json").read_text())
    rate = chosen["opd"]["point"]["learners.small.optimizer.lr"]
    assert f"learners.small.optimizer.lr={rate}" in job["settings"]
    buffers = [out / "runs" / "semi_opd" / f"seed-{seed}" / "buffer" for seed in (3, 4)]
    assert all((buffer / "buffer.json").exists() for buffer in buffers)
    identities = [json.loads((buffer / "buffer.json").read_text()) for buffer in buffers]
    assert identities[0] != identities[1], "another seed has other rollouts"
    costs = json.loads((out / "summary.json").read_text())["costs"]
    assert costs["semi_opd"]["seconds/fill"] > 0
    assert costs["semi_opd"]["flops/small/sample"] > 0
    assert costs["base"]["seconds/total"] == 0
    assert not (out / "runs" / "base" / "seed-3" / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "give recipes, or --plan, or --resume, and one of them"),
        (["grpo", "--resume", "x"], 2, "give recipes, or --plan, or --resume, and one of them"),
        (
            ["--plan", "x.toml", "--seeds", "3", "--no-match"],
            1,
            "--seeds, --no-match: a plan has its own. Remove them.",
        ),
        (["--resume", "x", "--questions", "3"], 1, "--questions: a comparison that goes on keeps its own. Remove it."),
        (["--resume", "x", "--out", "y"], 1, "--out: a comparison that goes on stays in its folder. Remove it."),
        (["--resume", "/"], 1, "--resume /: no comparison, since it has no plan.toml. Give its folder."),
        (["codistil"], 1, "arms.codistil: no such file. Did you mean 'codistill'?"),
        (["--plan", "nowhere.toml"], 1, "nowhere.toml: 1 mistake\n  cannot be read: No such file or directory."),
        (["grpo", "--out", "/"], 1, "/ exists already; nothing was written. Give a new --out, or --resume /."),
        (["grpo", "--seeds", "0"], 2, "Invalid value for '--seeds'"),
    ],
)
def test_mistakes(arguments, code, said):
    result = grpo_kit("compare", *arguments)
    assert result.exit_code == code, result.output
    assert said in result.output


def test_without_the_libraries_of_statistics_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("grpo_kit.compare.statistics.find_spec", lambda name: None)
    result = grpo_kit("compare", "grpo", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert result.output == "compare needs scipy and statsmodels: pip install 'grpo-kit[evidence]'\n"
    assert not (tmp_path / "out").exists()


def test_a_plan_that_was_damaged_is_a_mistake_in_words(tmp_path):
    (tmp_path / "plan.toml").write_text('name = "x"\nseeds = [0]\n[arms.a]\nrecipe = "grpo"\nagainst = "b"\n')
    (tmp_path / "ready.json").write_text("{}")
    result = grpo_kit("compare", "--resume", tmp_path)
    assert result.exit_code == 1, result.output
    assert "arms.a.against: b, which is no other arm. Known: none." in result.output


def test_one_process_at_a_time(tmp_path):
    from filelock import FileLock

    (tmp_path / "plan.toml").touch()
    with FileLock(tmp_path / "lock"):
        held = subprocess.run(
            [*COMMAND, "compare", "--resume", str(tmp_path)], capture_output=True, text=True, env=ENVIRONMENT
        )
    assert held.returncode == 1
    assert held.stderr == f"{tmp_path}: another process is at work in it. Wait for it, or end it.\n"
