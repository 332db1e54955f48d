"""Tables as prompts: every format, columns, extraction, templates, chat; what is missing is named."""

import csv
import gzip
import json
import random

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from pydantic import ValidationError

import tiny
from grpo_kit import DatasetRows
from grpo_kit.data import Example, encode_prompts

ROWS = [{"question": "a b", "solution": "so\n#### 3", "level": 1}, {"question": "c", "solution": "#### 4 ", "level": 2}]

SHOT = Example(prompt="d", answer="e")


def write(path):
    if path.suffix in (".jsonl", ".ndjson"):
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(ROWS)
    elif path.suffix == ".arrow":
        table = pyarrow.Table.from_pylist(ROWS)
        with pyarrow.ipc.new_stream(str(path), table.schema) as file:
            file.write_table(table)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return str(path)


def rows_of(path, **settings):
    return DatasetRows(path=path, columns={"prompt": "question", "answer": "solution"}, **settings)()


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow"])
def test_every_format_gives_the_same_rows(suffix, tmp_path):
    rows = rows_of(write(tmp_path / f"rows{suffix}"), extract={"answer": r"(?:.*####)?\s*(.+)"})
    assert rows["prompt"][:] == ["a b", "c"]
    assert rows["answer"][:] == ["3", "4"]
    assert rows["level"][:] == (["1", "2"] if suffix in (".csv", ".tsv") else [1, 2])  # CSV has no types


def test_columns_keep_the_table_beside_our_names(tmp_path):
    rows = rows_of(write(tmp_path / "rows.jsonl"))
    assert set(rows.column_names) == {"prompt", "answer", "question", "solution", "level"}
    assert rows["answer"][:] == [row["solution"] for row in ROWS]


def test_two_names_may_swap(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x", "answer": "y"}\n')
    rows = DatasetRows(path=str(tmp_path / "rows.jsonl"), columns={"prompt": "answer", "answer": "prompt"})()
    assert rows.columns == {"prompt": ["y"], "answer": ["x"]}


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
        ({"extract": {"answer": "(("}}, "'((' is not a regular expression"),
        ({"extract": {"answer": "a"}}, "'a' has 0 groups; mark the part to keep by one ( )"),
        ({"template": "no place"}, r"String should match pattern '\{prompt\}'"),
        ({"chat_options": {"enable_thinking": False}}, "chat_options are the chat template's: set chat = true"),
        ({"stream": True}, "stream reads the first rows only: say how many, for example rows = 10000"),
        ({"stream": True, "rows": 3, "split": "train[:9]"}, "write split without a slice, not 'train[:9]'"),
        ({"few_shot": [SHOT], "few_shot_path": "x.jsonl"}, "few_shot and few_shot_path both give examples"),
        ({"few_shot_count": 2}, "few_shot_count counts examples and there are none"),
        ({"few_shot": [SHOT], "few_shot_count": 2}, "few_shot_count = 2, but few_shot has 1"),
        ({"few_shot_template": "{prompt}{answer}"}, "few_shot_template writes examples as text, but there are none"),
        (
            {"few_shot": [SHOT], "chat": True, "few_shot_template": "{prompt}{answer}"},
            "few_shot_template writes examples as text, but with chat they are messages",
        ),
        ({"few_shot": [SHOT], "few_shot_template": "{answer}"}, "String should match pattern"),
        ({"rows": 0}, "Input should be greater than or equal to 1"),
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
        f"data file '{path}' (split train) has no column 'prompt'. It has: question, solution, level. "
        'Map it, for example columns = { prompt = "question" }.'
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "rows.parquet").write_text("{not parquet\n")
    with pytest.raises(ValueError, match=r"^data file '.*rows\.parquet' cannot be read: "):
        rows_of(str(tmp_path / "rows.parquet"))


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
    with pytest.raises(ValueError, match=r"rows\.txt' must end in \.jsonl, \.ndjson, \.json, \.csv, "):
        DatasetRows(path=str(file))()


def test_rows_are_the_first_ones_for_every_format(tmp_path):
    for suffix in (".jsonl", ".csv", ".parquet"):
        path = write(tmp_path / f"rows{suffix}")
        assert rows_of(path, rows=1)["prompt"] == ["a b"]
        assert rows_of(path, rows=9)["prompt"] == ["a b", "c"]
        assert rows_of(path, rows=1, split="train[1:]")["prompt"] == ["c"]


def test_rows_of_a_text_file_are_read_no_further(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "a", "solution": "1"}\n{broken\n')
    assert rows_of(str(path), rows=1).faults == ()
    assert len(rows_of(str(path), rows=2).faults) == 1


def test_a_file_that_breaks_off_is_read_as_far_as_rows_go(tmp_path):
    lines = "".join(
        json.dumps({"question": str(random.Random(n).random()), "solution": n}) + "\n" for n in range(20_000)
    )
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode())[:100_000])
    assert rows_of(str(path), rows=2)["answer"] == [0, 1]
    with pytest.raises(ValueError, match=r"cannot be read: Compressed file ended before"):
        rows_of(str(path), rows=20_000)


