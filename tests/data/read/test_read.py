"""Real tables: semicolons, no header, numbering columns, workbooks by mistake, streams, frames."""

from __future__ import annotations

import io
import sys

import pytest

import byheart
from byheart.data.read.account import settle_cells
from byheart.data.read.cells import read_cells
from byheart.data.read.options import Selection
from byheart.data.read.table import read, read_sequences
from byheart.errors import ConflictError, DataError, OptionError, TableError

ROWS = {"land": ["Peru", "Japan"], "town": ["Lima", "Tokyo"]}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize(
    "content",
    [
        "land;town\nPeru;Lima\nJapan;Tokyo\n",
        "\ufeffland;town\r\nPeru;Lima\r\nJapan;Tokyo\r\n",
        "sep=;\nland;town\nPeru;Lima\nJapan;Tokyo\n",
        "land\ttown\nPeru\tLima\nJapan\tTokyo\n",
        "land|town\nPeru|Lima\nJapan|Tokyo\n",
        '"land";"town"\n"Peru";"Lima"\n"Japan";"Tokyo"\n',
        ",land,town\n0,Peru,Lima\n1,Japan,Tokyo\n",
        "id,land,town\n7,Peru,Lima\n8,Japan,Tokyo\n",
        "land,town\n\n\nPeru,Lima\nJapan,Tokyo\n\n",
    ],
)
def test_separators_marks_and_numbering_columns(content, tmp_path):
    drop = [name for name in ("", "id") if content.startswith(f"{name},")]
    table = read(write(tmp_path / "t.csv", content), drop=drop)
    assert ["".join(row) for row in table.sequences] == ROWS["land"] and table.labels == ROWS["town"]


def test_what_was_guessed_is_told(tmp_path):
    table = read(
        write(tmp_path / "t.csv", "id;land;town;hint\n1;Peru;Lima;a\n"), label_column="town", drop=["id", "hint"]
    )
    assert "sequence from column 'land', label from column 'town'" in table.note
    assert "not used: 'id', 'hint'" in table.note and "separated by semicolons" in table.note
    assert table.reading == "input 'land' -> label 'town'; not used: 'id', 'hint'"


@pytest.mark.parametrize(
    ("header", "inputs", "label"),
    [
        ("name,alpha_2,numeric", "'name', 'alpha_2'", "numeric"),
        ("label,a,b", "'a', 'b'", "label"),
        ("id,text,source,label", "'text'", "label"),
        ("capital,name", "'name'", "capital"),
        ("a,b", "'a'", "b"),
    ],
)
def test_every_command_reads_the_same_columns(tmp_path, header, inputs, label):
    """`memorize` took name -> alpha_2 where `deploy` took all columns -> the last one."""
    cells = "\n".join(",".join(f"{name}{k}" for name in header.split(",")) for k in range(2))
    path = write(tmp_path / "t.csv", f"{header}\n{cells}\n")
    table, other = read(path), read_cells(path)
    assert table.reading == other.reading and f"{inputs} -> label {label!r}" in table.reading
    assert [column.name for column in other.columns] == list(table.selection.sequence_columns)


def test_a_first_line_that_may_be_a_row_is_refused_with_the_flag_that_loses_nothing(tmp_path):
    """Following the first suggestion once built a proved model with the row word -> length."""
    words = write(tmp_path / "w.csv", "word,length\nword,4\napple,5\n")
    for reading in (read, read_cells_settled):
        with pytest.raises(TableError, match="'word' is also a cell below it") as refused:
            reading(words)
        assert refused.value.flags == ("--header",)
    assert read(words, header=True).labels == ["4", "5"]
    numbers = write(tmp_path / "n.csv", "5.1,setosa\n4.9,setosa\n")
    for reading in (read, read_cells_settled):
        with pytest.raises(TableError) as refused:
            reading(numbers)
        assert refused.value.flags == ("--no-header",)


def read_cells_settled(path):
    return settle_cells(read_cells(path))


def test_cells_with_separators_and_unicode(tmp_path):
    content = 'town,land\n"Washington, D.C.",US\n東京,GR\n"say ""hi""",XX\n'
    table = read(write(tmp_path / "t.csv", content), tokens="characters")
    assert ["".join(row) for row in table.sequences] == ["Washington, D.C.", "東京", 'say "hi"']


def test_an_unnamed_label(tmp_path):
    table = read(write(tmp_path / "t.csv", "land,\nPeru,Lima\n"))
    assert table.labels == ["Lima"] and table.columns == {"sequence": "land", "label": ""}
    table = read(write(tmp_path / "t.csv", "land,,\nPeru,Lima,x\n"), label_column="")
    assert table.labels == ["Lima"] and "they are called '', ' (2)' here" in table.note


