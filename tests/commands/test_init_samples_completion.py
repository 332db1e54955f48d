"""`init`, `samples` and shell completion, none of which loads torch, and neither does `report`."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from grpo_kit.cli import app
from grpo_kit.commands import complete
from grpo_kit.config import read_recipe
from grpo_kit.roles import ROLES
from grpo_kit.shipped import about, shipped_recipes


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def grpo_kit(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_a_shipped_recipe_is_copied_to_be_edited(here):
    result = grpo_kit("init", "codistill")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "codistill.toml is a copy of the recipe codistill. Edit it, then:",
        "grpo-kit check codistill.toml",
        "grpo-kit run codistill.toml",
    ]
    assert (here / "codistill.toml").read_text() == shipped_recipes()["codistill"].read_text()


def test_a_copy_has_its_own_name_and_its_comments(here):
    assert "mine.toml is a copy of the recipe grpo." in grpo_kit("init", "mine").output
    copied, shipped = (here / "mine.toml").read_text(), shipped_recipes()["grpo"].read_text()
    assert copied == shipped.replace('name = "grpo"', 'name = "mine"')
    assert read_recipe("mine.toml").name == "mine"
    assert "other.toml is a copy of the recipe mine.toml." in grpo_kit("init", "other", "--from", "mine.toml").output
    assert read_recipe("other.toml").name == "other"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["taken"], "taken.toml exists already; nothing was written. Give another name.\n"),
        (["new", "--from", "gpro"], "--from gpro: there is no such recipe file. Shipped: cispo, codistill, "),
        (["a b"], "'a b' cannot name a recipe. Use the letters a to z, digits, '.', '_' and '-'.\n"),
        (["no/where"], "no/where.toml cannot be written: No such file or directory. Give another name.\n"),
    ],
)
def test_what_cannot_be_copied_leaves_nothing(here, arguments, said):
    (here / "taken.toml").write_text("mine")
    result = grpo_kit("init", *arguments)
    assert result.exit_code == 1
    assert result.output.startswith(said)
    assert [path.name for path in here.iterdir()] == ["taken.toml"]
    assert (here / "taken.toml").read_text() == "mine"


def sample(step, group, completion, correctness, status="ok", **more):
    return {
        "step": step,
        "group": group,
        "kept": True,
        "prompt": f"prompt {group}",
        "completion": completion,
        "stop_reason": "eos",
        "columns": {"prompt": "x", "answer": "8"},
        "rewards": {"correctness": correctness, "kd": 0.25},
        "statuses": {"correctness": status, "kd": "ok"},
        **more,
    }


@pytest.fixture
def run(here):
    folder = here / "runs" / "grpo-1"
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text("")
    rows = [sample(1, 0, "first", 1.0), sample(2, 5, "so \\boxed{8}", 1.0), sample(2, 5, "x" * 300, 0.0)]
    rows.append(sample(2, 6, "red\x1b[31m\nline", None, "no_answer", kept=False, stop_reason="length"))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "samples.jsonl").write_text(lines + '{"step": 3, "compl')
    return folder


def test_the_last_step_s_completions_with_rewards_and_statuses(run):
    result = grpo_kit("samples", "runs/grpo-1")
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.output.splitlines()]
    assert lines[:3] == [
        "",
        "step 2, group 5: prompt 5   (answer = 8)",
        "kept  end  correctness  kd     completion",
    ]
    assert lines[3] == "yes   eos  1.000        0.250  so \\boxed{8}"
    assert "no    length  - no_answer  0.250  red\\x1b[31m" in lines
    assert "\x1b" not in result.output
    assert sum(line.count("x") for line in lines if set(line.split()[-1:]) and line.endswith("xxx")) == 300
    assert lines[-1] == "left out: line 5 of runs/grpo-1/samples.jsonl, not readable as JSON"
    assert "first" not in result.output


def test_columns_of_the_data_stay_on_one_line(run):
    columns = {"prompt": "x", "answer": "8", "completion": "3+5=8\n\\boxed{8}", "solution": "y" * 61}
    line = json.dumps(sample(4, 7, "z", 1.0) | {"columns": columns}) + "\n"
    (run / "samples.jsonl").write_text(line)
    heading = grpo_kit("samples", run).output.replace("\n", " ").strip()  # the console may fold a long line
    shown = rf"(answer = 8, completion = 3+5=8\n\boxed{{8}}, solution = {'y' * 60}...)"
    assert heading.replace(" ", "").startswith(f"step 4, group 7: prompt 7{shown}".replace(" ", ""))


def test_which_completions_are_shown(run):
    assert "first" in grpo_kit("samples", run, "--step", "1").output
    limited = grpo_kit("samples", run, "--limit", "1").output
    assert "1 of 3 completions; --limit shows more" in limited
    assert "xxx" not in limited
    judged = grpo_kit("samples", run, "--status", "no_answer").output
    assert "group 6" in judged
    assert "group 5" not in judged


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runs/none"], "run folder 'runs/none' does not exist. Runs here: runs/grpo-1.\n"),
        (["runs"], "run folder 'runs' is no run folder (it has no samples.jsonl). Runs here: runs/grpo-1.\n"),
        (["runs/grpo-1", "--step", "7"], "--step 7: no samples of that step. There are 1 to 2.\n"),
        (
            ["runs/grpo-1", "--status", "timeout"],
            "--status timeout: no completion of step 2 has it. Known: no_answer, ok.\n",
        ),
    ],
)
def test_samples_that_are_not_there(run, arguments, said):
    result = grpo_kit("samples", *arguments)
    assert result.exit_code == 1
    assert result.output == said


def test_a_run_without_samples(run):
    (run / "samples.jsonl").unlink()
    assert grpo_kit("samples", run).output == (
        f"the run {run} has no samples.jsonl: no step has ended yet, or the recipe has log_samples = 0.\n"
    )
    (run / "samples.jsonl").write_text("")
    assert grpo_kit("samples", run).output == f"{run / 'samples.jsonl'} has no completions yet.\n"


def test_completion_knows_the_kinds_without_their_modules():
    assert complete.kinds("") == [f"{name}.{kind}" for name in sorted(ROLES) for kind in ROLES[name].built_in]
    assert complete.kinds("advantages.gr") == ["advantages.group_mean"]
    assert complete.roles("su") == ["surrogates"]


def test_completion_of_recipes_settings_and_runs(run):
    (run.parents[1] / "mine.toml").write_text("steps = 3\n[learners.small]\nepochs = 2\n")
    assert complete.recipes("gr") == ["grpo", "grpo_qwen"]
    assert complete.recipes("mi") == ["mine.toml"]
    assert complete.settings("mine.toml", "") == ["steps=", "learners.small.epochs="]
    assert complete.settings("grpo", "sampler.s") == ["sampler.samples="]
    assert complete.settings(None, "") == complete.settings("none", "") == []
    assert complete.run_folders("runs/") == ["runs/grpo-1", "runs/grpo-1/"]


def test_the_shell_gets_the_completions(here):
    environment = {**os.environ, "_GRPO_KIT_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    words = "grpo-kit show advantages.gr"
    script = "from grpo_kit.cli import app; app(prog_name='grpo-kit')"
    shell = subprocess.run(
        [sys.executable, "-c", script], env=environment | {"COMP_WORDS": words}, capture_output=True, text=True
    )
    assert shell.stdout.split() == ["advantages.group_mean"], shell.stderr


LIGHT = """
import sys
from grpo_kit.cli import app
for arguments in (["--help"], ["--version"], ["init", "mine"], ["samples", "runs/grpo-1"], ["report", "runs/grpo-1"]):
    try:
        app(arguments)
    except SystemExit as end:
        assert not end.code, arguments
    assert not {"torch", "transformers", "datasets"} & set(sys.modules), arguments
print("all done")
"""


def test_light_commands_do_not_wait_for_torch(run):
    (run / "recipe.resolved.toml").write_text('name = "grpo"\nseed = 0\n')
    (run / "metrics.jsonl").write_text('{"step": 1, "reward/small/total": 0.5}\n')
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\nall done\n")


def test_every_shipped_recipe_says_what_it_is():
    assert all(len(about(file)) > 20 for file in shipped_recipes().values())
