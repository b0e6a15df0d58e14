"""A table as a list of its rows: one ONNX graph of standard operators with the inputs and outputs of a network.

One column is one `LabelEncoder`: cell -> class. Several columns become digits of one whole number (`RowKeys`), and the
last `LabelEncoder` maps this number to the class. Rows of texts that seldom repeat are one joined text instead
(joined.py).

`read_lookup` reverses `build_lookup_model`: it takes the tables out of a file, builds the graph of these tables again
and compares the two. So a file is proved from its own bytes: it lists these rows with these labels, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Cutting, Front, FrontColumn, Scaled
from byheart.data.tokens.row_keys import RowKeys, empty_stages
from byheart.errors import FileFormatError
from byheart.export.lookup.answers import answer_nodes, read_label_table
from byheart.export.lookup.digits import row_number
from byheart.export.lookup.encoders import castable, cell_keys, whole_keys
from byheart.export.lookup.model import finish_lookup, proved_contents
from byheart.export.lookup.rows import TableLookup, digit_sizes, is_keyed
from byheart.export.onnx_table import (
    GraphLabels,
    TableSignature,
    graph_inputs,
)
from byheart.export.targets.onnx import Graph


def build_lookup_model(lookup: TableLookup, about: dict[str, str], label: str = "") -> Any:
    """The ONNX model of a lookup.

    Args:
        lookup: The tables of the file.
        about: Metadata of the model.
        label: The name of the label column.

    Returns:
        A checked `onnx.ModelProto`.
    """
    front, answers = lookup.front, lookup.answers
    graph, signature = Graph("float64"), TableSignature.of(front)
    inputs = graph_inputs(graph, front.named_types, signature)
    if lookup.keys is None:
        column = front.columns[0]
        assert isinstance(column.cutting, Cells)
        cells = castable(graph, column.name, column.type)
        answer_nodes(graph, cell_keys(graph, column.cutting, column.type), cells, lookup, signature)
    else:
        number = row_number(graph, front, signature, lookup.keys)
        answer_nodes(graph, whole_keys(graph, lookup.keys.stages[-1].keys), number, lookup, signature)
    return finish_lookup(graph, inputs, answers, signature, about, label)


def lookup_record(lookup: TableLookup) -> dict[str, Any]:
    """What `read_lookup` needs beside the graph: how each column becomes digits."""
    ways = [column.cutting for column in lookup.front.columns]
    record: dict[str, Any] = {}
    if any(isinstance(way, Scaled) for way in ways):
        record["scaled"] = [
            [way.digits, way.low, way.high, int(way.missing)] if isinstance(way, Scaled) else None for way in ways
        ]
    elif len(ways) > 1 and all(way == ways[0] for way in ways):
        record["shared"] = True
    return record


def read_lookup(
    model: Any, columns: Sequence[tuple[str, CellType]], label_type: CellType, record: dict[str, Any]
) -> TableLookup:
    """The tables of a lookup file, proved to be all that its graph does.

    Args:
        model: The `onnx.ModelProto` of the file.
        columns: Names and types of the input columns.
        label_type: The type of the labels.
        record: The file's `lookup_record`.

    Returns:
        The lookup whose graph is the file's graph, node by node.

    Raises:
        FileFormatError: The graph differs from the graph of the tables that it contains.
    """
    import onnx


    def take(graph: Any) -> TableLookup:
        found = take_lookup(onnx, graph, columns, label_type, record)
        found.check_order()
        return found

    return proved_contents(model, "lookup", take, build_lookup_model)


def take_lookup(
    onnx: Any, graph: Any, columns: Sequence[tuple[str, CellType]], label_type: CellType, record: dict[str, Any]
) -> TableLookup:
    """The lookup in the `LabelEncoder` nodes of a graph; its other nodes are not looked at."""
    encoders = [{part.name: part for part in node.attribute} for node in graph.node if node.op_type == "LabelEncoder"]

    def listed(role: str, attributes: dict[str, Any]) -> list[Any]:
        if f"{role}_int64s" in attributes:
            return list(attributes[f"{role}_int64s"].ints)
        if f"{role}_strings" in attributes:
            return [text.decode() for text in attributes[f"{role}_strings"].strings]
        return list(onnx.numpy_helper.to_array(attributes[f"{role}_tensor"].t).tolist())

    def cells(attributes: dict[str, Any], type: CellType) -> Cells:
        values = listed("keys", attributes)
        if type is CellType.TRUTH:
            values = list(map(bool, values))
        return Cells(tuple(None if value != value else value for value in values))

    scaled = record.get("scaled") or [None] * len(columns)
    number, cuttings = 0, list[Cutting]()
    for (_, type), given in zip(columns, scaled, strict=True):
        if given is not None:
            digits, low, high, missing = map(int, given)
            cuttings.append(Scaled(digits, low, high, bool(missing)))
            continue
        cuttings.append(cells(encoders[number], type))
        number += not (record.get("shared") and len(cuttings) < len(columns))
    pairs = zip(columns, cuttings, strict=True)
    front = Front(tuple(FrontColumn(name, type, cutting) for (name, type), cutting in pairs))
    final = encoders[-1]
    values = listed("values", final)
    table = next((node.input[0] for node in graph.node if node.op_type == "Gather"), None)
    if table is None:
        distinct = list(dict.fromkeys(values))
        answers = GraphLabels.of(distinct, label_type)
        ids = {label: k for k, label in enumerate(distinct)}
        classes = np.array([ids[value] for value in values], dtype=np.int64)
    else:
        stored = next(part for part in graph.initializer if part.name == table)
        answers = read_label_table(onnx, stored, label_type)
        classes = np.array(values, dtype=np.int64) - 1
        if len(classes) and not 0 <= classes.min() <= classes.max() < len(answers.labels):
            raise FileFormatError("the file gives a row a label that it does not have")
    if is_keyed(front):
        return TableLookup(front, None, classes, answers)._ordered()
    stages = [
        replace(stage, keys=np.array(listed("keys", part), dtype=np.int64))
        for stage, part in zip(empty_stages(digit_sizes(front), len(values)), encoders[number:], strict=True)
    ]
    return TableLookup(front, RowKeys(tuple(stages)), classes, answers)._ordered()