def test_no_header(tmp_path):
    path = write(tmp_path / "t.csv", "Peru,Lima\nJapan,Tokyo\n")
    table = read(path, header=False)
    assert table.labels == ["Lima", "Tokyo"] and table.columns == {"sequence": "column 1", "label": "column 2"}
    again = read(path, like=Selection(("column 1",), "column 2"))
    assert again.labels == table.labels, "a memory remembers that there was none"
    assert len(read_sequences(path, like=Selection(("column 1",), "column 2"))) == 2
    with pytest.raises(DataError, match=r"1 line does not have as many cells .*line 2 has 1\); add --uneven drop"):
        read(write(tmp_path / "t.csv", "Peru,Lima\nJapan\n"), header=False)
    kept = read(write(tmp_path / "t.csv", "Peru,Lima\nJapan\n"), header=False, uneven="drop")
    assert kept.labels == ["Lima"] and kept.not_here == {"uneven=drop": 1}
    with pytest.raises(OptionError, match="uneven='first' is not one of error, drop"):
        read(path, uneven="first")


def test_a_column_that_is_nearly_right(tmp_path):
    path = write(tmp_path / "t.csv", "Land,Town\nPeru,Lima\n")
    with pytest.raises(DataError, match="no column 'town'; it has 'Land', 'Town'; did you mean 'Town'"):
        read(path, label_column="town")


def test_all_columns(tmp_path):
    path = write(tmp_path / "iris.csv", "sepal,petal,kind\n5.1,1.4,setosa\n5.1,1.5,other\n")
    table = read(path, sequence_column="*", token_type="float")
    assert table.sequences == [[5.1, 1.4], [5.1, 1.5]] and table.labels == ["setosa", "other"]
    table = read(path, sequence_column=["*"], label_column="petal")
    assert table.columns == {"sequence": "sepal, kind", "label": "petal"}
    with pytest.raises(DataError, match="no column 'size'"):
        read(path, sequence_column="*", label_column="size")


def test_a_conflict_names_the_columns_that_were_guessed(tmp_path):
    content = "sepal,petal,kind\n5.1,1.4,setosa\n5.1,1.5,other\n"
    table = read(write(tmp_path / "iris.csv", content), sequence_column="sepal")
    with pytest.raises(ConflictError, match=r"--conflicts .*first.*column 'sepal'.*--sequence-column"):
        byheart.memorize(table, progress=False)


