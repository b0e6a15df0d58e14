"""A table as one ONNX graph: cells in, label out, with standard operators only (ONNX and ai.onnx.ml).

Inputs: one tensor of strings, whole numbers or numbers for each column; columns that are all of one type are one
matrix, `rows`. Outputs: `label`, of the labels' own type, and `known`: False where the row is not known, and the label
is then a value that is not among the labels.

ONNX has no operator that splits a string into characters. Patterns do the same: bit b of the code of the
character at place k is whether the cell matches "k characters, then one of those whose code has bit b, then anything".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.encoder import Encoder
from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Characters, Front, FrontColumn, Scaled, Words
from byheart.data.tokens.row_keys import RowKeys
from byheart.errors import ExportError
from byheart.export.request import unknown_mark
from byheart.export.targets.onnx import Graph, classes, decoded, walk
from byheart.ir.network import Network

ROWS = "rows"  # the input, where the columns are one matrix
RECORD = "byheart.table"  # the metadata by which a file is read and verified again
DTYPES: dict[CellType, Any] = {
    CellType.TEXT: object,
    CellType.WHOLE: np.int64,
    CellType.NUMBER: np.float64,
    CellType.TRUTH: np.bool_,
}


@dataclass(frozen=True)
class GraphLabels:
    """The outputs of the model: the label of every class, and the value for no class.

    >>> GraphLabels.of(("a", "<unknown>"), CellType.TEXT).unknown, GraphLabels.of((0, 1), CellType.WHOLE).unknown
    ('<<unknown>>', -9223372036854775808)
    """

    labels: tuple[Any, ...]
    type: CellType
    unknown: Any

    @staticmethod
    def of(labels: Sequence[Any], type: CellType) -> GraphLabels:
        """Truth values are 0 and 1, because a tensor of truth values has no third value."""
        if type is CellType.NUMBER:
            return GraphLabels(tuple(labels), type, math.nan)
        if type is CellType.TEXT:
            return GraphLabels(tuple(labels), type, unknown_mark(labels))
        least = -(1 << 63)
        while least in labels:
            least += 1
        return GraphLabels(tuple(map(int, labels)), CellType.WHOLE, least)

    @property
    def stored_bytes(self) -> int:
        """What the labels take in a file."""
        if self.type is CellType.TEXT:
            return sum(len(label.encode()) + 3 for label in self.labels)
        return 8 * len(self.labels)

    def array(self) -> npt.NDArray[Any]:
        """The label of every class, and at the end the one for none."""
        return np.array([*self.labels, self.unknown], dtype=DTYPES[self.type])


@dataclass(frozen=True)
class TableSignature:
    """The names of inputs and outputs. `matrix`: all columns are one input of this type."""

    inputs: tuple[str, ...]
    label: str
    known: str
    matrix: CellType | None = None

    @staticmethod
    def of(front: Front) -> TableSignature:
        """One matrix for several columns of one type (numbers of both kinds are numbers), else an input per column."""
        types = {column.type for column in front.columns}
        if types == {CellType.WHOLE, CellType.NUMBER} and all(column.fits_double for column in front.columns):
            types = {CellType.NUMBER}
        names = tuple(column.name for column in front.columns)
        return TableSignature.named(names, types.pop() if len(names) > 1 and len(types) == 1 else None)

    @staticmethod
    def named(names: tuple[str, ...], matrix: CellType | None) -> TableSignature:
        """The signature for columns with these names."""
        if matrix is not None:
            return TableSignature((ROWS,), "label", "known", matrix)
        label = next(name for name in ("label", "answer", "label_of_row") if name not in names)
        known = next(name for name in ("known", "is_known", "known_row") if name not in names)
        return TableSignature(names, label, known)

    def feeds(self, front: Front, columns: Sequence[Sequence[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The cells, column by column, as the tensors that the model takes; a missing number is NaN, a text ''."""
        arrays = [
            tensor(cells, self.matrix or column.type) for column, cells in zip(front.columns, columns, strict=True)
        ]
        if self.matrix is not None:
            return {ROWS: np.stack(arrays, axis=1)}
        return dict(zip(self.inputs, arrays, strict=True))


