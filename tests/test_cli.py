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

ROWS = ["data.rows=64"]
SHORT = [*ROWS, "prompts_per_step=2", "evaluation.questions=8", "evaluation.samples=2", "steps=2", "sampler.samples=4"]
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
    assert lines[0] == "64 prompts to train on, 8 to evaluate on"
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
    result = grpo_kit(command, "grpo", *options([*ROWS, "stpes=3", "sampler.policy=smal", "evaluation.reward=right"]))
    assert result.exit_code == 1
    head, *mistakes = result.output.splitlines()
    assert head == "grpo: 3 mistakes"
    assert [line.split(":")[0].strip() for line in mistakes] == ["stpes", "sampler", "evaluation.reward"]
    assert list(tmp_path.iterdir()) == []


def test_check_reads_recipe_tokenizers_and_data():
    result = grpo_kit("check", "recipes/codistill.toml", *options([*ROWS, "evaluation.questions=8"]))
    assert result.exit_code == 0
    assert result.output == "64 prompts to train on, 8 to evaluate on\nrecipes/codistill.toml: no mistakes\n"


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
    result = grpo_kit("check", "codistill", *options([*ROWS, "policies.large.model=" + str(tmp_path / "other")]))
    assert result.exit_code == 1
    assert "  policies.large: its tokenizer differs from that of 'small' in " in result.output
    assert "Policies that share rollouts need the same tokenizer." in result.output


def test_rows_that_cannot_be_used_are_counted_named_and_skipped(tmp_path):
    rows = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "+".join("1" * 40) + "=", "answer": "40"}]
    rows += [{"prompt": "2+2=", "answer": None}, {"prompt": "", "answer": "1"}, {"prompt": "2+3=", "answer": "5"}]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    result = grpo_kit("check", "grpo", *options([*from_file(file), "max_prompt_tokens=20"]))
    assert result.exit_code == 0, result.output
    skipped = [
        "3 of 5 rows cannot be used (1 too long, 1 no value, 1 no prompt) and are skipped:",
        "  line 2: 80 tokens, over max_prompt_tokens = 20",
        "  line 3: column 'answer' has no value (or extract does not match it)",
        "  line 4: no prompt (a text that is not empty, or chat messages with chat = true)",
    ]
    assert result.output.splitlines() == [
        "2 prompts to train on, 2 to evaluate on",
        f"data: {skipped[0]}",
        *skipped[1:],
        f"evaluation.data: {skipped[0]}",
        *skipped[1:],
        "evaluation.data: 2 of 2 prompts are among those trained on",
        "grpo: no mistakes",
    ]


def test_a_column_that_is_missing_is_named_with_those_there_are(tmp_path):
    file = write_rows(tmp_path / "rows.jsonl", [{"prompt": "1+1=", "gold": "2"}])
    result = grpo_kit("check", "grpo", *options(from_file(file)))
    assert result.exit_code == 1
    for place, split in (("data", "train"), ("evaluation.data", "eval")):
        assert (
            f"  {place}: data file '{file}' (split {split}) has no column 'answer', which rewards.correctness reads. "
            'It has: prompt, gold. Map it, for example columns = { answer = "gold" }.'
        ) in result.output.splitlines()


REWARDS = """
def brevity(completions, **columns):
    return [-float(len(text)) for text in completions]


def breaks(completions, **columns):
    raise RuntimeError("no more credit")
"""


def with_reward(function):
    return [f"rewards.own={{kind='python', function='{function}'}}", "learners.small.rewards={own=1.0}"]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_number_that_is_not_finite_stops_the_run_and_is_named(tmp_path):
    settings = [*SHORT, "steps=3", "learners.small.optimizer.lr=1e30", "learners.small.optimizer.warmup_steps=0"]
    result = grpo_kit("run", "grpo", *options(settings), "--out", tmp_path / "out")
    assert result.exit_code == 1, result.output
    (stopped,) = [line for line in result.output.splitlines() if line.startswith("stopped: ")]
    assert "step 2" in stopped
    assert "policy 'small'" in stopped or "learner 'small', term 'policy'" in stopped
    assert "row " in stopped
    ending = f"run folder: {tmp_path / 'out'} (ended after step 1 of 3; --resume goes on)"
    assert result.output.splitlines()[-1] == ending


@pytest.mark.slow
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
    ending = f"run folder: {out} (ended after step {lines[-1]['step']} of 100000; --resume goes on)"
    assert ending in output.splitlines()
    assert (out / "curves.png").stat().st_size > 0
    AutoModelForCausalLM.from_pretrained(out / "policies" / "small")


