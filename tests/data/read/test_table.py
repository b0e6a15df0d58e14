"""Reading: every format gives the same rows, columns are guessed and shown, and what cannot be read is reported."""

from __future__ import annotations

import gzip
import io
import json
import sys

import numpy as np
import pytest

import byheart
from byheart.data.read.options import Selection
from byheart.data.read.table import read, read_sequences
from byheart.errors import BudgetError, DataError, MissingExtraError, OptionError

ROWS = [("cat", "red"), ("act", "blue"), ("dog", "red")]
CSV = "name,colour\ncat,red\nact,blue\ndog,red\n"
JSON_LINES = "".join(json.dumps({"name": a, "colour": b}) + "\n" for a, b in ROWS)
COLUMNS = {"name": [a for a, _ in ROWS], "colour": [b for _, b in ROWS]}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def parquet(path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(COLUMNS), path)


def feather(path):
    pa, fe = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    fe.write_feather(pa.table(COLUMNS), str(path))


def npz(path):
    np.savez(path, **{name: np.array(values) for name, values in COLUMNS.items()})


def zstd(path):
    packer = pytest.importorskip("zstandard").ZstdCompressor()
    path.write_bytes(packer.compress(CSV[:12].encode()) + packer.compress(CSV[12:].encode()))


def folder(path):
    pytest.importorskip("datasets").Dataset.from_dict(COLUMNS).save_to_disk(str(path))


def folder_of_splits(path):
    datasets = pytest.importorskip("datasets")
    parts = {"train": COLUMNS, "test": {name: values[:1] for name, values in COLUMNS.items()}}
    datasets.DatasetDict({k: datasets.Dataset.from_dict(v) for k, v in parts.items()}).save_to_disk(str(path))


FORMATS = {
    "t.csv": lambda p: p.write_text(CSV),
    "windows.csv": lambda p: p.write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode()),
    "quoted.csv": lambda p: p.write_text('"name","colour"\n"cat","red"\n\nact,blue\n"dog",red'),
    "t.tsv": lambda p: p.write_text(CSV.replace(",", "\t")),
    "t.jsonl": lambda p: p.write_text(JSON_LINES),
    "t.json": lambda p: p.write_text("[" + JSON_LINES.strip().replace("\n", ",") + "]"),
    "noending": lambda p: p.write_text(JSON_LINES),
    "t.csv.gz": lambda p: p.write_bytes(gzip.compress(CSV.encode())),
    "t.jsonl.GZ": lambda p: p.write_bytes(gzip.compress(JSON_LINES.encode())),
    "t.csv.zst": zstd,
    "t.parquet": parquet,
    "t.arrow": feather,
    "t.npz": npz,
    "folder": folder,
    "splits": folder_of_splits,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_rows(name, tmp_path):
    path = tmp_path / name
    FORMATS[name](path)
    table = read(path)
    assert [("".join(map(str, s)), y) for s, y in zip(*table, strict=True)] == ROWS
    assert table.columns == {"sequence": "name", "label": "colour"}
    assert len(read(path, max_rows=2)) == 2


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    frame = pytest.importorskip(library).DataFrame(COLUMNS)
    assert read(frame).labels == COLUMNS["colour"]
    assert read(frame, sequence_column="colour", label_column="name").labels == COLUMNS["name"]


def test_a_data_set_in_memory():
    assert read(pytest.importorskip("datasets").Dataset.from_dict(COLUMNS)).labels == COLUMNS["colour"]


def test_numpy_rows_have_their_label_last(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1, 2, 0], [3, 4, 1]]))
    table = read(tmp_path / "a.npy")
    assert table.sequences == [[1, 2], [3, 4]] and table.labels == [0, 1]


def test_vectors(tmp_path):
    np.savez(tmp_path / "v.npz", tokens=np.arange(12.0).reshape(3, 2, 2) / 8, label=np.array([0, 1, 1]))
    table = read(tmp_path / "v.npz")
    memory = byheart.memorize(table, construction="ks25", progress=False)
    assert memory.predict(table.sequences) == [0, 1, 1] and table.sequences[0][1] == [0.25, 0.375]


