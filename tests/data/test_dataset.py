"""Tables as prompts: every format, columns, extraction, templates, chat; what is missing is named."""

import csv
import json

import pyarrow
import pyarrow.parquet
import pytest
from pydantic import ValidationError

import tiny
from grpo_kit import DatasetRows
from grpo_kit.data import encode_prompts

ROWS = [{"question": "a b", "solution": "so\n#### 3", "level": 1}, {"question": "c", "solution": "#### 4 ", "level": 2}]


def write(path):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows(ROWS)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return str(path)


def rows_of(path, **settings):
    return DatasetRows(path=path, columns={"prompt": "question", "answer": "solution"}, **settings)()


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_every_format_gives_the_same_rows(suffix, tmp_path):
    rows = rows_of(write(tmp_path / f"rows{suffix}"), extract={"answer": r"(?:.*####)?\s*(.+)"})
    assert rows["prompt"][:] == ["a b", "c"]
    assert rows["answer"][:] == ["3", "4"]
    assert rows["level"][:] == [1, 2]


def test_columns_keep_the_table_beside_our_names(tmp_path):
    rows = rows_of(write(tmp_path / "rows.jsonl"))
    assert set(rows.column_names) == {"prompt", "answer", "question", "solution", "level"}
    assert rows["answer"][:] == [row["solution"] for row in ROWS]


def test_two_names_may_swap(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x", "answer": "y"}\n')
    rows = DatasetRows(path=str(tmp_path / "rows.jsonl"), columns={"prompt": "answer", "answer": "prompt"})()
    assert rows[0] == {"prompt": "y", "answer": "x"}


def test_the_template_holds_the_rows_text(tmp_path):
    rows = rows_of(write(tmp_path / "rows.jsonl"), template="Box {it}: {prompt}!")
    assert rows["prompt"][:] == ["Box {it}: a b!", "Box {it}: c!"]


def test_chat_makes_messages_and_system_goes_first(tmp_path):
    path = write(tmp_path / "rows.jsonl")
    user = {"role": "user", "content": "c"}
    assert rows_of(path, chat=True)["prompt"][1] == [user]
    assert rows_of(path, chat=True, system="Be brief.")["prompt"][1] == [
        {"role": "system", "content": "Be brief."},
        user,
    ]


def test_chat_goes_through_the_tokenizers_template_once(tmp_path):
    tokenizer = tiny.tokenizer().__class__.from_pretrained(_saved(tmp_path))
    rows = rows_of(write(tmp_path / "rows.jsonl"), chat=True)
    prompts = encode_prompts(rows, tokenizer, max_tokens=9)
    assert prompts.ids == (tuple(tokenizer("j a b i")["input_ids"]), tuple(tokenizer("j c i")["input_ids"]))


def _saved(tmp_path):
    folder = tmp_path / "tokenizer"
    tiny.tokenizer().save_pretrained(folder)
    template = "{% for m in messages %}j {{ m.content }}{% endfor %}{% if add_generation_prompt %} i{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    return folder


def test_slices_of_a_split_work_for_files(tmp_path):
    assert rows_of(write(tmp_path / "rows.jsonl"), split="train[:1]")["prompt"][:] == ["a b"]
    assert rows_of(write(tmp_path / "rows.jsonl"), split="test")["prompt"][:] == ["a b", "c"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"system": "x"}, "system is a chat message: set chat = true, or put its text into template"),
        ({"extract": {"answer": "(("}}, "'((' for 'answer' is not a regular expression"),
        ({"extract": {"answer": "a"}}, "'a' for 'answer' has 0 groups; mark the part to keep by one ( )"),
        ({"template": "no place"}, r"String should match pattern '\{prompt\}'"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ValidationError) as caught:
        DatasetRows(path="rows.jsonl", **settings)
    assert message in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^data file 'no\.jsonl' does not exist \(looked from "):
        DatasetRows(path="no.jsonl")()


def test_a_file_has_no_configuration(tmp_path):
    with pytest.raises(ValueError, match=r"^name 'main' belongs to a hub data set; for the file '.*' set it to ''$"):
        rows_of(write(tmp_path / "rows.jsonl"), name="main")


def test_a_column_that_is_missing_is_named_with_the_others(tmp_path):
    path = write(tmp_path / "rows.jsonl")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        DatasetRows(path=path)()
    assert str(caught.value) == (
        f"data set '{path}' has no column 'prompt'. It has: question, solution, level. "
        'Map it, for example columns = { prompt = "problem" }.'
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text("{not json\n")
    with pytest.raises(ValueError, match=r"^data set '.*rows\.jsonl' cannot be read: "):
        rows_of(str(tmp_path / "rows.jsonl"))


def test_a_data_set_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^data set 'nobody/nothing' cannot be read: "):
        DatasetRows(path="nobody/nothing")()


def test_the_same_settings_are_equal_and_hash_alike():
    one, two = (DatasetRows(path="x.csv", columns={"prompt": "q"}) for _ in "ab")
    assert one == two
    assert hash(one) == hash(two)


def test_a_table_of_prompts_alone_is_enough(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    assert DatasetRows(path=str(file))()["prompt"][:] == ["a", "b"]


def test_messages_pass_through_the_chat(tmp_path):
    file = tmp_path / "chat.jsonl"
    messages = [{"role": "user", "content": "a"}]
    file.write_text(json.dumps({"prompt": messages}) + "\n")
    system = {"role": "system", "content": "be short"}
    assert DatasetRows(path=str(file), chat=True, system="be short")()["prompt"][0] == [system, *messages]
    assert DatasetRows(path=str(file))()["prompt"][0] is None


def test_a_file_of_another_ending_is_not_looked_for_on_the_hub(tmp_path):
    file = tmp_path / "rows.txt"
    file.write_text("a\n")
    with pytest.raises(ValueError, match=r"must end in \.jsonl, \.json, \.csv, \.parquet"):
        DatasetRows(path=str(file))()