def test_the_version():
    from grpo_kit import __version__

    assert grpo_kit("--version").output == f"grpo-kit {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rn", "grpo"], "No such command 'rn'. Did you mean 'run'? See: grpo-kit --help"),
        (["run"], "Invalid value for RECIPE: give a recipe, or --resume with a run folder, and not both."),
        (["check", "grpo", "--stps"], "No such option: --stps"),
        (["samples", "runs/x", "--limit", "0"], "Invalid value for '--limit': "),
    ],
)
def test_a_mistake_in_the_command_itself_is_one_plain_line(arguments, said):
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, prog_name="grpo-kit")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith(" --help\n")


def test_the_installed_command_says_the_same():
    done = subprocess.run([*COMMAND, "rn", "grpo"], capture_output=True, text=True)
    said = "No such command 'rn'. Did you mean 'run'? See: grpo-kit --help\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_bug_is_not_taken_for_a_user_s_mistake(monkeypatch):
    def broken(role):
        raise RuntimeError("a bug")

    monkeypatch.setattr("grpo_kit.commands.catalog.catalog", broken)
    assert isinstance(grpo_kit("list").exception, RuntimeError)


@pytest.mark.slow
def test_explain_lists_the_mistakes_that_check_lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = options([*ROWS, "stpes=3", "sampler.policy=smal", "evaluation.reward=right"])
    explained, checked = grpo_kit("explain", "grpo", *settings), grpo_kit("check", "grpo", *settings)
    assert explained.exit_code == checked.exit_code == 1
    assert explained.output == checked.output
    assert explained.output.startswith("grpo: 3 mistakes\n")


def test_explain_says_the_same_every_time_and_what_is_asked_of_it():
    small = options(SHORT)
    first, again = (grpo_kit("explain", "grpo", *small) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.output == again.output
    assert "\x1b" not in first.output
    titles = [line for line in first.output.splitlines() if line and not line.startswith(" ")]
    assert titles == [
        "grpo",
        "Rows of a step",
        "Learner small",
        "Symbols",
        "Options",
        "Signals",
        "Model calls of a step",
        "Model calls of an evaluation",
        "Memory",
    ]
    lines = [line.rstrip() for line in first.output.splitlines()]
    assert "  2 prompts with 4 completions each: 8 rows, written by 'small'." in lines
    assert any(line.startswith("  small   133,824     523 KiB  523 KiB    1.02 MiB") for line in lines)
    assert any(
        line.split("  ")[1:2] == ["learners.small.terms.policy.advantage"] and 'scale = "group"' in line
        for line in lines
    )
    markdown = grpo_kit("explain", "grpo", "--markdown", *small).output
    assert r"- $A_i = \frac{r_i - \operatorname{mean}(r_g)}{\operatorname{std}(" in markdown
    assert "| small | 133,824 | 523 KiB | 523 KiB | 1.02 MiB |" in markdown
    assert [line[3:] for line in markdown.splitlines() if line.startswith("## ")] == titles[1:]


def test_eval_hands_every_option_on(monkeypatch):
    from grpo_kit.evaluation import command

    given = {}

    def spy(model, **options):
        given.update(options, model=model)
        return 3

    monkeypatch.setattr(command, "eval_command", spy)
    words = "eval tiny:small --data a.jsonl --data gsm8k --column prompt=q --few-shot f.jsonl --shots 3 --policy p "
    words += "--samples 4 --temperature 0.5 --top-p 0.9 "
    words += "--max-new-tokens 7 --questions 5 --seed 2 --template {prompt} --system s --no-chat --stop x --strict "
    words += "--rows-per-batch 8 --device cpu --dtype bfloat16 --out o.json --completions c.jsonl"
    assert grpo_kit(*words.split()).exit_code == 3
    assert given.pop("console") is not None
    assert given == {
        "model": "tiny:small",
        "data": ["a.jsonl", "gsm8k"],
        "columns": ["prompt=q"],
        "few_shot": Path("f.jsonl"),
        "shots": 3,
        "policy": "p",
        "samples": 4,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_new_tokens": 7,
        "questions": 5,
        "seed": 2,
        "template": "{prompt}",
        "system": "s",
        "chat": False,
        "stop": ["x"],
        "strict": True,
        "rows_per_batch": 8,
        "device": "cpu",
        "dtype": "bfloat16",
        "out": Path("o.json"),
        "completions": Path("c.jsonl"),
    }


def test_eval_s_mistakes_are_plain_too(monkeypatch):
    from grpo_kit.evaluation import command

    def refuse(model, **options):
        raise ValueError("model 'x' is no folder here")

    monkeypatch.setattr(command, "eval_command", refuse)
    result = grpo_kit("eval", "x", "--data", "gsm8k")
    assert (result.exit_code, result.output) == (1, "model 'x' is no folder here\n")
