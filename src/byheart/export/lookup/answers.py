"""The nodes from the number of a row to its label and to whether the row is known.

The class selects the label, or the `LabelEncoder` returns the label itself where that makes the file smaller.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from byheart.data.read.cells import CellType
from byheart.export.lookup.encoders import (
    RAW,
    attribute,
    encoder,
    tensor_bytes,
    text_bytes,
    unnamed,
    whole_bytes,
    whole_values,
)
from byheart.export.lookup.rows import TableLookup
from byheart.export.onnx_table import (
    DTYPES,
    GraphLabels,
    TableSignature,
)
from byheart.export.targets.onnx import ML, Graph

_LEAST = -(1 << 63)  # the mark of unknown rows beside whole labels, unless it is a label


def answer_nodes(graph: Graph, keys: Any, source: str, lookup: TableLookup, signature: TableSignature) -> None:
    """The label and whether the row is known, from the number of a row."""
    answers, helper = lookup.answers, graph.onnx.helper
    if _returns_label(lookup):
        node = helper.make_node("LabelEncoder", [source], [signature.label], domain=ML)
        node.attribute.extend([keys, *_label_values(graph, lookup)])
        graph.domains.add(ML)
        graph.nodes.append(node)
        _known_by_label(graph, answers, signature)
        return
    # Class 0 is that of unknown rows, so that `known` is the class as a truth value.
    number = encoder(graph, keys, whole_values(graph, lookup.classes + 1, 0), source, "class")
    graph.nodes.append(helper.make_node("Gather", [_label_table(graph, answers), number], [signature.label]))
    truth = graph.onnx.TensorProto.BOOL
    graph.nodes.append(helper.make_node("Cast", [number], [signature.known], to=truth))


def _returns_label(lookup: TableLookup) -> bool:
    """Whether listing a label for every row is smaller than listing its class, and each label once.

    Numbers of one column are found so fast that selecting a text by its class would triple the time of a batch: there
    every row lists its label, as in a graph that is written by hand.
    """
    answers = lookup.answers
    if answers.type is CellType.TEXT:
        if lookup.keys is None and lookup.front.columns[0].type is not CellType.TEXT:
            return True
        texts = [str(label) for label in answers.labels]
        sizes = np.array([text_bytes([text]) for text in texts], dtype=np.int64)
        return int(sizes[lookup.classes].sum()) < whole_bytes(lookup.classes + 1) + int(sizes.sum())
    if answers.type is CellType.WHOLE:
        labels = np.array(answers.labels, dtype=np.int64)
        return whole_bytes(labels[lookup.classes]) <= whole_bytes(lookup.classes + 1) + tensor_bytes(labels)
    return RAW * len(lookup.classes) <= whole_bytes(lookup.classes + 1) + RAW * len(answers.labels)


def _label_table(graph: Graph, answers: GraphLabels) -> str:
    """The label of unknown rows, then the label of every class, as a constant."""
    labels = [answers.unknown, *answers.labels]
    if answers.type is CellType.TEXT:
        return graph.texts(labels, "labels")
    return graph.constant(np.array(labels, dtype=DTYPES[answers.type]), "labels", DTYPES[answers.type])


def read_label_table(onnx: Any, constant: Any, type: CellType) -> GraphLabels:
    text = constant.data_type == onnx.TensorProto.STRING
    labels = [part.decode() for part in constant.string_data] if text else onnx.numpy_helper.to_array(constant).tolist()
    return GraphLabels.of(labels[1:], type)


def _label_values(graph: Graph, lookup: TableLookup) -> list[Any]:
    """The label of every row and the one of no row, as attributes of a `LabelEncoder`."""
    answers, classes = lookup.answers, lookup.classes
    if answers.type is CellType.TEXT:
        labels = [str(label).encode() for label in answers.labels]
        values = attribute(graph, "values_strings", strings=[labels[k] for k in classes.tolist()])
        return [values, attribute(graph, "default_string", s=str(answers.unknown).encode())]
    if answers.type is CellType.WHOLE:
        return whole_values(graph, np.array(answers.labels, dtype=np.int64)[classes], answers.unknown)
    stored = unnamed(graph, np.array(answers.labels, dtype=np.float64)[classes])
    nothing = unnamed(graph, np.array([math.nan]))
    return [attribute(graph, "values_tensor", t=stored), attribute(graph, "default_tensor", t=nothing)]


def _known_by_label(graph: Graph, answers: GraphLabels, signature: TableSignature) -> None:
    """Whether the label is not the one of unknown rows, in as few nodes as possible: each costs half a microsecond."""
    helper = graph.onnx.helper
    if answers.type is CellType.NUMBER:  # NaN, never a label (`settle_cells`), differs from itself
        graph.nodes.append(helper.make_node("Equal", [signature.label, signature.label], [signature.known]))
        return
    text = answers.type is CellType.TEXT
    mark = graph.texts([str(answers.unknown)], "none") if text else graph.whole([answers.unknown], "none")
    if not text and answers.unknown == _LEAST:
        graph.nodes.append(helper.make_node("Greater", [signature.label, mark], [signature.known]))
        return
    same = graph.node("Equal", [signature.label, mark], "new")
    graph.nodes.append(helper.make_node("Not", [same], [signature.known]))
