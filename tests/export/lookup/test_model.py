"""A file's contents are those of its graph, or there are none."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Front, FrontColumn
from byheart.errors import FileFormatError
from byheart.export.lookup.hashed import HashedLookup, build_hashed_model, read_hashed
from byheart.export.lookup.listed import build_lookup_model, read_lookup
from byheart.export.lookup.model import proved_contents
from byheart.export.lookup.rows import TableLookup
from byheart.export.onnx_table import GraphLabels

onnx = pytest.importorskip("onnx", reason="needs byheart[onnx]")

COLUMNS = [("code", CellType.TEXT)]
FRONT = Front((FrontColumn("code", CellType.TEXT, Cells(("a", "b", "c"))),))
ANSWERS = GraphLabels.of(("x", "y"), CellType.TEXT)


def test_listed_and_hashed_rows_come_back():
    listed = TableLookup.of(FRONT, [["b", "a", "c"]], [0, 1, 0], ANSWERS)
    model = build_lookup_model(listed, {"k": "v"}, "place")
    assert model.graph.name == "place" and not model.producer_name
    assert read_lookup(model, COLUMNS, CellType.TEXT, {}).rows() == listed.rows()
    hashed = HashedLookup.of(FRONT, [["b", "a", "c"]], [0, 1, 0], ANSWERS, 8)
    found = read_hashed(build_hashed_model(hashed, {}), COLUMNS, CellType.TEXT, hashed.record())
    assert found.predict([["a", "b", "c"]]) == ["y", "x", "x"]
    assert (found.table.packed == hashed.table.packed).all() and isinstance(found.table.packed, np.ndarray)


def test_another_graph_and_no_contents_are_refused():
    listed = TableLookup.of(FRONT, [["b", "a", "c"]], [0, 1, 0], ANSWERS)
    model = build_lookup_model(listed, {})
    node = next(node for node in model.graph.node if node.op_type == "LabelEncoder")
    extra = model.graph.node.add()
    extra.CopyFrom(node)
    extra.output[0] = "further"
    with pytest.raises(FileFormatError, match="differs from the graph"):
        proved_contents(model, "lookup", lambda graph: listed, build_lookup_model)
    with pytest.raises(FileFormatError, match="is not a lookup that this version writes"):
        proved_contents(model, "lookup", lambda graph: graph.node[99], build_lookup_model)
    del extra.output[:]
    model.graph.node.pop()
    assert proved_contents(model, "lookup", lambda graph: listed, build_lookup_model) is listed
    opset = model.opset_import.add()
    opset.domain, opset.version = "other", 1
    with pytest.raises(FileFormatError, match="differs from the graph"):
        proved_contents(model, "lookup", lambda graph: listed, build_lookup_model)
