"""A hashed table as an ONNX graph: cells in, label out, without a list of the rows.

The graph is `HashedTable.classes` (hash_table.py) in int64 arithmetic: MurmurHash3, which is ONNX Runtime's own
operator, then additions, divisions by powers of two, `Gather` and `BitwiseXor`. Inputs, types and outputs are those of
the other forms. `read_hashed` takes the table out of a file, builds its graph again and compares the two, so a file is
proved from its own bytes: it returns the labels that these numbers give, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Front
from byheart.errors import FileFormatError
from byheart.export.lookup.hash_table import OFFSET_BITS, PRIME, SLOTS, STREAMS, HashedTable, multipliers
from byheart.export.lookup.model import finish_lookup, proved_contents
from byheart.export.onnx_table import (
    ROWS,
    GraphLabels,
    TableSignature,
    graph_inputs,
    label_constant,
    read_labels,
)
from byheart.export.targets.onnx import RUNTIME, Graph

_RECORDED = ("seed", "segments", "segment", "check_bits")


@dataclass(frozen=True, eq=False)
class HashedLookup:
    """The contents of a file.

    Attributes:
        columns: Names and types of the columns.
        matrix: The type of the one input that all columns are, or None for an input per column.
        table: The hashed table.
        answers: The label of each class.
    """

    columns: tuple[tuple[str, CellType], ...]
    matrix: CellType | None
    table: HashedTable
    answers: GraphLabels

    @staticmethod
    def of(
        front: Front, cells: Sequence[Sequence[Any]], classes: Sequence[int], answers: GraphLabels, check_bits: int
    ) -> HashedLookup:
        """Build the lookup of rows of cells, column by column, and the class of each row; repeated rows agree."""
        columns, matrix = tuple(front.named_types), TableSignature.of(front).matrix
        types = [matrix or type for _, type in columns]
        count = len(answers.labels)
        table = HashedTable.of(cells, types, np.asarray(classes, np.int64), count=count, check_bits=check_bits)
        return HashedLookup(columns, matrix, table, answers)

    @property
    def signature(self) -> TableSignature:
        """The names of inputs and outputs."""
        return TableSignature.named(tuple(name for name, _ in self.columns), self.matrix)

    def predict(self, cells: Sequence[Sequence[Any]]) -> list[Any]:
        """The label of every row of cells, column by column; `answers.unknown` where the check differs."""
        labels = (*self.answers.labels, self.answers.unknown)
        types = [self.matrix or type for _, type in self.columns]
        return [labels[number] for number in self.table.classes(cells, types).tolist()]

    def record(self) -> dict[str, Any]:
        """What `read_hashed` needs beside the graph."""
        numbers = {name: getattr(self.table, name) for name in _RECORDED}
        return {"hashed": numbers | ({} if self.matrix is None else {"matrix": self.matrix.value})}


def build_hashed_model(lookup: HashedLookup, about: dict[str, str], label: str = "") -> Any:
    """The ONNX model of a hashed lookup.

    Args:
        lookup: The contents of the file.
        about: Metadata of the model.
        label: The name of the label column.

    Returns:
        A checked `onnx.ModelProto`.
    """
    graph, table, signature = Graph("float64"), lookup.table, lookup.signature
    inputs = graph_inputs(graph, lookup.columns, signature)
    helper = graph.onnx.helper
    streams = _hashes(graph, lookup)
    value = _value(graph, table, streams)
    number = graph.node("BitwiseAnd", [value, _whole(graph, (1 << table.label_bits) - 1, "label_mask")], "number")
    count = _whole(graph, table.count, "classes")
    known = graph.node("Less", [number, count], "has_class")
    if table.check_bits:
        check = graph.node("Div", [value, _whole(graph, 1 << table.label_bits, "label_unit")], "check")
        mask = _whole(graph, (1 << table.check_bits) - 1, "check_mask")
        wanted = graph.node("BitwiseAnd", [streams[3], mask], "wanted")
        known = graph.node("And", [known, graph.node("Equal", [check, wanted], "agrees")], "is_known")
    chosen = graph.node("Where", [known, number, count], "class")
    axis = graph.whole([1], "axis_1")
    graph.nodes.append(helper.make_node("Squeeze", [known, axis], [signature.known]))
    flat = graph.node("Squeeze", [chosen, axis], "class_of_row")
    graph.nodes.append(helper.make_node("Gather", [label_constant(graph, lookup.answers), flat], [signature.label]))
    return finish_lookup(graph, inputs, lookup.answers, signature, about, label)


def _whole(graph: Graph, number: int, wish: str) -> str:
    return graph.constant(number, wish, np.int64)


def _hashes(graph: Graph, lookup: HashedLookup) -> list[str]:
    """The hashes of the rows: four tensors (batch, 1)."""
    table, kinds = lookup.table, graph.onnx.TensorProto
    if lookup.matrix is not None:
        parts = [_hashable(graph, ROWS, lookup.matrix)]
    else:
        axis = graph.whole([1], "axis")
        parts = [
            graph.node("Unsqueeze", [_hashable(graph, name, type), axis], "cells") for name, type in lookup.columns
        ]
    streams = []
    for stream in range(STREAMS):
        found = [_murmur(graph, part, table.seed + stream) for part in parts]
        words = graph.node("Concat", found, "hashes", axis=1) if len(found) > 1 else found[0]
        numbers = graph.node("Cast", [words], "hash", to=kinds.INT64)
        if table.columns > 1:
            scales = graph.constant(multipliers(table.seed, table.columns)[:, None], "multipliers", np.int64)
            total = graph.node("MatMul", [numbers, scales], "sum")
            numbers = graph.node("Mod", [total, _whole(graph, PRIME, "prime")], "hash")
        streams.append(numbers)
    return streams


def _hashable(graph: Graph, cells: str, type: CellType) -> str:
    """Cells of which equal ones have equal bytes: one zero, one NaN, truth values as numbers."""
    if type is CellType.TRUTH:
        return graph.node("Cast", [cells], "truth", to=graph.onnx.TensorProto.INT64)
    if type is not CellType.NUMBER:
        return cells
    zero = graph.constant(0.0, "zero", np.float64)
    unsigned = graph.node("Where", [graph.node("Equal", [cells, zero], "is_zero"), zero, cells], "unsigned")
    return graph.node(
        "Where", [graph.node("IsNaN", [unsigned], "is_nan"), graph.constant(math.nan, "nan", np.float64), unsigned],
        "numbers",
    )  # fmt: skip


def _murmur(graph: Graph, cells: str, seed: int) -> str:
    graph.domains.add(RUNTIME)
    return graph.node("MurmurHash3", [cells], "words", domain=RUNTIME, seed=seed, positive=1)


def _value(graph: Graph, table: HashedTable, streams: list[str]) -> str:
    """The XOR (batch, 1) of the contents of each row's four slots."""
    axis = graph.whole([2], "axis_2")
    scaled = graph.node("Mul", [streams[0], _whole(graph, table.segments, "segments")], "scaled")
    segment = graph.node("Div", [scaled, _whole(graph, table.modulus, "modulus")], "first_segment")
    pairs = graph.node("Unsqueeze", [graph.node("Concat", streams[1:3], "pairs", axis=1), axis], "wide_pairs")
    units = graph.constant([1, 1 << OFFSET_BITS], "offset_units", np.int64)
    parts = graph.node("Div", [pairs, units], "parts")
    inside = graph.node("BitwiseAnd", [parts, _whole(graph, table.segment - 1, "segment_mask")], "inside")
    offsets = graph.node("Reshape", [inside, graph.whole([-1, SLOTS], "slots")], "offsets")
    numbers = graph.node("Add", [segment, graph.whole(list(range(SLOTS)), "steps")], "segment_numbers")
    starts = graph.node("Mul", [numbers, _whole(graph, table.segment, "segment")], "segment_starts")
    slots = graph.node("Add", [starts, offsets], "slots_of_row")
    bits = graph.node("Mul", [slots, _whole(graph, table.bits, "slot_bits")], "first_bits")
    eight = _whole(graph, 8, "eight")
    byte = graph.node("Unsqueeze", [graph.node("Div", [bits, eight], "byte"), axis], "first_bytes")
    reads = graph.node("Add", [byte, graph.whole(list(range(table.read_bytes)), "byte_steps")], "bytes_of_slot")
    packed = graph.node("Gather", [graph.constant(table.packed, "table", np.uint8), reads], "packed")
    wide = graph.node("Cast", [packed], "wide", to=graph.onnx.TensorProto.INT64)
    scales = graph.constant([[256**k] for k in range(table.read_bytes)], "byte_units", np.int64)
    joined = graph.node("Squeeze", [graph.node("MatMul", [wide, scales], "joined"), axis], "words_of_slot")
    shift = graph.node("BitwiseAnd", [bits, _whole(graph, 7, "seven")], "shift")
    unit = graph.node("Gather", [graph.whole([1 << k for k in range(8)], "powers"), shift], "shift_units")
    contents = graph.node("Div", [joined, unit], "contents")
    value, *others = graph.names("Split", [contents], ["slot"] * SLOTS, axis=1, num_outputs=SLOTS)
    for other in others:
        value = graph.node("BitwiseXor", [value, other], "xor")
    return graph.node("BitwiseAnd", [value, _whole(graph, (1 << table.bits) - 1, "slot_mask")], "value")


