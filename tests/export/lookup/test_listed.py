"""Labels in the nodes of a lookup: as few nodes as possible, and unknown rows marked by a value that is no label."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Front, FrontColumn, Scaled
from byheart.data.tokens.row_keys import RowKeys
from byheart.data.values import UNKNOWN
from byheart.errors import FileFormatError
from byheart.export.lookup.rows import TableLookup, digit_sizes
from byheart.export.onnx_table import GraphLabels
from byheart.export.targets.onnx import Graph
from byheart.memory.deploy import deploy
from byheart.memory.deployed import DeployedModel

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LEAST = -(1 << 63)


def built(keys, labels):
    """The file of one key column, proved, and the operators of its graph."""
    made = deploy({"key": keys, "y": labels}, keep=["key"], progress=False)
    file = DeployedModel.of(made.model)
    assert file.verify({"key": keys, "y": labels}).verdict == "proved"
    return made, file, [node.op_type for node in onnx.load_from_string(made.model).graph.node]


@pytest.mark.parametrize("keys", [["a", "b", "é"], [3, 5, 9], [0.5, 1.5, 2.25]], ids=["texts", "wholes", "decimals"])
def test_different_decimals_are_listed_and_known_is_one_comparison(keys):
    made, file, nodes = built(keys, [1.5, -2.25, 1e300])
    assert nodes == ["LabelEncoder", "Equal"]
    other = "c" if isinstance(keys[0], str) else 77
    assert file.predict([[*keys, other]]) == [1.5, -2.25, 1e300, UNKNOWN]
    assert made.sizes["file"] < 500


def test_repeated_decimals_are_listed_once():
    _, file, nodes = built([f"k{n:03}" for n in range(300)], [n % 7 / 4 for n in range(300)])
    assert nodes == ["LabelEncoder", "Gather", "Cast"]
    assert file.predict([["k008", "k300"]]) == [0.25, UNKNOWN]


@pytest.mark.parametrize(
    "labels, nodes",
    [
        ([5, -7, 11], ["LabelEncoder", "Greater"]),
        ([LEAST, -7, 11], ["LabelEncoder", "Equal", "Not"]),
    ],
)
def test_the_least_whole_number_marks_unknown_rows_unless_it_is_a_label(labels, nodes):
    _, file, found = built(["a", "b", "c"], labels)
    assert found == nodes
    assert file.predict([["c", "b", "a", "d"]]) == [*reversed(labels), UNKNOWN]


def test_whole_numbers_beyond_two_to_31_keep_their_order():
    """ONNX Runtime's int64 Max, Min and Clip return 29899999994 for the maximum of 25799999993 and itself."""
    numbers = [k * 10**8 - 7 for k in range(300)]
    table = {"a": [f"s{k % 7}" for k in range(300)], "n": numbers, "y": [f"p{k % 5}" for k in range(300)]}
    file = DeployedModel.of(deploy(table, keep=["n"], progress=False).model)
    assert "scaled" in file.record and file.verify(table).verdict == "proved"
    others = [-(1 << 63), -8, -6, numbers[-1] + 1, 25_799_999_994, (1 << 53) + 1, (1 << 63) - 1]
    assert file.predict([["s0"] * len(others), others]) == [UNKNOWN] * len(others)


def test_numbers_off_the_scale_or_outside_it_are_unknown():
    rows = 400
    table = {
        "t": [f"s{k % 3}" for k in range(rows)],
        "f": [round(k * 1.01, 2) for k in range(rows)],
        "g": [None if k % 9 == 4 else round(k * 0.003 - 0.4, 3) for k in range(rows)],
        "y": [f"p{k % 5}" for k in range(rows)],
    }
    file = DeployedModel.of(deploy(table, missing="label", progress=False).model)
    assert "scaled" in file.record and file.verify(table, missing="label").verdict == "proved"
    t, f, g = (table[name][7] for name in "tfg")
    last = table["g"][-1]
    for other in (math.nan, math.inf, -math.inf, 1e300, -0.01, table["f"][-1] + 0.01, f + 1e-12, f + 0.005):
        assert file.predict([[t], [other], [g]]) == [UNKNOWN], other
    for other in (math.nan, math.inf, -math.inf, last + 0.001, last + 0.002, last + 0.003, -0.401, -0.402, g + 1e-9):
        assert file.predict([[t], [f], [other]]) == [UNKNOWN], other
    assert file.predict([[table["t"][4]], [table["f"][4]], [math.nan]]) == ["p4"]


