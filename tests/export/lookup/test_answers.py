"""Labels of rows: by class or listed, and the mark of unknown rows."""

from __future__ import annotations

import pytest

from byheart.data.read.cells import CellType
from byheart.errors import FileFormatError
from byheart.export.lookup.answers import read_label_table
from byheart.memory.deploy import deploy
from byheart.memory.deployed import DeployedModel

onnx = pytest.importorskip("onnx", reason="needs byheart[onnx]")
pytest.importorskip("onnxruntime", reason="needs byheart[onnx]")

TABLE = {"key": [f"k{n}" for n in range(60)], "y": ["one", "two", "three"] * 20}


def test_the_mark_of_unknown_rows_is_not_taken_from_the_file():
    """A file could mark unknown rows by a label; their mark follows from the labels alone."""
    model = onnx.load_from_string(deploy(TABLE, progress=False).model)
    table = next(part for part in model.graph.initializer if len(part.string_data) == 4)
    assert read_label_table(onnx, table, CellType.TEXT).unknown == "<unknown>"
    for mark in (b"one", b"<unknowm>", b""):
        table.string_data[0] = mark
        with pytest.raises(FileFormatError, match="differs from the graph"):
            DeployedModel.of(model.SerializeToString()).verify(TABLE)


def test_the_mark_of_a_hashed_lookup_is_not_taken_from_the_file_either():
    model = onnx.load_from_string(deploy(TABLE, form="lookup", abstain_bits=8, progress=False).model)
    table = next(part for part in model.graph.initializer if len(part.string_data) == 4)
    assert table.string_data[3] == b"<unknown>"
    table.string_data[3] = b"one"
    with pytest.raises(FileFormatError, match="differs from the graph"):
        DeployedModel.of(model.SerializeToString()).verify(TABLE)
