"""Where documents come from: every kind of file, tokens instead of texts, and given distributions."""

from __future__ import annotations

import gzip
import json

import pytest
from click.testing import CliRunner

from byheart.cli import commands
from byheart.data.read.documents import WORDS, GivenDistributions, read_documents, read_source
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import DataError, OptionError
from byheart.memory.documents import memorize_documents
from tests.corpora import Corpus

ROWS = [{"id": 1, "text": "a cat sat, then ran", "kind": "x"}, {"id": 2, "text": "a dog ran", "kind": "y"}]
TEXTS = [row["text"] for row in ROWS]


def write(path, data: bytes):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


CSV = b'id,text,kind\n1,"a cat sat, then ran",x\n2,a dog ran,y\n'
JSON_LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
FILES = {
    "d.jsonl": JSON_LINES,
    "d.ndjson": b"\n" + JSON_LINES + b"\n\n",
    "d.json": json.dumps(ROWS).encode(),
    "d.csv": CSV,
    "d.csv.gz": CSV,
    "d.jsonl.gz": JSON_LINES,
    "d.tsv": CSV.replace(b",text,", b"\ttext\t").replace(b'1,"a cat sat, then ran",x', b"1\ta cat sat, then ran\tx")
    .replace(b"2,a dog ran,y", b"2\ta dog ran\ty"),
    "d.data": JSON_LINES,  # an ending without a meaning
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_tables(tmp_path, name: str) -> None:
    path = write(tmp_path / name, FILES[name])
    assert read_documents(path) == TEXTS
    assert read_documents(path, sequence_column="kind") == ["x", "y"]
    assert read_documents(path, where={"kind": "y"}) == TEXTS[1:]
    assert read_documents(path, where={"id": "2"}, max_rows=5) == TEXTS[1:]
    with pytest.raises(DataError, match="no documents with kind=z"):
        read_documents(path, where={"kind": "z"})


@pytest.mark.parametrize("name", ["d.txt", "d.txt.gz", "d", "d.py"])
def test_plain_text(tmp_path, name: str) -> None:
    path = write(tmp_path / name, "one two\r\n\n  \nthree\u2028four {\n{not json\n".encode())
    assert read_documents(path) == ["one two", "three\u2028four {", "{not json"]
    with pytest.raises(DataError, match="no columns"):
        read_documents(path, sequence_column="story")


def test_a_line_separator_inside_json(tmp_path) -> None:
    path = write(tmp_path / "d.jsonl", '{"text": "a\u2028b c"}\n'.encode())
    assert read_documents(path) == ["a\u2028b c"]


def test_parquet(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(ROWS).to_parquet(tmp_path / "d.parquet")
    assert read_documents(tmp_path / "d.parquet") == TEXTS


def test_tokens_instead_of_texts(tmp_path) -> None:
    path = write(tmp_path / "d.jsonl", b'{"tokens": ["New York", "is", 7]}\n["big", "is", "New York"]\n')
    documents = read_documents(write(tmp_path / "e.jsonl", b'{"tokens": ["New York", "is", 7]}\n'))
    assert documents == [("New York", "is", 7)]
    with pytest.raises(DataError, match="line 2"):
        read_documents(path)  # the first row has columns, the second none
    corpus = Corpus.of_texts([*documents, "New York"])
    assert set(corpus.vocabulary) == {"New York", "is", 7, "New", "York"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"text": 7}\n', "which column"),
        (b'{"text": null, "other": null}\n', "which column"),
        (b'{"text": "a b"}\n{"text": null}\n', "missing in line 2"),
        (b'{"text": "a b"}\nnope\n', "line 2: this is not JSON"),
        (b"", "is empty"),
        (b"\xff\xfe\n", "not utf-16"),
    ],
    ids=range(6),
)
def test_bad_files(tmp_path, data: bytes, words: str) -> None:
    path = write(tmp_path / "d.jsonl", data)
    with pytest.raises(DataError, match=words):
        read_documents(path)


def test_missing_and_foreign(tmp_path) -> None:
    with pytest.raises(DataError, match="no file"):
        read_documents(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="unpacked"):
        bad = tmp_path / "d.txt.gz"
        bad.write_bytes(b"not packed")
        read_documents(bad)
    with pytest.raises(OptionError, match="max_rows=0 must be at least 1"):
        read_documents(tmp_path / "d.txt", max_rows=0)


GIVEN = (
    b'{"context": "a", "next": {"b": 0.25, "c": 0.75, "never": 0}}\n'
    b'{"context": ["a", "b"], "next": {"a": 3}}\n'
    b'{"context": "c", "next": {"a": 1e-3, "b": 0.999}}\n'
)