def test_a_number_is_extracted_from_as_it_is_written(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": "a", "answer": gold}) + "\n" for gold in (42, "so\n#### 7", True, None))
    )
    rows = DatasetRows(path=str(path), extract={"answer": r"(?:.*####)?\s*(.+)"})()
    assert rows["answer"] == ["42", "7", None, None]


def test_values_of_several_types_stay_what_they_are(tmp_path):
    path = tmp_path / "rows.jsonl"
    golds = [42, "x + 1", 0.5, ["1", "2"], None, True, 10**30, r"\\frac{1}{2}", "0.50"]
    path.write_text("".join(json.dumps({"prompt": "a", "answer": gold}) + "\n" for gold in golds))
    assert DatasetRows(path=str(path))()["answer"] == golds


def test_a_second_row_of_an_id_is_named_and_left_out(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [
        {"id": 7, "prompt": "a"},
        {"id": 8, "prompt": "b"},
        {"id": 7, "prompt": "c"},
        {"prompt": "d"},
        {"prompt": "e"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = DatasetRows(path=str(path))()
    assert found["prompt"] == ["a", "b", "d", "e"]
    assert [(fault.kind, str(fault)) for fault in found.faults] == [
        ("duplicate id", "line 3: id 7 is that of line 1, too")
    ]
    assert DatasetRows(path=str(path), id="")()["prompt"] == ["a", "b", "c", "d", "e"]
    with pytest.raises(ValueError, match=r"has no column 'uid'"):
        DatasetRows(path=str(path), id="uid")()


def test_messages_may_bring_a_system_message_of_their_own(tmp_path):
    path = tmp_path / "rows.jsonl"
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
    path.write_text(json.dumps({"prompt": messages}) + "\n")
    assert DatasetRows(path=str(path), chat=True)()["prompt"] == [messages]
    found = DatasetRows(path=str(path), chat=True, system="mine")()
    assert len(found) == 0
    assert [(fault.kind, fault.place) for fault in found.faults] == [("odd chat", "line 1")]


def test_examples_go_in_front_as_text(tmp_path):
    path = write(tmp_path / "rows.jsonl")
    shots = [Example(prompt="1", answer="one"), Example(prompt="{answer}", answer="two")]
    rows = rows_of(path, template="Q: {prompt}\nA:", few_shot=shots)
    assert rows["prompt"][1] == "Q: 1\nA: one\n\nQ: {answer}\nA: two\n\nQ: c\nA:"
    rows = rows_of(path, template="{prompt}=", few_shot=shots, few_shot_count=1, few_shot_template="{prompt}{answer};")
    assert rows["prompt"][1] == "1=one;c="


def test_examples_go_in_front_as_messages(tmp_path):
    path = write(tmp_path / "rows.jsonl")
    rows = rows_of(path, template="{prompt}?", chat=True, system="s", few_shot=[Example(prompt="1", answer="one")])
    assert [(message["role"], message["content"]) for message in rows["prompt"][1]] == [
        ("system", "s"),
        ("user", "1?"),
        ("assistant", "one"),
        ("user", "c?"),
    ]


def test_examples_stand_behind_a_system_message_that_a_row_brings(tmp_path):
    path = tmp_path / "rows.jsonl"
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
    path.write_text(json.dumps({"prompt": messages}) + "\n")
    rows = DatasetRows(path=str(path), chat=True, few_shot=[Example(prompt="1", answer="one")])()
    assert [message["content"] for message in rows["prompt"][0]] == ["s", "1", "one", "a"]


def test_a_row_that_is_an_example_is_left_out(tmp_path):
    rows = rows_of(write(tmp_path / "rows.jsonl"), few_shot=[Example(prompt=" c\n", answer="4")])
    assert len(rows) == 1
    assert [(fault.kind, fault.place) for fault in rows.faults] == [("few-shot example", "line 2")]


def test_examples_come_from_a_file(tmp_path):
    path = write(tmp_path / "rows.jsonl")
    shots = tmp_path / "shots.csv"
    shots.write_text("prompt,answer\n1,one\n2,two\n")
    assert rows_of(path, few_shot_path=str(shots))["prompt"][1] == "1 one\n\n2 two\n\nc"
    assert rows_of(path, few_shot_path=str(shots), few_shot_count=1)["prompt"][1] == "1 one\n\nc"


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("prompt,answer\n1,one\n", {"few_shot_count": 2}, "few_shot_count = 2, but data file '.*' .* has 1 rows"),
        ("prompt,gold\n1,one\n", {}, "few_shot_path: .* has no column 'answer'. It has: prompt, gold"),
        ("prompt,answer\n1,\n", {}, "few_shot_path: .*, line 2: column 'answer' has no text"),
        ("prompt,answer\n1\n", {}, "few_shot_path: .*, line 2: 1 cells, the header has 2"),
        (None, {}, "few_shot_path: data file '.*' does not exist"),
    ],
)
def test_a_file_of_examples_has_no_faults(content, settings, message, tmp_path):
    shots = tmp_path / "shots.csv"
    if content is not None:
        shots.write_text(content)
    with pytest.raises(ValueError, match=message):
        rows_of(write(tmp_path / "rows.jsonl"), few_shot_path=str(shots), **settings)