def test_a_listed_row_of_unknown_cells_is_refused():
    """A file that listed the digit of all other cells would answer them."""
    cells = FrontColumn("a", CellType.TEXT, Cells(("x", "y")))
    front = Front((cells, FrontColumn("n", CellType.WHOLE, Scaled(0, 5, 9))))
    lookup = TableLookup.of(front, [["x", "y"], [5, 9]], [0, 1], GraphLabels.of(("p", "q"), CellType.TEXT))
    assert lookup.rows() == {("x", 5): "p", ("y", 9): "q"}
    sizes = digit_sizes(front)
    for digits in ([2, 1], [0, 0], [0, 6]):
        keys = RowKeys.of(sizes, np.array([digits]))
        with pytest.raises(FileFormatError, match="a row of unknown"):
            replace(lookup, keys=keys, classes=np.array([0])).rows()


def test_files_are_short():
    """No names of nodes, short names of tensors, whole numbers as varints."""
    made, _, _ = built([f"A{k}" for k in range(95)], [f"L{k % 2}" for k in range(95)])
    model = onnx.load_from_string(made.model)
    names = {name for node in model.graph.node for name in (*node.input, *node.output)} - {"key", "label", "known"}
    assert not any(node.name for node in model.graph.node) and max(map(len, names)) == 1
    assert made.sizes["file"] < 95 * 7 + 260 and model.graph.name == "y"


def test_a_file_lists_every_cell_and_every_row_once_and_in_order():
    cells = FrontColumn("a", CellType.TEXT, Cells(("x", "y")))
    front = Front((cells, FrontColumn("n", CellType.WHOLE, Scaled(0, 5, 9))))
    lookup = TableLookup.of(front, [["x", "y"], [5, 9]], [0, 1], GraphLabels.of(("p", "q"), CellType.TEXT))
    lookup.check_order()
    assert lookup.places([["y", "x", "x", "z"], [9, 5, 9, 5]]).tolist() == [1, 0, -1, -1]
    (stage,) = lookup.keys.stages
    turned = RowKeys((replace(stage, keys=stage.keys[::-1]),))
    with pytest.raises(FileFormatError, match="not in their order"):
        replace(lookup, keys=turned).check_order()
    twice = replace(front.columns[0], cutting=Cells(("x", "x")))
    with pytest.raises(FileFormatError, match="'a' is listed twice"):
        replace(lookup, front=Front((twice, front.columns[1]))).check_order()


def test_a_long_list_is_checked_by_its_first_elements(monkeypatch):
    """Its file is that of the whole check, and a node of a wrong type is refused."""
    whole = built([f"A{k}" for k in range(50)], [f"L{k % 3}" for k in range(50)])[0].model
    monkeypatch.setattr("byheart.export.targets.onnx._MOST_CHECKED", 0)
    assert built([f"A{k}" for k in range(50)], [f"L{k % 3}" for k in range(50)])[0].model == whole
    graph = Graph("float64")
    graph.node("LabelEncoder", ["x"], "y", domain="ai.onnx.ml", keys_strings=["a"] * 9, values_int64s=[1] * 9)
    graph.domains.add("ai.onnx.ml")
    whole_number = graph.onnx.TensorProto.INT64
    with pytest.raises(Exception, match="LabelEncoder"):
        graph.model([graph.info("x", ["n"], whole_number)], [graph.info("y", ["n"], whole_number)], {})