def tensor(cells: Sequence[Any], type: CellType) -> npt.NDArray[Any]:
    """Cells of one type as an array."""
    if type is CellType.TEXT:
        return np.array([cell or "" for cell in cells], dtype=object)
    if type is CellType.NUMBER:
        return np.array([math.nan if cell is None else cell for cell in cells], dtype=np.float64)
    return np.array(cells, dtype=DTYPES[type])


def build_table_model(
    front: Front, network: Network, encoder: Encoder, dtype: str, answers: GraphLabels, keys: RowKeys | None = None
) -> Any:
    """The whole model; with `keys` it recognizes exactly the rows of the table."""
    graph, signature = Graph(dtype), TableSignature.of(front)
    inputs = graph_inputs(graph, front.named_types, signature)
    codes, known = _codes(graph, front, signature, encoder.symbols, keys)
    columns, _ = walk(graph, network, encoder, codes, None)
    found = classes(graph, network, decoded(graph, network, columns))
    named = graph.node("GreaterOrEqual", [found, graph.whole([0], "first_class")], "has_class")
    graph.nodes.append(graph.onnx.helper.make_node("And", [known, named], [signature.known], name="And:known"))
    chosen = graph.node("Where", [signature.known, found, graph.whole([len(answers.labels)], "no_class")], "chosen")
    constant = label_constant(graph, answers)
    graph.nodes.append(
        graph.onnx.helper.make_node("Gather", [constant, chosen], [signature.label], name="Gather:label")
    )
    return graph.model(inputs, graph_outputs(graph, answers, signature), {})


def _element(graph: Graph, type: CellType) -> Any:
    kinds = graph.onnx.TensorProto
    return {
        CellType.TEXT: kinds.STRING, CellType.WHOLE: kinds.INT64,
        CellType.NUMBER: kinds.DOUBLE, CellType.TRUTH: kinds.BOOL,
    }[type]  # fmt: skip


def graph_inputs(graph: Graph, columns: Sequence[tuple[str, CellType]], signature: TableSignature) -> list[Any]:
    """The inputs of a table's graph; no other tensor may have their names or those of the outputs."""
    for name in (*signature.inputs, signature.label, signature.known):
        graph.name(name)
    if signature.matrix is not None:
        return [graph.info(ROWS, ["batch", len(columns)], _element(graph, signature.matrix))]
    return [graph.info(name, ["batch"], _element(graph, type)) for name, type in columns]


def graph_outputs(graph: Graph, answers: GraphLabels, signature: TableSignature) -> list[Any]:
    """The outputs of a table's graph."""
    known = graph.onnx.TensorProto.BOOL
    return [
        graph.info(signature.label, ["batch"], _element(graph, answers.type)),
        graph.info(signature.known, ["batch"], known),
    ]


def label_constant(graph: Graph, answers: GraphLabels) -> str:
    """The label of every class and the one for none, as a constant."""
    table = answers.array()
    if answers.type is CellType.TEXT:
        return graph.texts(table.tolist(), "labels")
    return graph.constant(table, "labels", table.dtype)


def read_labels(onnx: Any, constant: Any, type: CellType) -> GraphLabels:
    """The labels of `label_constant`'s tensor."""
    text = constant.data_type == onnx.TensorProto.STRING
    labels = [part.decode() for part in constant.string_data] if text else onnx.numpy_helper.to_array(constant).tolist()
    return GraphLabels(tuple(labels[:-1]), type, labels[-1])


