"""Files: what is guessed, what is read, and how damage is named."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from byheart.cli import commands
from byheart.data.dataset.settle import settle_table
from byheart.data.read import records
from byheart.data.read.formats import delimited, json_lines, numpy_arrays
from byheart.data.read.records import read_records
from byheart.data.read.sources import Limits
from byheart.data.read.table import Table, read_sequences, tokenize
from byheart.data.read.table import read as read_table
from byheart.data.values import same
from byheart.errors import ByheartError, ConflictError, DataError, OptionError


def write(folder: Path, content: str | bytes, name: str = "table.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def read(folder: Path, content: str | bytes, name: str = "table.csv", **options: Any) -> Table:
    return read_table(write(folder, content, name), **options)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("text,label\nab,1\nb,-2\n", "t.csv"),
        ("\ufefftext,label\r\nab,1\r\nb,-2", "t.csv"),
        ("\n\ntext,label\n\nab,1\n\nb,-2\n", "t.csv"),
        ("text\tlabel\nab\t1\nb\t-2\n", "t.tsv"),
        ('label,text\n1,"[""a"", ""b""]"\n-2,b\n', "t.csv"),
        ('{"text": "ab", "label": 1}\n\n{"label": -2, "text": ["b"]}\n', "t.jsonl"),
        ('{"text": "ab", "label": 1}\n{"label": -2, "text": "b"}', "rows"),
        ('[{"text": "ab", "label": 1},\n {"label": -2, "text": "b"}]', "t.json"),
        ("a,b\nab,1\nb,-2\n", "t.csv"),
    ],
)
def test_formats_agree(tmp_path: Path, content: str, name: str) -> None:
    labels = ["1", "-2"] if name.endswith((".csv", ".tsv")) else [1, -2]  # a text format has texts
    table = read(tmp_path, content, name)
    assert table.sequences == [["a", "b"], ["b"]] and same(table.labels, labels)
    assert table.tokens.kind == "characters" and len(table) == 2


def test_packed_files(tmp_path: Path) -> None:
    packed = gzip.compress(b"text,label\nab,1\n")
    assert read(tmp_path, packed, "t.csv.gz").labels == ["1"]
    with pytest.raises(DataError, match="unpacked"):
        read(tmp_path, packed[:-9], "t.csv.gz")
    with pytest.raises(DataError, match="unpacked"):
        read(tmp_path, b"text,label", "t.csv.gz")


def test_zstandard_files(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(b"text,label\nab,1\n")
    assert read(tmp_path, packed, "t.csv.zst").labels == ["1"]
    with pytest.raises(DataError, match="unpacked"):
        read(tmp_path, b"plain text", "t.csv.zst")


def test_columns_by_name(tmp_path: Path) -> None:
    content = "id,Text,meaning\n1,ab,x\n2,b,y\n"
    table = read(tmp_path, content, label_column="meaning")
    assert table.columns == {"sequence": "Text", "label": "meaning"} and "'meaning'" in table.note
    assert read(tmp_path, content, sequence_column="meaning", label_column="id").labels == ["1", "2"]
    with pytest.raises(DataError, match="no column 'nope'; it has 'id', 'Text', 'meaning'"):
        read(tmp_path, content, label_column="nope")
    with pytest.raises(DataError, match="add a column with the labels"):
        read(tmp_path, "text\nab\n")


@pytest.mark.parametrize("cells", [["1", "-2", "30"], ["1", "01", "2"], ["+7", " 7", "7"], ["1.5", "2", "9" * 5000]])
def test_cells_stay_the_texts_that_they_are(tmp_path: Path, cells: list[str]) -> None:
    assert read(tmp_path, "x,y\n" + "".join(f"a,{cell}\n" for cell in cells)).labels == cells


def test_ways_to_cut() -> None:
    assert tokenize("to be", "words") == ["to", "be"]
    assert tokenize("to be", "characters") == list("to be")
    assert tokenize(" [1, [2]]", "json") == [1, [2]]
    assert tokenize("[x", "auto") == ["[", "x"]
    assert tokenize("é", "bytes") == [195, 169]
    assert len(tokenize("\ud800", "bytes")) == 3
    with pytest.raises(DataError, match="not a JSON list"):
        tokenize("ab", "json")
    with pytest.raises(OptionError, match="syllables"):
        tokenize("ab", "syllables")


def test_vectors_and_labels_per_token(tmp_path: Path) -> None:
    line = '{"tokens": [[0.5, 1], [2, 3]], "labels": ["u", "v"]}'
    table = read(tmp_path, line, "t.jsonl", task="causal")
    data = settle_table(table).dataset
    assert (data.d, data.n, data.classes) == (3, 2, ("u", "v"))
    with pytest.raises(DataError, match=r"line 1.*list with one label per token"):
        read(tmp_path, '{"x": [1], "y": 5}', "t.jsonl", task="causal")
    with pytest.raises(DataError, match="line 2: there are 2 tokens but 1 labels"):
        read(tmp_path, '{"x": [1], "y": [5]}\n{"x": [1, 2], "y": [5]}', "t.jsonl", task="seq-to-seq")


def test_conflicts_name_the_lines(tmp_path: Path) -> None:
    table = read(tmp_path, "text,label\nab,1\n\nab,2\n")
    with pytest.raises(ConflictError, match=r"row 0 is .*table.csv, line 2; row 1 is .*table.csv, line 4") as caught:
        settle_table(table)
    assert caught.value.rows == (0, 1)


DEEP = "[" * 100_000
BAD: list[tuple[str | bytes, str, str]] = [
    ("", "t.csv", "is empty"),
    (" \n\n", "t.csv", "is empty"),
    ("", "t.jsonl", "is empty"),
    ("text,label\n", "t.csv", "no rows"),
    ("text,label\nab,1\nab\n", "t.csv", r"line 3 has 1\); add --uneven drop"),
    ("text,label\nab,1,2\n", "t.csv", "line 2 has 3, the columns are 2"),
    ('text,label\n"ab,1\nb,2\n', "t.csv", "line 3: this is not CSV"),
    ('text,label\n"ab"c,1\n', "t.csv", "line 2: this is not CSV"),
    (b"text,label\nab,1\n\xff\xfe,2\n", "t.csv", "line 3 is not UTF-8"),
    ("text,label\nab,1\n".encode("utf-16")[:-1], "t.csv", "is not utf-16"),
    ("text,label\n,1\n", "t.csv", "the sequence is missing in line 2"),
    ("text,label\n[],1\n", "t.csv", "the sequence is missing in line 2"),
    ('{"text": "a", "label": 1}\n{"text": "b", "label"', "t.jsonl", "line 2"),
    ('{"text": "a", "label": 1, "label": 2}', "t.jsonl", "line 1: the key 'label' occurs twice"),
    ('{"text": "a", "label": 1}\n[1, 2]', "t.jsonl", r"line 2 is \[1, 2\], not an object"),
    ('{"text": "a", "label": 1}\n{"text": "b"}', "t.jsonl", "the label is missing in line 2"),
    ('{"text": "a"}\n{"text": "b", "label": 1}', "t.jsonl", "the label is missing in line 1"),
    ('{"text": [1, NaN], "label": 1}', "t.jsonl", "line 1: NaN is not a number"),
    ('{"text": [-Infinity], "label": 1}', "t.jsonl", "line 1: -Infinity is not a number"),
    ('{"text": [1e999], "label": 1}', "t.jsonl", "line 1: 1e999 is too large"),
    ('{"text": "a", "label": 1}\n{"text": ' + DEEP, "t.jsonl", "line 2: the JSON is nested too deeply"),
    ('{"text": [' + "9" * 5000 + '], "label": 1}', "t.jsonl", "line 1"),
    ('{"text": ["a", null], "label": 1}', "t.jsonl", "the sequence is missing in line 1"),
    ('{"text": [[1, "a"]], "label": 1}', "t.jsonl", "line 1: token 0 is"),
    ('{"text": [[]], "label": 1}', "t.jsonl", "line 1: token 0 is"),
    ('{"text": {"a": 1}, "label": 1}', "t.jsonl", "line 1: token 0 is"),
    ('{"text": null, "label": 1}', "t.jsonl", "the sequence is missing in line 1"),
    ("[]", "t.json", "empty list"),
    ('{"text"', "t.json", "line 1"),
    (b"PK\x03\x04damaged", "t.npz", "is not a plain .npz file"),
    (b"\x93NUMPY", "t.npy", "is not a plain .npy file"),
    (b"no parquet", "t.parquet", "parquet"),
    (b"no arrow", "t.arrow", "arrow"),
]


@pytest.mark.parametrize(("content", "name", "message"), BAD, ids=range(len(BAD)))
def test_damage_is_named(tmp_path: Path, content: str | bytes, name: str, message: str) -> None:
    if name.endswith((".parquet", ".arrow")):
        pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=message):
        read(tmp_path, content, name)


def test_list_labels_need_another_task(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="seq-to-seq or causal"):
        settle_table(read(tmp_path, '{"text": "ab", "label": [1, 2]}', "t.jsonl"))


def test_a_format_is_one_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a format takes: a function that is registered. Every command and Python read it from then on."""
    monkeypatch.setattr(records, "_BY_ENDING", dict(records._BY_ENDING))

    @records.reader(".colon")
    def colons(source: records.Source) -> records.Records:
        numbered, _ = source.lines()

        def select(names: tuple[str, ...]) -> records.Cells:
            for number, line in numbered:
                cells = dict(zip(("key", "value"), line.rstrip().split(":"), strict=True))
                yield number, tuple(cells[name] for name in names)

        return records.Records(("key", "value"), select, source.name, "line")

    (tmp_path / "t.colon").write_text("cat:01\ndog:1\n")
    (tmp_path / "t.colon.gz").write_bytes(gzip.compress(b"cat:01\ndog:1\n"))
    for name in ("t.colon", "t.colon.gz"):
        table = read_table(tmp_path / name)
        assert table.columns == {"sequence": "key", "label": "value"} and table.labels == ["01", "1"]
    result = CliRunner().invoke(commands, ["memorize", str(tmp_path / "t.colon"), "-o", str(tmp_path / "m"), "--quiet"])
    assert result.exit_code == 0 and result.output.startswith("proved")


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        read_table(str(tmp_path / "nothing.csv"))


