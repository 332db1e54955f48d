"""`grpo-kit overlap` as a user meets it: output, files, mistakes, Ctrl-C."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_kit.cli import app
from grpo_kit.overlap import command

SHORT = ["--set", "data.rows=16", "--set", "sampler.samples=3", "--set", "evaluation.questions=4"]
SHORT += ["--set", "prompts_per_step=4", "--set", "selection.rule.keep=2"]


def overlap(*arguments, recipe="recipes/codistill.toml"):
    words = ["overlap", recipe, *map(str, arguments), *(SHORT if "codistill" in recipe else [])]
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


def test_the_numbers_are_printed_and_written(tmp_path):
    out = tmp_path / "some" / "folder"
    result = overlap("--prompts", 10, "--seed", 3, "--out", out)
    assert result.exit_code == 0, result.output
    report = json.loads((out / "overlap.json").read_text())
    found, lines = report["result"], result.output.splitlines()
    assert lines[0] == "top 4, a quarter of the vocabulary of 19 tokens, instead of the paper's 64"
    assert (
        lines[1] == f"'small' (student) against 'large' (teacher): 30 rollouts of 10 prompts, {found['tokens']} tokens"
    )
    value, low, high = (found["overlap"][key] for key in ("value", "low", "high"))
    assert 0 < low < value < high < 1
    assert lines[2] == (
        f"output-token overlap ratio, top 4 of 19 tokens: {value:.3f} ({low:.3f} to {high:.3f}); 0.21 for unrelated "
        "policies"
    )
    assert lines[4].split()[:4] == ["position", "tokens", "prompts", "overlap"]
    first = found["by_position"][0]
    assert lines[5].split()[:4] == ["1", "30", "10", f"{first['overlap']['value']:.3f}"]
    assert sum(each["tokens"] for each in found["by_position"]) == found["tokens"]
    assert f"reverse KL (student || teacher), nats a token: {found['reverse_kl']['value']:.4f}" in result.output
    at_end = found["log_ratio_at_end"]
    assert f"  of those that end a rollout alone: {at_end['value']:z.4f}" in result.output
    assert any(line.startswith("stop reasons: eos 30 (0.0% cut at the length limit)") for line in lines)
    advice = report["advice"]
    assert f"recommendation: {advice['choice']}, since {advice['reason']}" in lines
    assert "The paper (Semi-OPD, arXiv:2610.11291) publishes no threshold" in result.output
    assert report["seed"] == 3
    assert report["recipe"]["sampler"]["samples"] == 3
    assert report["settings"]["prompts"] == 10
    assert "torch" in report["versions"]
    assert (out / "overlap.png").read_bytes().startswith(b"\x89PNG")
    assert lines[-2:] == [f"written: {out / 'overlap.json'}", f"written: {out / 'overlap.png'}"]
    before = (out / "overlap.json").read_bytes()
    again = overlap("--prompts", 10, "--out", out)
    said = f"--out {out} has overlap.json and overlap.png already; nothing was written. Give another folder.\n"
    assert (again.exit_code, again.output) == (1, said)
    assert (out / "overlap.json").read_bytes() == before


def test_equal_seeds_say_the_same_and_a_copy_overlaps_wholly():
    arguments = ("--prompts", 20, "--top-k", 3, "--set", "policies.large.model=tiny:small")
    first, again = overlap(*arguments), overlap(*arguments)
    assert first.output == again.output
    lines = first.output.splitlines()
    assert lines[0] == "the data has 16 prompts; all of them are used"
    assert lines[2].startswith("output-token overlap ratio, top 3 of 19 tokens: 1.000 (0.7")
    assert any(line.startswith("recommendation: OPD, since the overlap 1.000 is above the threshold") for line in lines)
    assert "\x1b" not in first.output


@pytest.mark.parametrize("top_k", [19, 64])
def test_all_of_the_vocabulary_says_nothing(top_k):
    result = overlap("--top-k", top_k)
    said = f"--top-k {top_k}: the vocabulary has 19 tokens, and all of them overlap always. Give 1 to 18.\n"
    assert (result.exit_code, result.output) == (1, said)


@pytest.mark.parametrize(
    ("arguments", "recipe", "said"),
    [
        (
            ["--threshold", "1"],
            "codistill",
            "--threshold 1: an overlap is between 0 and 1. Give a number",
        ),
        (
            ["--student", "larg"],
            "codistill",
            "--student larg: no such policy. Did you mean 'large'? There are ",
        ),
        ([], "grpo", "the recipe has one policy, 'small', and nothing to compare it with. Add a teacher.\n"),
        (["--set", "stpes=3"], "grpo", "grpo: 1 mistake\n"),
        (["--out", __file__], "codistill", f"--out {__file__} cannot be made: File exists. Give another folder.\n"),
    ],
)
def test_mistakes_are_plain(arguments, recipe, said):
    result = overlap(*arguments, recipe=recipe)
    assert result.exit_code == 1
    assert result.output.startswith(said)


def test_rollouts_of_another_than_the_student_are_named():
    result = overlap("--prompts", 4, "--student", "large", "--teacher", "small")
    assert "the rollouts are those of 'small', not of the student 'large'" in result.output.splitlines()


@pytest.mark.parametrize(
    ("finished", "said"),
    [(2, "stopped: 8 of 16 prompts were measured and are reported"), (0, "stopped: 0 of 16 prompts were measured")],
)
def test_ctrl_c_reports_what_was_measured(finished, said, monkeypatch, tmp_path):
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) > finished:
            raise KeyboardInterrupt
        return measure(*arguments)

    measure = command.measure
    monkeypatch.setattr(command, "measure", interrupted)
    result = overlap("--prompts", 16, "--out", tmp_path)
    assert result.exit_code == 130
    assert said in result.output.splitlines()
    assert ("24 rollouts of 8 prompts" in result.output) == bool(finished)
    assert (tmp_path / "overlap.json").exists() == bool(finished)


def test_every_option_is_handed_on(monkeypatch):
    given = []

    def spy(wanted, console):
        given.append(wanted)
        return 3

    monkeypatch.setattr(command, "overlap_command", spy)
    words = "overlap r --student a --teacher b --prompts 5 --top-k 7 --threshold 0.5 --seed 2 --out o --set a.b=c"
    assert CliRunner().invoke(app, words.split()).exit_code == 3
    assert CliRunner().invoke(app, ["overlap", "r"]).exit_code == 3
    assert given == [
        command.Wanted(
            recipe="r",
            student="a",
            teacher="b",
            prompts=5,
            top_k=7,
            threshold=0.5,
            seed=2,
            out=Path("o"),
            settings=("a.b=c",),
        ),
        command.Wanted(recipe="r"),
    ]