def front_bytes(front: Front, answers: GraphLabels, keys: RowKeys | None = None) -> int:
    """Bytes of a file that do not depend on the network: cells to codes, the list of rows, the labels.

    >>> from byheart.data.tokens.front import Cells
    >>> front = Front((FrontColumn("code", CellType.TEXT, Cells(("a", "b"))),))
    >>> few = GraphLabels.of(("x",), CellType.TEXT)
    >>> many = GraphLabels.of(tuple(map(str, range(100))), CellType.TEXT)
    >>> front_bytes(front, many) > front_bytes(front, few) + 300
    True
    """
    graph, signature = Graph("float64"), TableSignature.of(front)
    for name in (*signature.inputs, signature.label, signature.known):
        graph.name(name)
    _codes(graph, front, signature, None if front.scalars else tuple(range(front.codes)), keys)
    # A tag and a length precede every part.
    return int(sum(part.ByteSize() + 4 for part in (*graph.nodes, *graph.constants))) + answers.stored_bytes


def _codes(
    graph: Graph, front: Front, signature: TableSignature, symbols: tuple[Any, ...] | None, keys: RowKeys | None
) -> tuple[str, str]:
    """What the network takes, and which rows are known: cell by cell, or exactly."""
    parts, masks = [], []
    for number, column in enumerate(front.columns):
        cells, type = column.name, column.type
        if signature.matrix is not None:
            one = graph.node("Gather", [ROWS, graph.whole([number], "column")], "one_column", axis=1)
            cells = graph.node("Squeeze", [one, graph.whole([1], "axis_1")], "cells")
            type = signature.matrix
        part, mask = _column(graph, column, cells, type)
        parts.append(part)
        masks.append(mask)
    local = graph.node("Concat", parts, "place_codes", axis=1) if len(parts) > 1 else parts[0]
    codes = graph.node("Add", [local, graph.whole(list(front.first_codes), "first_codes")], "row_codes")
    known = masks[0]
    for mask in masks[1:]:
        known = graph.node("And", [known, mask], "known_cells")
    if keys is not None:
        known = graph.node("And", [known, _listed(graph, keys, local, front.places)], "known_row")
    if symbols is None:
        numbers = graph.node("Cast", [codes], "numbers", to=graph.element)
        return graph.node("Unsqueeze", [numbers, graph.whole([2], "axis_2")], "vectors"), known
    if symbols != tuple(range(front.codes)):
        raise ExportError(f"the network has {len(symbols)} codes, the table has {front.codes}")
    return graph.node("Add", [codes, graph.whole([1], "one")], "codes"), known  # code 0 is the padding


def _listed(graph: Graph, keys: RowKeys, codes: str, count: int) -> str:
    """Which rows of codes, counted from 0 at each of `count` places, are in the table."""
    listed, earlier = "", ""
    for stage in keys.stages:
        places = slice(stage.start, stage.start + len(stage.strides))
        weights = [[0] for _ in range(count)]
        weights[places] = [[stride] for stride in stage.strides]
        product = graph.node("MatMul", [codes, graph.constant(weights, "strides", np.int64)], "mixed_radix")
        number = graph.node("Squeeze", [product, graph.whole([1], "axis_1")], "row_number")
        if earlier:
            carried = graph.node("Mul", [earlier, graph.whole([stage.carry], "carry")], "carried")
            number = graph.node("Add", [number, carried], "row_number")
        stored = graph.onnx.numpy_helper.from_array(stage.keys, "keys")
        found = graph.look_up_values(stored, number, "row_places")
        mask = graph.node("GreaterOrEqual", [found, graph.whole([0], "zero")], "listed")
        earlier = graph.node("Max", [found, graph.whole([0], "zero")], "earlier")
        listed = graph.node("And", [listed, mask], "listed_rows") if listed else mask
    return listed


def _column(graph: Graph, column: FrontColumn, cells: str, type: CellType) -> tuple[str, str]:
    """Codes (batch, places) of a column's cells, valid ones whatever the cells are, and which cells are known."""
    match column.cutting:
        case Cells():
            return _whole_cells(graph, column.cutting, cells, type)
        case Characters():
            return _characters(graph, column.cutting, cells)
        case Words():
            return _words(graph, column.cutting, cells)
        case Scaled():
            return _scaled(graph, column.cutting, cells, type)


