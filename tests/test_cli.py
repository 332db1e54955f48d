"""The command line as a user meets it: output, exit codes, and what is or is not left on the disk."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from grpo_kit.cli import app

SHORT = ["prompts_per_step=2", "evaluation.questions=8", "evaluation.samples=2", "steps=2", "sampler.samples=4"]
COMMAND = [str(Path(sys.executable).with_name("grpo-kit"))]


def options(settings):
    return [word for setting in settings for word in ("--set", setting)]


def grpo_kit(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def from_file(path):
    """Settings that give grpo.toml the rows of a file."""
    return [
        "data={kind='dataset', path='" + str(path) + "'}",
        "evaluation.data={kind='dataset', split='eval', path='" + str(path) + "'}",
    ]


def test_run_trains_and_says_where_the_folder_is(tmp_path):
    result = grpo_kit("run", "grpo", *options(SHORT), "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "4096 prompts to train on, 8 to evaluate on"
    assert any(line.startswith("step 1/2  reward small ") and line.endswith(" tokens/s") for line in lines)
    assert any(line.strip() == "grpo: held-out questions, step 0 -> 2" for line in lines)
    assert lines[-1] == f"run folder: {tmp_path / 'out'}"


def test_an_existing_out_is_refused_and_nothing_written(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    result = grpo_kit("run", "grpo", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert result.output == f"--out {tmp_path / 'out'} exists already; nothing was written. Give a new folder.\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("command", ["run", "check"])
def test_all_mistakes_are_listed_and_nothing_is_left_behind(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = grpo_kit(command, "grpo", *options(["stpes=3", "sampler.policy=smal", "evaluation.reward=right"]))
    assert result.exit_code == 1
    head, *mistakes = result.output.splitlines()
    assert head == "grpo: 3 mistakes"
    assert [line.split(":")[0].strip() for line in mistakes] == ["stpes", "sampler", "evaluation.reward"]
    assert list(tmp_path.iterdir()) == []


def test_check_reads_recipe_tokenizers_and_data():
    result = grpo_kit("check", "recipes/codistill.toml", *options(["evaluation.questions=8"]))
    assert result.exit_code == 0
    assert result.output == "4096 prompts to train on, 8 to evaluate on\nrecipes/codistill.toml: no mistakes\n"


def test_check_lists_what_is_wrong_with_models_and_data_together(tmp_path):
    settings = ["policies.small.model=" + str(tmp_path / "none"), *from_file(tmp_path / "none.jsonl")]
    result = grpo_kit("check", "grpo", *options(settings))
    assert result.exit_code == 1
    head, *mistakes = result.output.splitlines()
    assert head == "grpo: 2 mistakes"
    assert mistakes == [
        f"  policies.small.model: model '{tmp_path / 'none'}' is no folder here; give tiny:small, tiny:large, a folder "
        "or a hub name.",
        f"  data: data file '{tmp_path / 'none.jsonl'}' does not exist (looked from {Path.cwd()})",
    ]


def test_tokenizers_that_differ_are_refused(tmp_path):
    import tiny

    tiny.policy().save(tmp_path / "other")
    result = grpo_kit("check", "codistill", *options(["policies.large.model=" + str(tmp_path / "other")]))
    assert result.exit_code == 1
    assert "  policies.large: its tokenizer differs from that of 'small' in " in result.output
    assert "Policies that share rollouts need the same tokenizer." in result.output


def test_rows_that_cannot_be_used_are_counted_named_and_skipped(tmp_path):
    rows = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "+".join("1" * 40) + "=", "answer": "40"}]
    rows += [{"prompt": "2+2=", "answer": None}, {"prompt": "", "answer": "1"}, {"prompt": "2+3=", "answer": "5"}]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    result = grpo_kit("check", "grpo", *options([*from_file(file), "max_prompt_tokens=20"]))
    assert result.exit_code == 0, result.output
    skipped = (
        "row 1: 80 tokens, over max_prompt_tokens = 20; row 2: column 'answer' has no value (or extract does not match "
        "it); row 3: no prompt (a text that is not empty, or chat messages with chat = true)"
    )
    assert result.output.splitlines() == [
        "2 prompts to train on, 2 to evaluate on",
        f"data: 3 rows skipped: {skipped}",
        f"evaluation.data: 3 rows skipped: {skipped}",
        "grpo: no mistakes",
    ]


def test_a_column_that_is_missing_is_named_with_those_there_are(tmp_path):
    file = write_rows(tmp_path / "rows.jsonl", [{"prompt": "1+1=", "gold": "2"}])
    result = grpo_kit("check", "grpo", *options(from_file(file)))
    assert result.exit_code == 1
    assert (
        "  data: the data has no column 'answer' that a reward reads. It has: gold, prompt. Map it in [data] columns, "
        "or set the reward's column."
    ) in result.output.splitlines()


REWARDS = """
def brevity(completions, **columns):
    return [-float(len(text)) for text in completions]


