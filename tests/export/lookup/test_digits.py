"""The number of a row in ONNX Runtime, against the digits that `TableLookup` computes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Front, FrontColumn, Scaled
from byheart.export.lookup.digits import row_number
from byheart.export.lookup.rows import TableLookup
from byheart.export.onnx_table import GraphLabels, TableSignature, graph_inputs
from byheart.export.targets.onnx import Graph, open_session

pytest.importorskip("onnx", reason="needs byheart[onnx]")
runtime = pytest.importorskip("onnxruntime", reason="needs byheart[onnx]")

FRONTS = {
    "several types": Front(
        (
            FrontColumn("t", CellType.TEXT, Cells(("x", "y", "z"))),
            FrontColumn("f", CellType.NUMBER, Scaled(2, -50, 700)),
            FrontColumn("w", CellType.WHOLE, Scaled(0, 3, 90)),
            FrontColumn("g", CellType.NUMBER, Scaled(1, 0, 40, missing=True)),
            FrontColumn("b", CellType.TRUTH, Cells((False, True))),
        )
    ),
    "a matrix": Front(tuple(FrontColumn(name, CellType.NUMBER, Scaled(1, 0, 40)) for name in "abc")),
    "two stages": Front(tuple(FrontColumn(name, CellType.WHOLE, Scaled(0, -5, 10**9)) for name in "abcd")),
}


def rows_of(front: Front, count: int) -> list[tuple]:
    rng = random.Random(5)

    def cell(way):
        if isinstance(way, Cells):
            return rng.choice(way.values)
        value = way.value(rng.randrange(sum(way.sizes)))
        return value

    columns = front.columns
    rows = [tuple(cell(column.cutting) for column in columns) for _ in range(count)]
    return [tuple(int(x) if c.type is CellType.WHOLE else x for x, c in zip(row, columns, strict=True)) for row in rows]


@pytest.mark.parametrize("name", FRONTS)
def test_the_graph_counts_as_the_lookup_does(name):
    front = FRONTS[name]
    rows = list(dict.fromkeys(rows_of(front, 60)))
    cells = list(zip(*rows, strict=True))
    answers = GraphLabels.of(("p", "q"), CellType.TEXT)
    lookup = TableLookup.of(front, cells, [k % 2 for k in range(len(rows))], answers)
    graph, signature = Graph("float64"), TableSignature.of(front)
    inputs = graph_inputs(graph, front.named_types, signature)
    number = row_number(graph, front, signature, lookup.keys)
    model = graph.model(inputs, [graph.info(number, ["batch"], graph.onnx.TensorProto.INT64)], {})
    found = open_session(runtime, model).run(None, signature.feeds(front, cells))[0]
    assert found.tolist() == lookup.keys.stages[-1].keys[lookup.places(cells)].tolist()
    assert (np.sort(lookup.places(cells)) == np.arange(len(rows))).all()