def test_long_cells_and_the_global_limit(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    assert len(read(tmp_path, "text,label\n" + "a" * 300_000 + ",1\n").sequences[0]) == 300_000
    assert csv.field_size_limit() == before


def test_quoted_cells_over_several_lines(tmp_path: Path) -> None:
    table = read(tmp_path, 'text,label\n"a\nb",1\nc,2\n', tokens="characters")
    assert table.sequences == [["a", "\n", "b"], ["c"]]


def test_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([[1, 2, 0], [3, 4, 1]]))
    table = read_table(str(tmp_path / "t.npy"))
    assert table.sequences == [[1, 2], [3, 4]] and table.labels == [0, 1]
    np.savez(tmp_path / "t.npz", x=np.array([[0.5, 1.5]]), y=np.array(["u"]))
    data = settle_table(read_table(str(tmp_path / "t.npz"))).dataset
    assert data.classes == ("u",) and data.encoder.symbols is None


def test_frames() -> None:
    pandas = pytest.importorskip("pandas")
    table = read_table(pandas.DataFrame({"text": ["ab", "b"], "label": [1, 2]}))
    assert table.sequences == [["a", "b"], ["b"]] and table.labels == [1, 2]
    with pytest.raises(DataError, match="the frame: the sequence is missing in row 1"):
        read_table(pandas.DataFrame({"text": ["ab", float("nan")], "label": [1, 2]}))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def feed(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    feed(b'{"text": "ab", "label": 1}')
    assert read_table("-").sequences == [["a", "b"]]
    feed(b"text,label\nab,1\n")
    assert read_table("-").labels == ["1"]
    feed(b"ab\n\n[1, 2]\n")
    assert read_sequences("-", tokens="characters") == [["a", "b"], [1, 2]]


def test_sequences_alone(tmp_path: Path) -> None:
    assert read_sequences(write(tmp_path, "label,text\n1,ab\n"), tokens="characters") == [["a", "b"]]
    assert read_sequences(write(tmp_path, "ab\nc\n", "t.txt"), tokens="characters") == [["a", "b"], ["c"]]


@given(content=st.binary(max_size=60), name=st.sampled_from(["t.csv", "t.jsonl", "t.json", "t.npy", "t.npz", "t.txt"]))
def test_no_bytes_cause_a_traceback(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    path = write(tmp_path_factory.getbasetemp(), content, name)
    with contextlib.suppress(ByheartError):
        read_records(path)
        read_table(path)


@given(st.text(max_size=40))
def test_no_text_causes_a_traceback(text: str) -> None:
    for tokens in ("auto", "characters", "words", "json", "bytes"):
        with contextlib.suppress(DataError):
            tokenize(text, tokens)


@pytest.mark.parametrize(
    ("line", "found"), [("a;b;c", ";"), ("a,b;c,d", ","), ('"a;b;c",d', ","), ("plain", ","), ("a\tb|c\td", "\t")]
)
def test_the_separator_is_the_most_frequent_one_outside_quotes(line: str, found: str) -> None:
    assert delimited.separator(line) == found


def test_made_up_names_are_recognized_and_real_ones_are_not() -> None:
    assert delimited.is_made_up(delimited.made_up_name(12))
    assert not any(map(delimited.is_made_up, ("column", "column x", "my column 1", "column 1 ")))


def test_an_array_that_unpacks_to_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", np.zeros((1000, 3)))
    with pytest.raises(DataError, match="24,000 bytes"):
        read_records(str(tmp_path / "big.npy"), limits=Limits(max_bytes=1000))
    numpy_arrays.bounded("x", 1000, Limits(max_bytes=1000))


def test_values_of_json_are_objects_or_rows() -> None:
    objects = json_lines.from_values("x", "row", iter([(1, {"a": 1}), (2, {"b": 2})]))
    assert objects.columns == ("a", "b") and list(objects.select(("b",))) == [(1, (None,)), (2, (2,))]
    texts = json_lines.from_values("x", "row", iter([(1, "ab"), (2, ["c"])]))
    assert list(texts.select(texts.columns)) == [(1, ("ab",)), (2, (["c"],))]
    with pytest.raises(DataError, match="row 2"):
        json_lines.from_values("x", "row", iter([(1, {"a": 1}), (2, [3])]))
