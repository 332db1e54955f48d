"""What others wrote, shown in a terminal: it can neither steer it nor hide in it, and is not read as markup."""

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from grpo_kit.cli import app
from grpo_kit.commands.samples import show_samples
from grpo_kit.data.dataset import DatasetRows
from grpo_kit.evaluation.report import show, write
from grpo_kit.evaluation.result import Result
from grpo_kit.terminal import say, visible, visible_json

EVIL = "[red]a[/red]\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x7f\u202e\u2066b\u200b\ud800:warning:"
SHOWN = "[red]a[/red]\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\r\\x08\\x7f\\u202e\\u2066b\\u200b\\ud800:warning:"
STEERING = [chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F))]
STEERING += [chr(code) for code in (*range(0x2066, 0x206A), 0x2028, 0x2029, 0x200E, 0x200F, 0xFEFF, 0xD800, 0xE0001)]


def terminal():
    """A console that believes to be a terminal, where rich would use colors and markup."""
    return Console(file=io.StringIO(), force_terminal=True, width=400, color_system=None)


def on(console):
    return console.file.getvalue()


def steers(text):
    return [sign for sign in STEERING if sign in text]


@pytest.mark.parametrize("sign", STEERING, ids=lambda sign: f"{ord(sign):x}")
def test_every_steering_character_is_written_out(sign):
    shown = visible(f"a{sign}b")
    assert shown == f"a{repr(sign)[1:-1]}b"
    document = json.dumps({"a": sign}, ensure_ascii=False)
    assert not steers(visible_json(document))
    assert json.loads(visible_json(document)) == {"a": sign}


@pytest.mark.parametrize("text", ["3\u00a0km", "日本\u3000語", "naïve²", "a\n\tb", "🙂", ""])
def test_plain_texts_stay_as_they_are(text):
    assert visible(text) == visible_json(text) == text


def test_a_line_is_shown_as_it_is_written():
    console = terminal()
    say(console, EVIL)
    assert on(console) == SHOWN + "\n"


def test_samples_of_a_run(tmp_path):
    row = {
        "step": 1, "group": EVIL, "kept": True, "prompt": f"p{EVIL}", "completion": f"c{EVIL}", "stop_reason": EVIL,
        "columns": {f"k{EVIL}": EVIL, "prompt": ""}, "rewards": {f"r{EVIL}": 1.0}, "statuses": {f"r{EVIL}": EVIL},
    }  # fmt: skip
    (tmp_path / "samples.jsonl").write_text(json.dumps(row) + "\n")
    console = terminal()
    show_samples(tmp_path, console, step=None, limit=1, status=None)
    assert not steers(on(console))
    assert on(console).count(SHOWN) >= 6
    result = CliRunner().invoke(app, ["samples", str(tmp_path), "--status", "none"])
    assert result.exit_code == 1
    assert not steers(result.output)
    assert SHOWN in result.output


RESULT = {
    "policy": EVIL, "data": f"d{EVIL}", "questions": 1, "samples": 1, "max_new_tokens": 4, "accuracy": 0.0,
    "interval": (0.0, 1.0), "bounds": (0.0, 1.0), "missing": 0, "pass_at": {}, "majority": 0.0, "majority_missing": 0,
    "length": 1.0, "truncated": 0.0, "statuses": {EVIL: 1}, "sampling_seconds": 1.0, "grading_seconds": 0.0,
    "tokens_per_second": 1.0, "examples": ({"status": EVIL, "question": 0, "end": f"e{EVIL}"},),
    "skipped": (EVIL,),
}  # fmt: skip


@pytest.mark.parametrize("interactive", [True, False])
def test_results_of_an_evaluation(interactive):
    console = terminal() if interactive else Console(file=io.StringIO(), width=400)
    show([Result(**RESULT)], console)
    assert not steers(on(console))
    assert on(console).count("[red]a[/red]\\x1b]0;title") >= 4


def test_the_files_of_an_evaluation(tmp_path):
    write(tmp_path / "out.json", {"a": EVIL}, {}, [Result(**RESULT)], [{"b": EVIL}])
    written = (tmp_path / "out.json").read_text(encoding="utf-8")
    assert not steers(written)
    assert json.loads(written)["settings"] == {"a": EVIL}


def test_a_mistake_quotes_what_it_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("\x1b[2Jprompt\x9b,answer\n1,2\n", encoding="utf-8")
    (tmp_path / "mine.toml").write_text('name = "\\u001b[2J\\u202e"\n"\\u001b]0;x\\u0007" = 1\n')
    result = CliRunner().invoke(app, ["check", "mine.toml"])
    assert result.exit_code == 1
    assert not steers(result.output)
    settings = ["--set", "data.kind=dataset", "--set", "data.path=rows.csv", "--set", "data.\x1b[2J=1"]
    result = CliRunner().invoke(app, ["check", "grpo", *settings])
    assert result.exit_code == 1
    assert not steers(result.output)
    result = CliRunner().invoke(app, ["check", "grpo", *settings[:4]])
    assert not steers(result.output)
    with pytest.raises(ValueError, match=r"\x1b"):  # the message itself has it, and is made visible where it is shown
        DatasetRows(path="rows.csv")()
    for mistyped in (["\u202e"], ["run", "--\u202e\x07\x9b"], ["samples", "x", "--limit", "\x9b"]):
        result = CliRunner().invoke(app, mistyped)
        assert result.exit_code == 2
        assert not steers(result.output)
