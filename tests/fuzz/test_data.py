"""Whatever stands in a file of rows: rows, each unusable one counted and named, or a sentence about the whole file."""

import bz2
import csv
import gzip
import io
import json
import lzma

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from hypothesis import assume, example, given, strategies as st

import tiny
from fuzz.fuzzing import FUZZ, JSON, check_refusal, damaged
from grpo_kit import DatasetRows
from grpo_kit.data import encode_prompts

ROWS = [
    {"prompt": "a b", "answer": "3", "id": 1},
    {"prompt": "c", "answer": "\u00e9 \u2028", "id": 2},
    {"prompt": "d e f", "answer": "5", "id": 3},
]
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
CHAT = "{% for one in messages %}{{ one['role'] + ': ' + one['content'] }}{% endfor %}"


def separated(delimiter):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


def columnar(write):
    sink = io.BytesIO()
    write(pyarrow.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def stream(table, sink):
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


LINES = [json.dumps(row).encode() for row in ROWS]
TEXTS = {
    ".jsonl": b"\n".join(LINES),
    ".json": json.dumps(ROWS).encode(),
    ".csv": separated(","),
    ".tsv": separated("\t"),
}
COLUMNAR = {".parquet": columnar(pyarrow.parquet.write_table), ".arrow": columnar(stream)}
ENDINGS = st.sampled_from([f"{text}{packed}" for text in TEXTS for packed in PACK])


def tokenizer(chat):
    own = tiny.tokenizer()
    if chat:
        own = own.__class__(tokenizer_object=own.backend_tokenizer, pad_token="<pad>", eos_token="<eos>")
        own.chat_template = CHAT
    return own


TOKENIZERS = {chat: tokenizer(chat) for chat in (False, True)}


def check(path, content, *, chat=False):
    """All rows of the file as (how many are usable, the faults); None where the file as a whole is refused."""
    path.write_bytes(content)
    try:
        table = DatasetRows(path=str(path), rows=50, chat=chat)()
    except ValueError as error:
        check_refusal(error)
        return None
    assert all(len(values) == len(table) for values in table.columns.values())
    try:
        prompts = encode_prompts(table, TOKENIZERS[chat], max_tokens=20, needed=["answer"])
    except ValueError as error:
        check_refusal(error)
        return None
    assert len(prompts) + len(prompts.skipped) == len(table) + len(table.faults)
    places = [fault.place for fault in prompts.skipped]
    assert len(set(places)) == len(places)
    assert all(fault.reason and fault.place.split()[0] in ("line", "row") for fault in prompts.skipped)
    return len(prompts), prompts.skipped


@FUZZ
@given(ENDINGS, st.binary() | st.text().map(str.encode), st.booleans())
@example(".json", b"[" * 5000, True)
@example(".json", b'[{"prompt": ' + b"[" * 900 + b"]" * 900 + b"}]", True)
@example(".jsonl.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff", False)
def test_any_bytes(tmp_path, ending, content, packed):
    kind = f".{ending.split('.')[1]}"
    check(tmp_path / f"rows{ending}", PACK[ending.removeprefix(kind)](content) if packed else content)


@FUZZ
@given(ENDINGS.flatmap(lambda ending: st.tuples(st.just(ending), damaged(TEXTS[f".{ending.split('.')[1]}"]))))
def test_a_text_file_that_is_damaged(tmp_path, case):
    ending, content = case
    check(tmp_path / f"rows{ending}", PACK[ending.removeprefix(f".{ending.split('.')[1]}")](content))


@FUZZ
@given(
    st.sampled_from(list(PACK)[1:]).flatmap(lambda kind: st.tuples(st.just(kind), damaged(PACK[kind](TEXTS[".jsonl"]))))
)
def test_a_compressed_file_that_is_damaged(tmp_path, case):
    ending, content = case
    check(tmp_path / f"rows.jsonl{ending}", content)


@FUZZ
@given(st.sampled_from(list(COLUMNAR)).flatmap(lambda kind: st.tuples(st.just(kind), damaged(COLUMNAR[kind]))))
def test_a_columnar_file_that_is_damaged(tmp_path, case):
    ending, content = case
    check(tmp_path / f"rows{ending}", content)


HEADED = {".jsonl": (b"", LINES), ".csv": (b"prompt,answer,id\n", [b"a b,3,1", b"c,4,2", b"d e,5,3"])}


@FUZZ
@given(st.sampled_from(list(HEADED)), st.integers(0, 2), st.data())
def test_one_bad_line_costs_one_row(tmp_path, ending, number, data):
    header, lines = HEADED[ending]
    bad = data.draw(damaged(lines[number]).filter(lambda line: not set(line) & set(b'\n\r"' if header else b"\n")))
    assume(header or not bad.startswith((b"\xff\xfe", b"\xfe\xff")))  # else the file is UTF-16
    content = b"\n".join([*lines[:number], bad, *lines[number + 1 :]])
    found = check(tmp_path / f"rows{ending}", header + content)
    assert found is not None
    usable, skipped = found
    place = f"line {number + 1 + bool(header)}"
    # What was damaged may have become the id of another row, the second of which is then the bad one.
    assert {fault.place for fault in skipped} <= {place} or [fault.kind for fault in skipped] == ["duplicate id"]
    assert usable + len(skipped) == 2 + bool(bad if header else bad.strip())


@FUZZ
@given(st.lists(JSON | st.fixed_dictionaries({"prompt": JSON, "answer": JSON, "id": JSON}), max_size=5), st.booleans())
def test_any_json_a_line(tmp_path, values, chat):
    content = "".join(json.dumps(value) + "\n" for value in values).encode()
    found = check(tmp_path / "rows.jsonl", content, chat=chat)
    if found is not None:
        assert found[0] + len(found[1]) == len(values)


MESSAGES = st.lists(st.fixed_dictionaries({"role": JSON, "content": JSON}) | JSON, max_size=3)


@FUZZ
@given(MESSAGES)
def test_any_chat_costs_one_row(tmp_path, messages):
    rows = [{"prompt": messages, "answer": "1"}, {"prompt": "a b", "answer": "2"}]
    found = check(tmp_path / "rows.jsonl", "\n".join(map(json.dumps, rows)).encode(), chat=True)
    assert found is not None
    assert found[0] + len(found[1]) == 2
    assert {fault.place for fault in found[1]} <= {"line 1"}