def read_hashed(
    model: Any, columns: Sequence[tuple[str, CellType]], label_type: CellType, record: dict[str, Any]
) -> HashedLookup:
    """The contents of a hashed lookup's file, proved to be all that its graph does.

    Args:
        model: The `onnx.ModelProto` of the file.
        columns: Names and types of the input columns.
        label_type: The type of the labels.
        record: The file's record.

    Returns:
        The lookup whose graph is the file's graph, node by node.

    Raises:
        FileFormatError: The graph differs from the graph of the table that it contains.
    """
    import onnx


    def take(graph: Any) -> HashedLookup:
        constants = {part.name: part for part in graph.initializer}
        stored = next(part for part in constants.values() if part.data_type == onnx.TensorProto.UINT8)
        gathers = [node for node in graph.node if node.op_type == "Gather"]
        answers = GraphLabels.of(read_labels(onnx, constants[gathers[-1].input[0]], label_type).labels, label_type)
        packed = onnx.numpy_helper.to_array(stored)
        numbers = {name: int(record["hashed"][name]) for name in _RECORDED}
        matrix = record["hashed"].get("matrix")
        table = HashedTable(columns=len(columns), count=len(answers.labels), packed=packed, **numbers)
        if packed.dtype != np.uint8 or packed.ndim != 1 or len(packed) < table.size * table.bits // 8 + 7:
            raise FileFormatError("its table is too short")
        return HashedLookup(tuple(columns), None if matrix is None else CellType(matrix), table, answers)

    return proved_contents(model, "hashed lookup", take, build_hashed_model)