def _whole_cells(graph: Graph, cutting: Cells, cells: str, type: CellType) -> tuple[str, str]:
    keys = tensor(cutting.values, type)
    if type is CellType.TRUTH:
        cells, keys = graph.node("Cast", [cells], "truth", to=graph.onnx.TensorProto.INT64), keys.astype(np.int64)
    if type is CellType.TEXT:
        stored = graph.text_tensor(keys.tolist(), "keys")
    else:
        stored = graph.onnx.numpy_helper.from_array(keys, "keys")
    found = graph.look_up_values(stored, cells, "cell_codes")
    known = graph.node("GreaterOrEqual", [found, graph.whole([0], "zero")], "known_cell")
    valid = graph.node("Max", [found, graph.whole([0], "zero")], "valid_codes")
    return graph.node("Unsqueeze", [valid, graph.whole([1], "axis_1")], "cell_places"), known


def _characters(graph: Graph, cutting: Characters, cells: str) -> tuple[str, str]:
    """One pattern for each bit of the code at each place; whole numbers are added up from the bits."""
    known = graph.node("RegexFullMatch", [cells], "known_cell", pattern=_whole_pattern(cutting))
    bits, weights = [], []
    axis = graph.whole([1], "axis_1")
    for place, letters in enumerate(cutting.alphabets):
        for bit in range(cutting.bits(place)):
            chosen = [c for code, c in enumerate(letters, start=cutting.ends(place)) if code >> bit & 1]
            pattern = f"(?s){f'.{{{place}}}' if place else ''}{_class(chosen)}.*"
            match = graph.node("RegexFullMatch", [cells], "bit", pattern=pattern)
            bits.append(graph.node("Unsqueeze", [match, axis], "bit_column"))
            weights.append([(1 << bit) * (k == place) for k in range(len(cutting.alphabets))])
    if not bits:  # every cell is the same
        same = graph.node(
            "Cast", [graph.node("Unsqueeze", [known, axis], "any")], "any", to=graph.onnx.TensorProto.INT64
        )
        nothing = graph.whole([0] * len(cutting.alphabets), "nothing")
        return graph.node("Mul", [same, nothing], "character_codes"), known
    columns = graph.node("Concat", bits, "bits", axis=1) if len(bits) > 1 else bits[0]
    numbers = graph.node("Cast", [columns], "bit_numbers", to=graph.onnx.TensorProto.INT64)
    return graph.node("MatMul", [numbers, graph.constant(weights, "bit_weights", np.int64)], "character_codes"), known


def _whole_pattern(cutting: Characters) -> str:
    """Matches the texts of which every character was seen at its place, and which are long enough."""
    required = "".join(_class(letters) for letters in cutting.alphabets[: cutting.shortest])
    optional = ""
    for letters in reversed(cutting.alphabets[cutting.shortest :]):
        optional = f"(?:{_class(letters)}{optional})?" if letters else ""
    return f"(?s){required}{optional}"


def _class(letters: Sequence[str]) -> str:
    """A character class; runs of neighbours are written as ranges.

    >>> _class("abcx-"), _class("é")
    ('[a-cx\\\\x{2d}]', '[é]')
    """
    points = sorted(map(ord, letters))
    runs: list[list[int]] = []
    for point in points:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    parts = [_spelled(a) if a == b else f"{_spelled(a)}{'-' if b > a + 1 else ''}{_spelled(b)}" for a, b in runs]
    return f"[{''.join(sorted(parts, key=lambda part: part.startswith(chr(92))))}]"


def _spelled(point: int) -> str:
    letter = chr(point)
    return letter if letter.isalnum() else f"\\x{{{point:x}}}"


