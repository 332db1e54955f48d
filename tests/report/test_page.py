"""The page: rows as it holds them, its data that nothing takes for HTML, its policy, the command that writes it."""

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from grpo_kit.cli import app
from grpo_kit.report.page import MARK, as_data, page, policy
from grpo_kit.report.runs import read_runs
from grpo_kit.report.tokens import token_row, token_rows
from report.made import HOSTILE, lines_of, metrics, run_folder, sample


def grpo_kit(*arguments):
    result = CliRunner().invoke(app, ["report", *map(str, arguments)], env={"COLUMNS": "500"})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


class Parts(HTMLParser):
    """The elements of a page with their attributes, and what each script holds."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.title, self.now = [], [], "", None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.now = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.now = None

    def handle_data(self, data):
        if self.now == "script":
            self.scripts[-1] += data
        if self.now == "title":
            self.title += data


@pytest.fixture
def hostile(tmp_path):
    """A run of which everything that it can is hostile."""
    row = sample(
        pieces=(HOSTILE, "\ud83d", "b"), prompt=HOSTILE, stop_reason=HOSTILE, columns={HOSTILE: HOSTILE},
        rewards={HOSTILE: 1.0}, statuses={HOSTILE: HOSTILE}, advantage={HOSTILE: [0.5, None, 1]},
    )  # fmt: skip
    lines = [*metrics(), {"step": 4, HOSTILE: 1.0, f"eval/{HOSTILE.replace('/', '')}/accuracy": 0.5}]
    folder = tmp_path / "<img src=x onerror=alert(1)>{{DATA}}"
    return run_folder(folder, name="<b>&{{PLOTLY}}\0</title>", lines=lines, samples=[row])


def test_a_hostile_run_is_data_and_nothing_else(hostile, tmp_path):
    result = grpo_kit(hostile, "--out", tmp_path / "x.html")
    assert result.exit_code == 0, result.output
    raw = (tmp_path / "x.html").read_bytes()
    parts = Parts(raw.decode())
    assert [tag for tag, _ in parts.tags] == [
        "html", "head", *["meta"] * 5, "link", "title", "style", "body", "nav", "main", "noscript", "p", "div",
        *["script"] * 3,
    ]  # fmt: skip
    assert not any(key.startswith("on") for _, own in parts.tags for key in own)
    assert not any(key in ("src", "action") for _, own in parts.tags for key in own)
    assert parts.title == r"Report: <b>&{{PLOTLY}}\x00</title>"
    held, program = parts.scripts[0], parts.scripts[2]
    assert held.isascii()
    assert not set("<>&") & set(held)
    data = json.loads(held)
    (row,) = data["runs"][0]["rows"]
    shown = r'</script><img src=x onerror="window.__pwned=1;alert(1)"><!-- & \u2028\u202e\x00\x1b[31m\ud800 {{DATA}}'
    assert row["pieces"] == [shown, r"\ud83d", "b"]
    assert row["prompt"] == row["end"] == shown
    assert row["columns"] == [[shown, shown]]
    assert row["statuses"] == {shown: shown}
    assert row["advantage"] == {shown: [0.5, None, 1]}
    assert "{{" not in program
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|outerHTML|eval\(|new Function", program)


def test_the_policy_allows_these_programs_and_no_network(hostile, tmp_path):
    grpo_kit(hostile, "--out", tmp_path / "x.html")
    parts = Parts((tmp_path / "x.html").read_text(encoding="utf-8"))
    (given,) = [own["content"] for tag, own in parts.tags if own.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in given.split("; "))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    hashes = [base64.b64encode(hashlib.sha256(own.encode()).digest()).decode() for own in parts.scripts[1:]]
    assert rules["script-src"] == " ".join(f"'sha256-{own}'" for own in hashes)
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert not re.search(r"https?:", re.sub(r"'sha256-[^']+'", "", given))
    assert policy("a") != policy("b")


def test_a_program_that_would_end_early_is_a_fault_of_ours():
    with pytest.raises(AssertionError, match="PLOTLY would not end where it ends"):
        page("x", {}, "'</SCRIPT>'")


def test_data_of_any_text_comes_back():
    value = {"a": HOSTILE, "b": [1.5, None, "&lt;"]}
    assert json.loads(as_data(value)) == value
    with pytest.raises(ValueError, match="Out of range"):
        as_data(float("nan"))


def test_rows_that_no_run_writes_are_left_out(tmp_path):
    odd = [
        {"tokens": "abc"}, {"tokens": [1, True, 2]}, {"pieces": ["a"]}, {"pieces": [1, 2, 3]}, {"pieces": "abc"},
        {"behavior": [0.5]}, {"logprobs": [1]}, {"entropy": {"small": [0.5, "x", 1]}}, {"advantage": {"a": 1.0}},
        {"rewards": {"task": "high"}}, {"columns": ["a"]}, {"statuses": 3},
    ]  # fmt: skip
    assert [token_row(sample() | own) for own in odd] == [None] * len(odd)
    run = run_folder(tmp_path / "run", samples=[sample(), *(sample() | own for own in odd)])
    rows, notes = token_rows(read_runs([run])[0])
    assert len(rows[0]["rows"]) == 1
    assert notes == [f"{run / 'samples.jsonl'}: 12 lines that no run writes left out"]


def test_lines_of_an_older_version_have_their_completion():
    line = {key: value for key, value in sample().items() if key not in ("pieces", "entropy", "advantage", "counted")}
    row = token_row(line | {"completion": "a\x00"})
    assert row["pieces"] is None
    assert row["text"] == r"a\x00"
    assert row["advantage"] == row["entropy"] == {}
    assert token_row({"step": 1, "tokens": []} | {"rewards": {"task": None}})["rewards"] == {"task": None}


def test_where_the_report_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = run_folder(tmp_path / "one", samples=[sample()]), run_folder(tmp_path / "two", seed=1)
    result = grpo_kit("one")
    assert (result.exit_code, result.output.split(", ")[:2]) == (0, ["one/report.html: 1 run of grpo", "1 completions"])
    assert grpo_kit("one", "two").output.startswith("report.html: 2 runs of grpo, 1 completions, ")
    before = (one / "report.html").read_text()
    (one / "metrics.jsonl").write_text(lines_of(metrics(2)))
    assert grpo_kit("one").exit_code == 0  # one of ours is renewed
    assert (one / "report.html").read_text() != before
    for taken in (tmp_path / "mine.html", two):
        if taken.suffix:
            taken.write_text("mine")
        result = grpo_kit("one", "--out", taken)
        assert (result.exit_code, result.output) == (
            1,
            f"--out {taken} exists and is no report of grpo-kit; nothing was written. Give a new file.\n",
        )
    assert (tmp_path / "mine.html").read_text() == "mine"
    result = grpo_kit("one", "--out", tmp_path / "no" / "x.html")
    assert result.exit_code == 1
    assert "there is no folder" in result.output
    assert (
        grpo_kit("nowhere").output == "'nowhere' does not exist. Give run folders, or one made by grpo-kit compare.\n"
    )


def test_what_is_left_out_is_said_on_the_terminal_and_in_the_page(tmp_path):
    run = run_folder(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step"')
    note = f"{run / 'metrics.jsonl'}: 1 damaged line left out (5)"
    assert grpo_kit(run).output.splitlines()[0] == note
    text = (run / "report.html").read_text(encoding="utf-8")
    assert MARK in text[:1024]
    assert json.loads(Parts(text).scripts[0])["notes"] == [note]


def test_without_plotly_the_extra_is_named(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    result = grpo_kit(run_folder(tmp_path / "run"))
    assert (result.exit_code, result.output) == (1, "a report needs plotly: pip install 'grpo-kit[evidence]'\n")
    assert not (tmp_path / "run" / "report.html").exists()