def breaks(completions, **columns):
    raise RuntimeError("no more credit")
"""


def with_reward(function):
    return [f"rewards.own={{kind='python', function='{function}'}}", "learners.small.rewards={own=1.0}"]


def test_a_function_of_the_working_folder_needs_permission(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_rewards_of_cli.py").write_text(REWARDS)
    settings = options(with_reward("my_rewards_of_cli:brevity"))
    refused = grpo_kit("check", "grpo", *settings)
    assert refused.exit_code == 1
    assert refused.output.splitlines()[1] == (
        "  rewards.own.function: 'my_rewards_of_cli:brevity' is code to run; allow it with --allow-code if you trust "
        "this recipe."
    )
    assert "my_rewards_of_cli" not in sys.modules
    assert grpo_kit("check", "grpo", *settings, "--allow-code").exit_code == 0


def test_a_reward_function_that_fails_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_broken_rewards.py").write_text(REWARDS)
    settings = options([*SHORT, *with_reward("my_broken_rewards:breaks")])
    result = grpo_kit("run", "grpo", *settings, "--allow-code", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert (
        "stopped: the reward function my_broken_rewards:breaks failed: RuntimeError: no more credit"
        in result.output.splitlines()
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"metrics.jsonl", "policies", "recipe.toml"}


def test_a_number_that_is_not_finite_stops_the_run_and_is_named(tmp_path):
    settings = [*SHORT, "steps=3", "learners.small.optimizer.lr=1e30", "learners.small.optimizer.warmup_steps=0"]
    result = grpo_kit("run", "grpo", *options(settings), "--out", tmp_path / "out")
    assert result.exit_code == 1, result.output
    (stopped,) = [line for line in result.output.splitlines() if line.startswith("stopped: ")]
    assert "step 2" in stopped
    assert "policy 'small'" in stopped or "learner 'small', term 'policy'" in stopped
    assert "row " in stopped
    assert result.output.splitlines()[-1] == f"run folder: {tmp_path / 'out'} (ended after step 1 of 3)"


def test_ctrl_c_leaves_a_complete_run_folder(tmp_path):
    out = tmp_path / "out"
    settings = options([*SHORT, "steps=100000", "evaluation.every=100000"])
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(
        [*COMMAND, "run", "grpo", *settings, "--out", str(out)], stdout=subprocess.PIPE, text=True, env=environment
    )
    metrics = out / "metrics.jsonl"
    try:
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_text().count("\n") > 2):
            assert run.poll() is None
            assert time.monotonic() < deadline, "the run did not get to its second step"
            time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 130
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(len(lines)))
    assert "eval/small/accuracy" in lines[0]
    assert "learner/small/grad_norm" in lines[-1]
    assert f"run folder: {out} (ended after step {lines[-1]['step']} of 100000)" in output.splitlines()
    assert (out / "curves.png").stat().st_size > 0
    AutoModelForCausalLM.from_pretrained(out / "policies" / "small")