FOREIGN = [
    ("t.csv", b"PK\x03\x04\x14\0\x06\0", "save the sheet as CSV"),
    ("t.xlsx", b"PK\x03\x04\x14\0\x06\0", "save the sheet as CSV"),
    ("t.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "save the sheet as CSV"),
    ("t.csv", b"\x1f\x8b\x08\x00", "end in .gz"),
    ("t.csv", b"\x28\xb5\x2f\xfd", "end in .zst"),
    ("t.csv.bz2", b"BZh91AY&SY", "gzip or zstd"),
    ("t.data", b"PAR1", "end in .parquet"),
    ("t.pkl", b"\x80\x04\x95\x10\0", "could run code"),
    ("t.db", b"SQLite format 3\0", "as CSV first"),
    ("t.csv", "land,town\nPeru,Lima\n".encode("utf-16")[:-1], "is not utf-16"),
    ("t.csv", "land,town\nPerú,Lima\n".encode("cp1252"), "--encoding cp1252"),
    ("t.json", b'{"byheart":1,"memory":{}}', "is a memory, not data"),
]


@pytest.mark.parametrize(("name", "content", "words"), FOREIGN)
def test_files_that_are_no_tables(name, content, words, tmp_path):
    with pytest.raises(DataError, match=words):
        read(write(tmp_path / name, content))


def test_values_that_are_no_tables():
    for value in ([1, 2], 7, object()):
        with pytest.raises(DataError, match=f"a {type(value).__name__} cannot be read"):
            read(value)
    assert read(ROWS).labels == ROWS["town"]


def test_frames_of_many_kinds():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    assert read(polars.LazyFrame(ROWS)).labels == ROWS["town"]
    assert read(pytest.importorskip("pyarrow").table(ROWS)).labels == ROWS["town"]
    twice = pandas.concat([pandas.DataFrame(ROWS), pandas.DataFrame(ROWS)], axis=1)
    with pytest.raises(DataError, match="two columns named 'land'"):
        read(twice)
    numbers = pandas.DataFrame({"x": [1.5, 2.5], "y": [1, 2], "kind": ["a", "b"]})
    assert read(numbers, sequence_column=["x", "y"]).sequences == [[1.5, 1], [2.5, 2]]


def test_arrow_streams_and_files_in_batches(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [f"{k:04}" for k in range(5000)]
    table = pa.table({"label": list(range(5000)), "text": names, "heavy": ["x"] * 5000})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=700)
    for name, make in (("s.arrow", pa.ipc.new_stream), ("f.arrow", pa.ipc.new_file)):
        with make(str(tmp_path / name), table.schema) as sink:
            sink.write_table(table, max_chunksize=600)
    write(tmp_path / "one.feather", b"FEA1\0\0")
    with pytest.raises(DataError, match="version 1 of Feather"):
        read(tmp_path / "one.feather")
    for name in ("t.parquet", "s.arrow", "f.arrow"):
        found = read(tmp_path / name)
        assert found.labels == list(range(5000)) and "".join(found.sequences[4321]) == "4321"
        assert len(read(tmp_path / name, max_rows=10)) == 10


def test_a_small_parquet_file_cannot_fill_the_memory(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": ["a" * 1000] * 100_000, "label": [1] * 100_000}), tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 100_000
    with pytest.raises(DataError, match="raise --max-bytes"):
        read(tmp_path / "bomb.parquet", max_bytes=10_000_000)
    assert len(read(tmp_path / "bomb.parquet", max_bytes=10_000_000, max_rows=5)) == 5


def test_hugging_face_splits(tmp_path):
    datasets = pytest.importorskip("datasets")
    test = {"land": ["Chile"], "town": ["Santiago"]}
    parts = {"train": datasets.Dataset.from_dict(ROWS), "test": datasets.Dataset.from_dict(test)}
    both = datasets.DatasetDict(parts)
    both.save_to_disk(str(tmp_path / "saved"))
    table = read(tmp_path / "saved")
    assert table.labels == ROWS["town"] and "split 'train' (there are train, test)" in table.note
    assert read(f"hf:{tmp_path / 'saved'}:test").labels == ["Santiago"]
    assert read(both).labels == ROWS["town"]
    with pytest.raises(DataError, match="no split 'dev'; it has train, test"):
        read(f"hf:{tmp_path / 'saved'}:dev")
    assert read(parts["test"].to_iterable_dataset()).labels == ["Santiago"], "streamed, row by row"


def test_a_folder_of_files(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    write(tmp_path / "files" / "train.csv", "land,town\nPeru,Lima\nJapan,Tokyo\n")
    assert read(tmp_path / "files").labels == ROWS["town"]
    write(tmp_path / "files" / "files.py", "raise SystemExit")
    with pytest.raises(DataError, match="never run"):
        read(tmp_path / "files")


def test_reading_tells_how_far_it_is(tmp_path):
    printed: list[tuple[str, int]] = []

    class Listener:
        def stage(self, name, total=None):
            from contextlib import contextmanager

            @contextmanager
            def running():
                class Stage:
                    def advance(self, count=1):
                        printed.append((name, count))

                yield Stage()

            return running()

        def say(self, message):
            raise AssertionError(message)

    read(write(tmp_path / "t.csv", "x,y\n" + "a,1\n" * 2500), progress=Listener())
    assert printed == [("reading rows", 1000)] * 2 + [("tokenizing rows", 1000)] * 2


def test_semicolons_on_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"land;town\nPeru;Lima\n")))
    assert read("-").labels == ["Lima"]


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_packed_arrow_part_is_not_unpacked_beyond_the_limit(tmp_path, kind):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"text": ["a" * 3_000_000, "b"], "label": ["x", "y"]})
    path = tmp_path / "bomb.arrow"
    make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with make(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    assert path.stat().st_size < 10_000
    before = pa.total_allocated_bytes()
    with pytest.raises(DataError, match=r"unpacks to 3,000,001 bytes; the limit is 1,000,000: raise --max-bytes"):
        read(str(path), max_bytes=1_000_000)
    assert pa.total_allocated_bytes() <= before
    assert len(read(str(path), tokens="characters").labels) == 2


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("cp1252", "cp1252"), ("utf-16", None), ("utf-16-le", "utf-16-le"), ("shift_jis", "shift_jis")],
)
def test_other_encodings_are_read_where_they_are_named_or_marked(tmp_path, encoding, said):
    path = tmp_path / "t.csv"
    name = "日本" if encoding == "shift_jis" else "Köln"
    path.write_bytes(f"stadt,land\r\n{name},x\r\nRom,y\r\n".encode(encoding))
    table = read(path, encoding=said, tokens="words")
    assert (table.sequences, table.labels) == ([[name], ["Rom"]], ["x", "y"])


def test_an_encoding_that_is_wrong_or_unknown_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("stadt,land\nKöln,x\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"line 2 is not UTF-8 .*--encoding cp1252"):
        read(path)
    with pytest.raises(DataError, match="is not utf-16"):
        read(path, encoding="utf-16")
    for unknown in ("klingon", "base64", ""):
        with pytest.raises(OptionError, match="is not known; try cp1252"):
            read(path, encoding=unknown)


def test_lines_that_end_with_a_carriage_return_alone(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"name,kind\rcat,a\rdog,b\r")
    assert read(path, tokens="words").labels == ["a", "b"]


def test_dates_of_a_frame_are_queried_as_pandas_writes_them():
    pandas = pytest.importorskip("pandas")
    days = pandas.to_datetime(["2024-01-01", "2024-01-02", None])
    frame = pandas.DataFrame({"day": days, "place": ["Oslo", "Rome", "Lima"], "sky": ["sun", "fog", "sun"]})
    assert read_cells(frame).columns[0].cells == ["2024-01-01", "2024-01-02", None]
    memory = byheart.memorize(frame[:2], label="sky", progress=False)
    assert memory.predict([[frame.day.astype(str)[1], "Rome"]]) == ["fog"]
    times = pandas.DataFrame(
        {"time": pandas.to_datetime(["2024-01-01 06:00", "2024-01-02 00:00"]), "sky": ["sun", "fog"]}
    )
    assert read_cells(times).columns[0].cells == times.time.astype(str).tolist()
