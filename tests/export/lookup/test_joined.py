"""Lookups whose keys are the joined cells of a row."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("onnx", reason="needs byheart[onnx]")
pytest.importorskip("onnxruntime", reason="needs byheart[onnx]")

import onnx

from byheart.data.read.cells import CellType
from byheart.data.values import UNKNOWN
from byheart.errors import FileFormatError
from byheart.export.lookup.files import read_table_file
from byheart.export.lookup.joined import JoinedLookup
from byheart.export.onnx_table import GraphLabels
from byheart.memory.deploy import deploy
from byheart.memory.deployed import DeployedModel
from tests.varied_tables import KINDS

ANSWERS = GraphLabels.of(("x", "y"), CellType.TEXT)


def names(count: int) -> dict[str, list]:
    """Columns whose cells never repeat: texts with every usual separator, and whole numbers of both signs."""
    rng = random.Random(3)
    words = ["".join(rng.choice("ab|;\t é") for _ in range(3)) + str(k) for k in range(count)]
    numbers = [k * 7 - 900 for k in range(count)]
    more = [f"{k:03}" for k in range(count)]
    return {"code": [f"{k}|{k % 7}" for k in range(count)], "name": words, "more": more, "id": numbers}


def joined_of(model: DeployedModel) -> str:
    return model.record.get("joined", "")


@pytest.mark.parametrize("columns", [("code", "name"), ("code", "name", "more", "id")])
def test_cells_that_seldom_repeat_are_joined_and_proved_from_the_file(columns):
    cells = names(300)
    table = {name: cells[name] for name in columns} | {"y": [f"L{k % 9}" for k in range(300)]}
    file = DeployedModel.of(deploy(table, keep=list(table), progress=False).model)
    mark = joined_of(file)
    assert mark and not any(mark in str(cell) for name in columns for cell in table[name])
    assert file.verify(table).verdict == "proved"
    assert file.verify({**table, "y": [*table["y"][:-1], "other"]}).verdict == "refuted"


def test_no_other_row_is_known_although_its_joined_text_may_look_alike():
    cells = names(200)
    table = {"a": cells["code"], "b": cells["name"], "y": [f"label {k % 9}" for k in range(200)]}
    file = DeployedModel.of(deploy(table, progress=False).model)
    mark = joined_of(file)
    first, second = table["a"][0], table["b"][0]
    outside = [
        (first + mark + second, ""), ("", first + mark + second), (first + mark, second), (first, mark + second),
        (first + mark + second[:3], second[3:]), (first, table["b"][1]), (first[:-1], first[-1] + second), ("", ""),
    ]  # fmt: skip
    assert file.predict([list(part) for part in zip(*outside, strict=True)]) == [UNKNOWN] * len(outside)
    assert file.predict([[first], [second]]) == ["label 0"]


def test_columns_that_repeat_or_hold_decimals_are_not_joined():
    table = KINDS["two_keys"]()
    columns = dict(zip(table.columns, map(list, zip(*table.rows, strict=True)), strict=True))
    assert not joined_of(DeployedModel.of(deploy(columns, progress=False).model))
    kinds = [("a", CellType.TEXT), ("b", CellType.NUMBER)]
    assert JoinedLookup.of(kinds, None, [["p", "q"], [0.5, 1.5]], [0, 1], ANSWERS) is None
    missing = [("a", CellType.TEXT), ("b", CellType.TEXT)]
    assert JoinedLookup.of(missing, CellType.TEXT, [["p", None], ["q", "r"]], [0, 1], ANSWERS) is None


@pytest.mark.parametrize(
    ("key", "message"),
    [("a|07", "not a whole number"), ("a|+7", "not a whole number"), ("a|7|8", "not a row of 2"), ("a", "not a row")],
)
def test_keys_that_no_row_has_are_refused(key, message):
    kinds = (("a", CellType.TEXT), ("b", CellType.WHOLE))
    found = JoinedLookup.of(kinds, None, [["a", "b"], [7, -9]], [0, 1], ANSWERS)
    assert found is not None and found.rows() == {("a", 7): "x", ("b", -9): "y"}
    texts = JoinedLookup.of((("row", CellType.TEXT),) * 2, CellType.TEXT, [["", ""], ["", "."]], [0, 1], ANSWERS)
    listed = texts.listed.of(texts.listed.front, [["|", "|."]], [0, 1], ANSWERS)
    cutting = type(listed.front.columns[0].cutting)((key, "b|-9"))
    column = type(listed.front.columns[0])("row", CellType.TEXT, cutting)
    damaged = type(listed)(type(listed.front)((column,)), None, listed.classes, ANSWERS)
    with pytest.raises(FileFormatError, match=message):
        JoinedLookup(kinds, None, "|", damaged).rows()


def test_another_separator_in_the_record_or_the_graph_is_refused():
    cells = names(200)
    table = {"a": cells["code"], "b": cells["name"], "y": [f"label {k % 9}" for k in range(200)]}
    model = onnx.load_from_string(deploy(table, progress=False).model)
    record, changed = model.metadata_props[0], next(p for p in model.graph.initializer if len(p.string_data) == 1)
    about, mark = record.value, changed.string_data[0]
    assert json.loads(about)["joined"] == mark.decode()
    changed.string_data[0] = b"!"
    file = DeployedModel.of(model.SerializeToString())
    with pytest.raises(FileFormatError, match="differs from the graph"):
        read_table_file(model, file.columns, CellType.TEXT, file.record)
    changed.string_data[0] = mark
    record.value = json.dumps(json.loads(about) | {"joined": "!"})
    with pytest.raises(FileFormatError, match="differs from the graph"):
        DeployedModel.of(model.SerializeToString()).verify(table)
