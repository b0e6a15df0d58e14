"""Damaged files: an error of byheart's own or a correct answer, never a crash and never an incorrect answer.

Some hundred damages each by default; `-m slow` tries more than ten thousand.
"""

from __future__ import annotations

import gzip
import io
import json
import resource
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart
from byheart.data.dataset.settle import settle_table
from byheart.data.read.table import read
from byheart.data.tokens import pieces
from byheart.errors import BudgetError, ByheartError, FileFormatError, TableError
from byheart.files import canonical, digest
from tests.fuzz.damage import damaged

FEW, MANY = 120, 2000
ROWS = {"name": ["cat", "act", "dog", "tomcat"], "label": ["red", "blue", "red", "grey"]}


def csv_file() -> bytes:
    return b'name,label\ncat,red\n"act",blue\n"[1, 2]",3\ndog,"a ""b"""\n'


def json_lines() -> bytes:
    second = b'{"name": [1, [2.5, 3], "x"], "label": "\\u00e9"}'
    return b'{"name": "cat", "label": 1}\n' + second + b'\n{"label": null, "name": ""}\n'


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(12).reshape(4, 3))
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, name=np.arange(12.0).reshape(4, 3), label=np.array(ROWS["label"]))
    return file.getvalue()


def parquet() -> bytes:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    pq.write_table(pa.table(ROWS), file)
    return file.getvalue()


def arrow() -> bytes:
    pa, fe = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    file = io.BytesIO()
    fe.write_feather(pa.table(ROWS), file)
    return file.getvalue()


def arrow_stream() -> bytes:
    pa = pytest.importorskip("pyarrow")
    file = io.BytesIO()
    with pa.ipc.new_stream(file, pa.table(ROWS).schema) as sink:
        sink.write_table(pa.table(ROWS))
    return file.getvalue()


def zst() -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(csv_file() * 10)


FORMATS = {
    "t.csv": csv_file,
    "semicolons.csv": lambda: b"sep=;\n" + csv_file().replace(b",", b";"),
    "t.tsv": lambda: csv_file().replace(b",", b"\t"),
    "t.jsonl": json_lines,
    "t.json": lambda: b"[" + json_lines().strip().replace(b"\n", b",") + b"]",
    "t.txt": lambda: b"to be\nor not\n",
    "t.npy": npy,
    "t.npz": npz,
    "t.parquet": parquet,
    "t.arrow": arrow,
    "stream.arrow": arrow_stream,
    "t.csv.gz": lambda: gzip.compress(csv_file() * 10),
    "t.csv.zst": zst,
}


@pytest.fixture(scope="module", autouse=True)
def bounded_memory():
    """Eight gigabytes of address space: whoever asks for more because of a damaged length fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 33, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def try_reading(path, content: bytes, tokens: str) -> None:
    path.write_bytes(content)
    try:
        table = read(path, tokens=tokens, max_bytes=1 << 24)
        settle_table(table, policy="drop")
    except TableError as error:  # one line per doubt, then the flags
        assert len(str(error)) < 1200, error
    except ByheartError as error:
        assert "\n" not in str(error) and len(str(error)) < 600, error


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FORMATS)
def test_readers(name, count, tmp_path):
    original = FORMATS[name]()
    try_reading(tmp_path / name, original, "auto")

    @settings(max_examples=count)
    @given(damaged([original]), st.sampled_from(["auto", "characters", "bytes", "wordpunct"]))
    def check(content, tokens):
        try_reading(tmp_path / name, content, tokens)

    check()


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_tokenizers(count, tmp_path):
    """A damaged tokenizer.json is refused, or still tokenizes texts."""
    pytest.importorskip("tokenizers")
    model = pieces.train("wordpiece", 40, ["to be or not to be", "that is it"]).encode()

    @settings(max_examples=count)
    @given(damaged([model]))
    def check(content):
        (tmp_path / "tokenizer.json").write_bytes(content)
        try:
            read({"text": ["to be", "or not"], "label": [0, 1]}, tokens=str(tmp_path / "tokenizer.json"))
        except ByheartError as error:
            assert "\n" not in str(error) and len(str(error)) < 600, error

    check()


CASES = {
    "next-token": (["cat", "act", "dog", "go"], ["animal", "deed", "animal", ("two", 2)]),
    "causal": (["abc", "b"], [["x", "y", "z"], ["y"]]),
    "pieces": (["to be", "or not"], [0, 1]),  # with a trained tokenizer inside, where that library is installed
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Saved memories with what they answer."""
    folder, found = tmp_path_factory.mktemp("files"), []
    for task, (rows, labels) in CASES.items():
        if task == "pieces":
            trained = "bpe:258" if find_spec("tokenizers") else "words"
            memory = byheart.memorize(read({"text": rows, "label": labels}, tokens=trained), progress=False)
        else:
            memory = byheart.memorize(rows, labels, task=task, construction="compact", progress=False)
        memory.save(folder / task)
        found.append(((folder / task).read_bytes(), rows, labels))
    return found


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_damaged_memory_is_refused(files, count, tmp_path):
    originals = {content: (rows, labels) for content, rows, labels in files}

    @settings(max_examples=count)
    @given(damaged(list(originals)))
    def check(content):
        (tmp_path / "m").write_bytes(content)
        if content in originals:
            rows, labels = originals[content]
            assert byheart.load(tmp_path / "m").predict(rows) == labels
            return
        with pytest.raises(FileFormatError) as caught:
            byheart.load(tmp_path / "m")
        assert len(str(caught.value)) < 600

    check()


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=5)
    | st.sampled_from(["0x1p99999999999", "-0x0", "0x" + "f" * 50, "1e5", "characters", -1, 0, 2**31, 10**40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def forged(draw: st.DrawFn, body: object) -> object:
    """The body with one part, anywhere in it, replaced by junk or omitted; the checksum is then corrected."""
    body = json.loads(json.dumps(body))
    here, steps = body, draw(st.integers(1, 7))
    for step in range(steps):
        keys = sorted(here) if isinstance(here, dict) else range(len(here))
        if not keys:
            break
        key = draw(st.sampled_from(list(keys)))
        if step == steps - 1 or not isinstance(here[key], dict | list) or not here[key]:
            if draw(st.booleans()):
                here[key] = draw(JUNK)
            else:
                del here[key]
            break
        here = here[key]
    return body


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("task", CASES)
def test_a_forged_memory_is_refused_or_a_memory(task, count, files, tmp_path):
    """A right checksum is no guarantee: what loads can be queried, verified, saved and loaded again."""
    content, rows, labels = files[list(CASES).index(task)]
    original = json.loads(content)["memory"]

    @settings(max_examples=count)
    @given(forged(original))
    def check(body):
        text = canonical({"byheart": 3, "memory": body, "sha256": digest(body)})
        (tmp_path / "m").write_text(text)
        try:
            memory = byheart.load(tmp_path / "m")
        except (FileFormatError, BudgetError) as error:
            assert len(str(error)) < 600
            return
        try:
            answers = memory.predict(rows)
        except ByheartError:
            answers = None
        try:
            proved = memory.verify(rows, labels).verdict == "proved"
        except BudgetError:
            proved = False
        assert not proved or answers == labels
        if answers is None:
            return
        memory.save(tmp_path / "again")
        assert byheart.load(tmp_path / "again").predict(rows) == answers

    check()