def test_several_columns_are_the_tokens(tmp_path):
    path = write(tmp_path / "t.csv", "a,b,c,kind\n1,2.5,-3,x\n1,2.5,4e-1,y\n")
    assert read(path, sequence_column=["a", "b", "c"]).sequences[0] == ["1", "2.5", "-3"]
    table = read(path, sequence_column=["a", "b", "c"], token_type="float")
    assert table.sequences == [[1, 2.5, -3.0], [1, 2.5, 0.4]] and table.labels == ["x", "y"]
    path = write(tmp_path / "t.csv", "a,b,kind\n1,left,x\n2,right,y\n")
    assert read(path, sequence_column=["a", "b"]).sequences == [["1", "left"], ["2", "right"]]


def test_lists_are_the_tokens(tmp_path):
    path = write(tmp_path / "t.csv", 'tokens,label\n"[1, 2]",0\n"[3, ""x""]",1\n')
    assert read(path).sequences == [[1, 2], [3, "x"]]
    path = write(tmp_path / "t.jsonl", '{"x": [1, 2], "y": [0, 1]}\n{"x": [2, 2], "y": [1, 1]}\n')
    table = read(path, task="seq-to-seq", max_length=1)
    assert table.sequences == [[1], [2]] and table.labels == [[0], [1]] and table.shortened == 2


def test_causal_rows_are_labelled_by_what_follows(tmp_path):
    table = read(write(tmp_path / "book.txt", "to be or\n\nnot to be\n"), task="causal")
    assert table.sequences == [["to", "be"], ["not", "to"]] and table.labels == [["be", "or"], ["to", "be"]]
    with pytest.raises(DataError, match=r"line 2: one token alone"):
        read(write(tmp_path / "book.txt", "to be\nto\n"), task="causal")
    with pytest.raises(DataError, match="no label column"):
        read(tmp_path / "book.txt")


def test_columns_of_an_earlier_reading_are_taken_again(tmp_path):
    path = write(tmp_path / "t.csv", "a,b,c\nx,y,0\n")
    assert read(path, like=Selection(("b",), "a")).columns == {"sequence": "b", "label": "a"}
    assert read(path, like=Selection(("b",), "a"), label_column="c").columns == {"sequence": "b", "label": "c"}
    with pytest.raises(DataError, match="no column 'gone', the label"):
        read(path, like=Selection(("b",), "gone"))
    with pytest.raises(DataError, match="no column 'gone', which the memory was built from"):
        read(path, like=Selection(("gone",), "a"))
    with pytest.raises(DataError, match="returns its own input"):
        read(path, like=Selection(("a", "b"), "a"))
    labelled = write(tmp_path / "labelled.csv", "a,b,label\nx,y,0\n")
    with pytest.raises(DataError, match="has labels in 'label', but the memory returns 'a'"):
        read(labelled, like=Selection(("b",), "a"))


