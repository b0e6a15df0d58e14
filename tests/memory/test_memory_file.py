"""Files of memories: what survives them, and that they are read strictly."""

from __future__ import annotations

import json
import os

import pytest

import byheart
from byheart.errors import FileFormatError
from byheart.files import canonical, digest
from byheart.memory import memory_file


@pytest.fixture(scope="module")
def memory():
    return byheart.memorize(["cat", "act", "dog"], ["animal", "deed", ("two", 2)], construction="ks25", progress=False)


def test_labels_of_many_kinds_survive_a_file(tmp_path):
    labels = ["a", 7, 2**70, (1, ("x", None)), None, True, 0.5, b"\x00", -(2**60)]
    rows = [[k] for k in range(len(labels))]
    memory = byheart.memorize(rows, labels, construction="ks25", missing="label", progress=False)
    memory.save(tmp_path / "m")
    loaded = byheart.load(tmp_path / "m")
    assert loaded.predict(rows) == labels
    assert [type(x) for x in loaded.predict(rows)] == [type(x) for x in labels]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "hello",
        '{"byheart":1}',
        '{"byheart":3,"memory":{},"sha256":""}',
        '{"byheart":true,"memory":{},"sha256":""}',
        "[" * 100_000,
        '{"byheart":1e5}',
        '{"byheart":NaN}',
        '{"byheart":' + "9" * 5000 + "}",
        "\x00",
    ],
)
def test_foreign_files_are_clear_errors(text, tmp_path):
    path = tmp_path / "m"
    path.write_text(text)
    with pytest.raises(FileFormatError):
        byheart.load(path)


def test_not_even_text(tmp_path):
    (tmp_path / "m").write_bytes(os.urandom(500))
    for path in (tmp_path / "m", tmp_path / "missing", tmp_path):
        with pytest.raises(FileFormatError):
            byheart.load(path)


def test_a_forged_file_is_read_strictly(memory, tmp_path):
    """A right checksum does not help a wrong body."""
    body = memory_file.to_json(memory)
    for field in list(body):
        for junk in (None, 3, "x", [], {}, [[]]):
            forged = {**json.loads(json.dumps(body)), field: junk}
            document = {"byheart": 3, "memory": forged, "sha256": digest(forged)}
            path = tmp_path / "m"
            path.write_text(canonical(document))
            if field in ("options", "seed", "notes", "construction", "tokens", "version") and isinstance(
                junk, type(body[field])
            ):
                continue
            with pytest.raises(FileFormatError):
                byheart.load(path)


def test_a_recital_is_named_as_what_it_is(tmp_path):
    (tmp_path / "r").write_text('{"format":"byheart recital memory","version":1}')
    with pytest.raises(FileFormatError, match="the recital is damaged"):
        byheart.load(tmp_path / "r")
    with pytest.raises(FileFormatError, match="this is a recital; export it"):
        byheart.memory.load(tmp_path / "r")


@pytest.mark.parametrize("field", ["version", "construction", "notes", "options", "claim", "certificate"])
def test_half_of_a_surrogate_pair_is_refused(memory, tmp_path, field):
    """Printing such a text ended in a defect of byheart, status 70."""
    body = json.loads(json.dumps(memory_file.to_json(memory)))
    if field in ("version", "construction"):
        body[field] = "\ud800"
    elif field == "notes":
        body[field].append("a\udfffb")
    else:
        body[field]["\ud800" if field == "options" else {"claim": "label", "certificate": "reason"}[field]] = "\udc00"
    (tmp_path / "m").write_text(canonical({"byheart": 3, "memory": body, "sha256": digest(body)}))
    with pytest.raises(FileFormatError, match="half of a surrogate pair"):
        byheart.load(tmp_path / "m")
