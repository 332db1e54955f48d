"""Text files row by row: what one bad line costs, and how it is named."""

import bz2
import gzip
import json
import lzma

import pytest

from grpo_kit.data.files import Placed, find_files, read_files
from grpo_kit.data.tables import read_table


def read(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_files([str(path)]))


def kinds(reads):
    """Where each row stands, with its values or the kind of its fault."""
    return [(r.place, r.values if isinstance(r, Placed) else r.kind) for r in reads]


def test_a_bad_line_costs_one_row(tmp_path):
    lines = [
        b'\xef\xbb\xbf{"a": 1}',
        b"{broken",
        b"",
        b'["a"]',
        b'"text"',
        b"null",
        b"3",
        b'{"a": "\xff"}',
        rb'{"a": "\ud800"}',
        rb'{"a": "\ud83d\ude00"}',
        b"[" * 100_000,
        b"1" * 5000,
        '{"a": "x\u2028y\u0085z"}'.encode(),
        b'{"a": 2}\r',
    ]
    reads = read(tmp_path, "rows.jsonl", b"\n".join(lines))
    assert kinds(reads) == [
        ("line 1", {"a": 1}),
        ("line 2", "malformed"),
        ("line 4", "malformed"),
        ("line 5", "malformed"),
        ("line 6", "malformed"),
        ("line 7", "malformed"),
        ("line 8", "broken unicode"),
        ("line 9", "broken unicode"),
        ("line 10", {"a": "\U0001f600"}),
        ("line 11", "malformed"),
        ("line 12", "malformed"),
        ("line 13", {"a": "x\u2028y\u0085z"}),
        ("line 14", {"a": 2}),
    ]
    assert [str(reads[number]) for number in (1, 2, 3, 4, 5, 6)] == [
        "line 2: not JSON (Expecting property name enclosed in double quotes at character 2)",
        "line 4: a list, not an object of columns",
        "line 5: a text, not an object of columns",
        "line 6: null, not an object of columns",
        "line 7: a number, not an object of columns",
        "line 8: not UTF-8 (byte 8 of the line)",
    ]


def test_ragged_rows_of_csv_cost_one_row_each(tmp_path):
    content = b'\xef\xbb\xbfprompt,answer\na,1\nb\n\nc,2,3\n"x\ny",4\nd,\n\xff,5\n"never closed,6\ne,7\n'
    reads = read(tmp_path, "rows.csv", content)
    assert kinds(reads) == [
        ("line 2", {"prompt": "a", "answer": "1"}),
        ("line 3", "malformed"),
        ("line 5", "malformed"),
        ("line 6", {"prompt": "x\ny", "answer": "4"}),
        ("line 8", {"prompt": "d", "answer": None}),
        ("line 9", "broken unicode"),
        ("line 10", "malformed"),
    ]
    assert str(reads[1]) == "line 3: 1 cells, the header has 2"
    assert str(reads[-1]) == "line 10: 1 cells, the header has 2 over lines 10 to 11; a quote that is not closed?"


def test_csv_texts_stand_as_they_are(tmp_path):
    reads = read(tmp_path, "rows.csv", "a,b,c,d\n007,0.50,NA,True\n")
    assert kinds(reads) == [("line 2", {"a": "007", "b": "0.50", "c": "NA", "d": "True"})]
    big = "x" * 200_000  # beyond the default limit of the module csv
    assert kinds(read(tmp_path, "rows.tsv", f"a\tb\n{big}\t1\n")) == [("line 2", {"a": big, "b": "1"})]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('[{"a": 1}, 2, {"a": "\\ud800"}]', [("row 0", {"a": 1}), ("row 1", "malformed"), ("row 2", "broken unicode")]),
        ('{"a": [1, 2], "b": ["x", null]}', [("row 0", {"a": 1, "b": "x"}), ("row 1", {"a": 2, "b": None})]),
        ('{"data": [{"a": 1}]}', [("row 0", {"a": 1})]),
        ('{"a": 1}', [("row 0", {"a": 1})]),
        ('{"a": 1}\n{broken\n{"a": 2}\n', [("line 1", {"a": 1}), ("line 2", "malformed"), ("line 3", {"a": 2})]),
    ],
)
def test_json_comes_in_several_forms(content, expected, tmp_path):
    assert kinds(read(tmp_path, "rows.json", content)) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.json", "[1, 2", "is not JSON: Expecting ',' delimiter"),
        ("rows.json", "3", "is neither a list of objects nor an object of lists of equal length"),
        ("rows.json", '{"a": [1], "b": [1, 2]}', "is neither a list of objects nor"),
        ("rows.csv", "a,b,a\n1,2,3\n", "has the column 'a' twice; rename one"),
        ("rows.jsonl", '{"a": 1}\n'.encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("rows.jsonl.gz", b"no gzip", "cannot be read: Not a gzipped file"),
        (
            "rows.jsonl.gz",
            gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)[:30],
            "cannot be read: Compressed file ended before",
        ),
    ],
)
def test_a_file_that_is_no_table_is_named(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, name, content)
    assert str(caught.value).startswith(f"data file '{tmp_path / name}' ")


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_text_files_may_be_compressed(suffix, compress, tmp_path):
    assert kinds(read(tmp_path, "rows.jsonl" + suffix, compress(b'{"a": 1}\n'))) == [("line 1", {"a": 1})]
    assert kinds(read(tmp_path, "rows.csv" + suffix, compress(b"a\n1\n"))) == [("line 2", {"a": "1"})]