def test_given_distributions(tmp_path) -> None:
    path = write(tmp_path / "given.jsonl", GIVEN)
    given = read_source(path)
    assert isinstance(given, GivenDistributions)
    assert given.contexts == ["a", ("a", "b"), "c"] and given.weights[0] == {"b": 0.25, "c": 0.75, "never": 0}
    memory = memorize_documents(given, gap=1e-3)
    assert memory.certificate.verdict == "proved" and memory.generate("a b") == "a b a"
    with pytest.raises(DataError, match="not documents"):
        read_documents(path)


def test_given_distributions_on_the_command_line(tmp_path) -> None:
    path, saved = write(tmp_path / "given.jsonl", GIVEN), tmp_path / "given.byheart"
    words = ["memorize", str(path), "--construction", "madden24", "--json", "-o", str(saved)]
    result = CliRunner().invoke(commands, words, standalone_mode=False)
    assert json.loads(result.stdout)["verdict"] == "proved"
    again = CliRunner().invoke(commands, ["verify", str(saved), str(path), "--json"], standalone_mode=False)
    assert json.loads(again.stdout)["same_data"] and again.return_value == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"context": "a", "next": {"b": -1}}\n', "weight -1"),
        (b'{"context": "a", "next": {"b": "x"}}\n', "weight 'x'"),
        (b'{"context": "a", "next": {"b": true}}\n', "weight True"),
        (b'{"context": "a", "next": {"b": 1e-200, "c": 1e200}}\n', "too small for a float64"),
        (b'{"context": "a", "next": {}}\n', "no class with a weight"),
        (b'{"context": "", "next": {"a": 1}}\n', "row 0 is empty"),
        (b'{"context": "a", "next": {"b": 1}}\n{"context": ["a"], "next": {"c": 1}}\n', "rows 0 and 1"),
    ],
    ids=range(7),
)
def test_bad_distributions(tmp_path, data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        memorize_documents(read_source(write(tmp_path / "given.jsonl", data)))


def test_tokenizer_names() -> None:
    assert Tokenizer("wordpunct") == WORDS
    with pytest.raises(OptionError, match="unknown tokens"):
        Tokenizer("syllables")


def test_characters_and_words() -> None:
    assert WORDS.cut('He said, "No!"') == ["He", "said", ",", '"', "No", '!"']
    assert Tokenizer("characters").cut("ab c") == ["a", "b", " ", "c"]
    assert WORDS.join(["One", "day", ",", "a", "cat", "."]) == "One day, a cat."


def test_files(tmp_path) -> None:
    lines = tmp_path / "docs.jsonl"
    lines.write_text('{"id": 1, "story": "a b", "source": "x"}\n\n{"id": 2, "story": "c d", "source": "y"}\n')
    assert read_documents(lines) == ["a b", "c d"]
    assert read_documents(lines, where={"source": "y"}) == ["c d"]
    assert read_documents(lines, max_rows=1) == ["a b"]
    plain = tmp_path / "docs.txt"
    plain.write_text("one two\n\nthree four\n")
    assert read_documents(plain) == ["one two", "three four"]
    with pytest.raises(DataError, match="line 2: this is not JSON"):
        lines.write_text('"a b"\nnope\n')
        read_documents(lines)
    with pytest.raises(DataError, match="which column"):
        lines.write_text('{"p": "a", "q": "b"}\n')
        read_documents(lines)


def test_documents_are_read_by_the_options_of_tables(tmp_path) -> None:
    """A header that is not there, another encoding: the same flags mean the same for rows and for documents."""
    path = write(tmp_path / "d.csv", "caf\xe9 ol\xe9,x\nun the,y\n".encode("latin-1"))
    how = {"sequence_column": "column 1", "header": False, "encoding": "latin-1"}
    assert read_documents(path, **how) == ["café olé", "un the"]
    flags = [
        "--sequence-column",
        "column 1",
        "--no-header",
        "--encoding",
        "latin-1",
        "-o",
        str(tmp_path / "m"),
        "--json",
    ]
    for construction in ("madden24", "recital"):
        words = ["memorize", str(path), "--construction", construction, *flags]
        done = CliRunner().invoke(commands, words, standalone_mode=False)
        assert done.exception is None and json.loads(done.stdout)["verdict"] == "proved"
    with pytest.raises(OptionError, match="in one column"):
        read_documents(path, sequence_column=["column 1", "column 2"])
