"""The page on data says what the code does: its examples are run, its kinds are the code's."""

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from grpo_kit.data import DATA, encode_prompts
from grpo_kit.data.rows import FaultKind
from grpo_kit.policies import PolicySpec, load_tokenizer

SHARED = Path(__file__).parents[3] / "shared" / "data"
PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_kinds_of_faults_are_those_of_the_code():
    _, _, table = PAGE.partition("| kind | the row |")
    assert re.findall(r"^\| `([\w -]+)` \|", table, re.MULTILINE) == list(get_args(FaultKind))


def test_the_files_of_the_page_are_read_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (lines,) = blocks("json")
    Path("problems.jsonl").write_text(lines)
    plain, wording, chat, puzzles = blocks("toml")
    data = tomllib.loads(plain)["data"]
    assert DATA.read(data)()["answer"] == ["7", "42"]
    (prompt,) = [text for text in blocks("text") if text.startswith("Problem: ")]
    assert DATA.read({**data, **tomllib.loads(wording)})()["prompt"][1] == prompt.rstrip("\n")
    shots = tomllib.loads(wording)["few_shot"]
    messages = DATA.read({**data, **tomllib.loads(chat), "few_shot": shots})()["prompt"][1]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    table = DATA.read({**tomllib.loads(puzzles)["data"], "rows": 4})()
    assert set(table.column_names) == {"prompt", "answer", "entry"}


def test_the_python_of_the_page_runs(capsys):
    (code,) = blocks("python")
    exec(code, {})
    assert capsys.readouterr().out == "9 ()\n"


LARGE = ("gsm8k_train", "minerva_math", "olympiadbench")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of real problems is not beside the checkout")
@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_real_problems_are_read_whole(large):
    tokenizer = load_tokenizer(PolicySpec(model="tiny:small"))
    paths = [path for path in sorted(SHARED.glob("*.jsonl")) if (path.stem in LARGE) == large]
    assert paths
    for path in paths:
        table = DATA.read({"kind": "dataset", "path": str(path), "columns": {"prompt": "problem"}})()
        with path.open("rb") as file:
            assert len(table) == sum(1 for _ in file)
        assert table.faults == ()
        prompts = encode_prompts(table, tokenizer, max_tokens=10_000, needed=["answer"], limit=50)
        assert (len(prompts), prompts.skipped) == (min(50, len(table)), ())