def test_questions(tmp_path, monkeypatch):
    path = write(tmp_path / "t.csv", CSV)
    assert read_sequences(path)[1] == ["a", "c", "t"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cat\n\n[1, 2]\n")))
    assert read_sequences("-", tokens="characters") == [["c", "a", "t"], [1, 2]]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "\n\n  \n", "is empty"),
        ("t.csv", "name,colour\n", "no rows"),
        ("t.csv", "name,colour\ncat\n", "line 2 has 1, the columns are 2"),
        ("t.csv", '\n\nname,colour\n"cat', "line 4: this is not CSV: unexpected end of data"),
        ("t.csv", "name\ncat\n", "no label column"),
        ("t.csv", b"name,colour\ncat,\xff\n", "line 2 is not UTF-8"),
        ("t.csv", "name,colour\n,red\n", "the sequence is missing in line 2"),
        ("t.jsonl", "[1]\n{}\n", "line 1 is .1., not an object"),
        ("t.jsonl", '{"x": 1, "y": 2}\n7\n', "line 2 is 7, not an object"),
        ("t.jsonl", '{"x": [1], "y": 1}\n{"x": [1]}\n', "the label is missing in line 2"),
        ("t.jsonl", '{"x": [1], "x": 1}\n', "'x' occurs twice"),
        ("t.jsonl", '{"x": NaN}\n', "NaN is not a number"),
        ("t.jsonl", '{"x": ' + "[" * 100_000 + "\n", "nested too deeply"),
        ("t.jsonl", '{"x": ' + "9" * 5000 + "}\n", "4300 digits"),
        ("t.jsonl", '{"x": null, "y": 1}\n', "sequence is missing"),
        ("t.jsonl", '{"x": [1, null], "y": 1}\n', "the sequence is missing in line 1"),
        ("t.jsonl", '{"x": [1], "y": null}\n', "label is missing"),
        ("t.jsonl", '{"x": [], "y": 1}\n', "the sequence is missing in line 1"),
        ("t.json", "[]", "needs a row"),
        ("t.csv.gz", b"no gzip", "cannot be unpacked"),
        ("t.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-6], "cannot be unpacked"),
        ("t.npy", b"\x93NUMPY", ".npy file"),
        ("t.npz", b"PK", ".npz file|damaged"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(name, content, words, tmp_path):
    with pytest.raises(DataError, match=words) as caught:
        read(write(tmp_path / name, content))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("ending", ["csv.zst", "parquet", "arrow"])
def test_damaged_binary_files(ending, tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("zstandard")
    for content in (b"", b"junk", bytes(range(256)) * 10):
        with pytest.raises(DataError):
            read(write(tmp_path / f"t.{ending}", content))


def test_files_that_are_not_there(tmp_path):
    (tmp_path / "plain").mkdir()
    for path in ("nowhere.csv", "nowhere.parquet", "nowhere.npz", "a\0b", str(tmp_path / "plain")):
        with pytest.raises(DataError):
            read(path)


def test_a_small_file_cannot_fill_the_memory(tmp_path):
    packed = gzip.compress(b"name,colour\n" + b"a" * 10_000_000 + b",red\n")
    path = write(tmp_path / "bomb.csv.gz", packed)
    with pytest.raises(DataError, match="raise --max-bytes"):
        read(path, max_bytes=1_000_000)
    assert len(read(path, max_bytes=20_000_000, tokens="words")) == 1
    np.savez_compressed(tmp_path / "bomb.npz", tokens=np.zeros((10, 100_000)), label=np.zeros(10))
    with pytest.raises(DataError, match="raise --max-bytes"):
        read(tmp_path / "bomb.npz", max_bytes=1_000_000)
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 3), }"
    with pytest.raises(DataError, match="raise --max-bytes"):
        read(write(tmp_path / "bomb.npy", header.ljust(127) + b"\n"))


def test_pickles_are_never_opened(tmp_path):
    np.save(tmp_path / "p.npy", np.array([[{"a": 1}, 2]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"not a plain \.npy file"):
        read(tmp_path / "p.npy")


def test_options_that_do_not_fit(tmp_path):
    path = write(tmp_path / "t.csv", CSV)
    for options, words in [
        ({"tokens": "syllables"}, "known: auto, json, characters"),
        ({"tokens": "bpe"}, "write bpe:SIZE"),
        ({"tokens": "bpe:many"}, "write bpe:SIZE"),
        ({"pad": "-"}, "needs max_length"),
        ({"max_length": 0}, "max_length=0"),
        ({"max_rows": 0}, "max_rows=0"),
    ]:
        with pytest.raises(OptionError, match=words):
            read(path, **options)
    with pytest.raises(DataError, match="has no column 'size'; it has 'name', 'colour'"):
        read(path, label_column="size")


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for name in ("t.csv.zst", "t.parquet"):
        with pytest.raises(MissingExtraError, match=r"pip install 'byheart\[data\]'"):
            read(write(tmp_path / name, b"x"))
    with pytest.raises(MissingExtraError, match=r"pip install 'byheart\[data\]'"):
        read(write(tmp_path / "t.csv", CSV), tokens="bpe:300")


def test_rows_that_will_not_fit_into_memory_are_refused_while_there_is_some(monkeypatch):
    monkeypatch.setattr("byheart.exact.budget.free_memory", lambda: 10_000)
    frame = {"code": [f"{k:09d}" for k in range(100)], "kind": [k % 2 for k in range(100)]}
    assert len(byheart.read(frame)) == 100  # few rows are not worth a look
    monkeypatch.setattr("byheart.data.read.columns._LOOK", 10)
    with pytest.raises(BudgetError, match=r"^20 rows with 180 tokens need about .* GiB are free; use fewer rows"):
        byheart.read(frame)
    monkeypatch.setattr("byheart.data.dataset.dataset._MANY", 10)
    with pytest.raises(BudgetError, match="100 rows"):
        byheart.memorize(frame["code"], frame["kind"], progress=False)
    monkeypatch.setattr("byheart.exact.budget.free_memory", lambda: None)
    assert byheart.memorize(frame["code"], frame["kind"], progress=False).certificate.verdict == "proved"