def test_a_pattern_gives_its_files_in_order_and_faults_their_name(tmp_path):
    for name, value in (("b", 2), ("a", 1)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"prompt": value}) + "\n{\n")
    (tmp_path / "c.csv").write_text("prompt\n3\n")
    table = read_table(str(tmp_path / "*.jsonl"))
    assert table["prompt"] == [1, 2]
    assert table.places == ["a.jsonl, line 1", "b.jsonl, line 1"]
    assert [fault.place for fault in table.faults] == ["a.jsonl, line 2", "b.jsonl, line 2"]
    with pytest.raises(ValueError, match=r"matches files of several formats: '.*a\.jsonl' and '.*c\.csv'"):
        read_table(str(tmp_path / "*"))
    with pytest.raises(ValueError, match=r"^data file '.*\*\.tsv' does not exist \(looked from "):
        read_table(str(tmp_path / "*.tsv"))


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    (tmp_path / "rows[1].jsonl").write_text('{"prompt": "a"}\n')
    (tmp_path / "rows1.jsonl").write_text('{"prompt": "b"}\n')
    assert find_files(str(tmp_path / "rows[1].jsonl")) == [str(tmp_path / "rows[1].jsonl")]


def test_a_column_that_only_some_rows_have_is_missing_in_the_others(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    table = read_table(str(tmp_path / "rows.jsonl"))
    assert table.columns == {"a": [1, None], "b": [None, 2]}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_slices_are_of_the_rows_as_they_stand(name, tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / name
    if name.endswith("l"):
        path.write_text("".join(json.dumps({"n": str(number)}) + "\n" for number in range(10)))
    elif name.endswith("v"):
        path.write_text("n\n" + "".join(f"{number}\n" for number in range(10)))
    else:
        pyarrow.parquet.write_table(pyarrow.table({"n": [str(number) for number in range(10)]}), path)

    def numbers(split, **settings):
        return "".join(read_table(str(path), split=split, **settings)["n"])

    assert numbers("train[:3]") == "012"
    assert numbers("train[-2:]") == "89"
    assert numbers("train[10%:30%]") == "12"
    assert numbers("train[:2]+train[8:]") == "0189"
    assert numbers("train[4:]", rows=2) == "45"
    assert (
        read_table(str(path), split="train[4:]").places[0] == {"l": "line 5", "v": "line 6"}.get(name[-1], "row 4")
        if not name.endswith("t")
        else "row 4"
    )
    with pytest.raises(ValueError, match=r"^split 'train\[x\]' cannot be taken of 10 rows: "):
        numbers("train[x]")


def test_a_bad_row_keeps_its_place_in_slices(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 0}\n{broken\n{"n": 2}\n{"n": 3}\n')
    first, last = (read_table(str(path), split=f"train[{part}]") for part in (":2", "2:"))
    assert (first["n"], len(first.faults)) == ([0], 1)
    assert (last["n"], len(last.faults)) == ([2, 3], 0)


def test_streaming_is_not_for_files(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"n": 0}\n')
    with pytest.raises(ValueError, match="stream is for hub data sets and folders"):
        read_table(str(tmp_path / "rows.jsonl"), rows=1, stream=True)