def _words(graph: Graph, cutting: Words, cells: str) -> tuple[str, str]:
    """Words by their numbers, 0 for none; then (place, word) by its code, where the pair was seen."""
    parts, counts = graph.names("StringSplit", [cells], ["parts", "part_counts"], delimiter=" ")
    keys = graph.text_tensor(cutting.words, "keys")
    found = graph.look_up_values(keys, parts, "word_numbers")  # -1 also for the empty texts after the last word
    numbered = graph.node("Add", [found, graph.whole([1], "one")], "words")
    # after the last word 0 means no word, before it a word that was never seen
    after = graph.whole([0, 0, 0, cutting.places], "room")
    padded = graph.node("Pad", [numbered, after], "padded_words")
    cut = graph.node(
        "Slice", [padded, graph.whole([0], "from"), graph.whole([cutting.places], "to"), graph.whole([1], "axis_1")],
        "word_places",
    )  # fmt: skip
    places = graph.whole(list(range(cutting.places)), "places")
    wide = graph.node("Unsqueeze", [counts, graph.whole([1], "axis_1")], "counts")
    present = graph.node("Less", [places, wide], "present_words")
    strange = graph.node("And", [present, graph.node("Equal", [cut, graph.whole([0], "zero")], "empty")], "strange")
    stride = len(cutting.words) + 2
    numbers = graph.node("Where", [strange, graph.whole([stride - 1], "never_seen"), cut], "word_or_strange")
    pairs = graph.node("Add", [numbers, graph.whole([k * stride for k in range(cutting.places)], "strides")], "pairs")
    seen = graph.onnx.numpy_helper.from_array(
        np.array([k * stride + word for k, word in cutting.pairs], dtype=np.int64), "keys"
    )
    rank = graph.look_up_values(seen, pairs, "pair_codes")  # pairs are sorted by place, so codes of a place follow
    starts = np.concatenate([[0], np.cumsum(cutting.sizes)[:-1]])
    rebased = graph.node("Sub", [rank, graph.whole(starts.tolist(), "pair_starts")], "rebased")
    inside = graph.node("GreaterOrEqual", [rank, graph.whole([0], "zero")], "known_words")
    codes = graph.node("Where", [inside, rebased, graph.whole([0], "zero")], "word_codes")
    least = graph.node("Cast", [inside], "known_numbers", to=graph.onnx.TensorProto.INT64)
    every = graph.node("ReduceMin", [least, graph.whole([1], "axis_1")], "all_known", keepdims=0)
    known = graph.node("Cast", [every], "words_known", to=graph.onnx.TensorProto.BOOL)
    short = graph.node("LessOrEqual", [counts, graph.whole([cutting.places], "most_words")], "short_enough")
    return codes, graph.node("And", [known, short], "known_cell")


def _scaled(graph: Graph, cutting: Scaled, cells: str, type: CellType) -> tuple[str, str]:
    """Round(x·10^d), if that divided by 10^d is x again: division rounds to the one float nearest to the decimal."""
    kinds = graph.onnx.TensorProto

    def real(value: float, wish: str) -> str:
        return graph.constant(value, wish, np.float64)

    numbers = graph.node("Cast", [cells], "cell_numbers", to=kinds.DOUBLE) if type is CellType.WHOLE else cells
    unit = real(10.0**cutting.digits, "unit")
    scaled = graph.node("Round", [graph.node("Mul", [numbers, unit], "times_unit")], "scaled")
    again = graph.node("Equal", [graph.node("Div", [scaled, unit], "divided"), numbers], "same_number")
    low = graph.node("GreaterOrEqual", [scaled, real(cutting.low, "low")], "not_below")
    high = graph.node("LessOrEqual", [scaled, real(cutting.high, "high")], "not_above")
    known = graph.node("And", [graph.node("And", [low, high], "inside"), again], "known_cell")
    from_low = graph.node("Sub", [scaled, real(cutting.low, "low")], "from_low")
    codes = graph.node("Where", [known, from_low, real(0, "nothing")], "valid_codes")
    if cutting.missing:
        nothing = graph.node("IsNaN", [numbers], "missing")
        codes = graph.node("Where", [nothing, real(cutting.high - cutting.low + 1, "missing_code"), codes], "codes")
        known = graph.node("Or", [known, nothing], "known_cell")
    whole = graph.node("Cast", [codes], "whole_codes", to=kinds.INT64)
    return graph.node("Unsqueeze", [whole, graph.whole([1], "axis_1")], "cell_places"), known
