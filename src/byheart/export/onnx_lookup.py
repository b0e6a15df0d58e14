"""A table as a lookup: one ONNX graph of standard operators with the inputs, outputs and refusals of a network.

One column is one `LabelEncoder`: cell -> class. Several columns become digits of one whole number (`RowKeys`), and the
last `LabelEncoder` maps this number to the class. A cell outside the table gets a digit that no stored number has, so
that `known` needs no test of its own. The class selects the label, or the `LabelEncoder` returns the label itself where
that makes the file smaller.

`read_lookup` reverses `build_lookup_model`: it takes the tables out of a file, builds the graph of these tables again
and compares the two. So a file is proved from its own bytes: it lists these rows with these labels, and no others.

>>> from byheart.data.tokens.front import Cells, Front, FrontColumn
>>> front = Front((FrontColumn("code", CellType.TEXT, Cells(("a", "b", "c"))),))
>>> lookup = TableLookup.of(front, [["b", "a", "c"]], [0, 1, 0], GraphLabels.of(("x", "y"), CellType.TEXT))
>>> lookup.rows()
{('a',): 'y', ('b',): 'x', ('c',): 'x'}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Cutting, Front, FrontColumn, Scaled
from byheart.data.tokens.row_keys import RowKeys, empty_stages
from byheart.errors import ExportError, FileFormatError
from byheart.export.onnx_table import ROWS, GraphLabels, TableSignature, tensor
from byheart.export.targets.onnx import ML, Graph

Whole = npt.NDArray[np.int64]
_RAW = 8  # bytes of an int64 in a tensor; a repeated attribute needs a tag and 1 to 10 bytes


@dataclass(frozen=True, eq=False)
class TableLookup:
    """The contents of a lookup file: how cells become digits, the listed numbers, and the class of each.

    For one column of whole cells the cells of the front are the list of rows, and `keys` is None.
    """

    front: Front
    keys: RowKeys | None
    classes: Whole
    answers: GraphLabels

    @staticmethod
    def of(front: Front, columns: Sequence[Sequence[Any]], classes: Sequence[int], answers: GraphLabels) -> TableLookup:
        """The lookup of rows of cells, column by column, and the class of each row; repeated rows agree."""
        codes, known = front.encode(columns)
        if not known.all():
            raise ExportError("a row of the table has a cell that its own front does not contain; please report this")
        local = codes - np.array(front.first_codes)
        given = np.asarray(classes, dtype=np.int64)
        if is_keyed(front):
            found = np.zeros(front.sizes[0], dtype=np.int64)
            found[local[:, 0]] = given
            return TableLookup(front, None, found, answers)._ordered()
        # Repeated rows are listed once, and the stages are laid out for the distinct ones.
        places = RowKeys.of(digit_sizes(front), local).places(local)
        _, first = np.unique(places, return_index=True)
        local, given = local[first], given[first]
        keys = RowKeys.of(digit_sizes(front), local)
        found = np.zeros(len(keys.stages[-1].keys), dtype=np.int64)
        found[keys.places(local)] = given
        return TableLookup(front, keys, found, answers)._ordered()

    def _ordered(self) -> TableLookup:
        """The same rows with frequent labels first: small class numbers are short, and every file has one order."""
        counts = np.bincount(self.classes, minlength=len(self.answers.labels))
        labels = self.answers.labels
        order = sorted(range(len(labels)), key=lambda k: (-int(counts[k]), labels[k]))
        place = np.zeros(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        answers = replace(self.answers, labels=tuple(labels[k] for k in order))
        return TableLookup(self.front, self.keys, place[self.classes], answers)

    def rows(self) -> dict[tuple[Any, ...], Any]:
        """Every row that the file contains -> its label."""
        labels = [self.answers.labels[number] for number in self.classes.tolist()]
        if self.keys is None:
            cutting = self.front.columns[0].cutting
            assert isinstance(cutting, Cells)
            return {(cell,): label for cell, label in zip(cutting.values, labels, strict=True)}
        digits = self.keys.digits(digit_sizes(self.front))
        cells = [
            _cells_of(column.cutting, digits[:, place].tolist()) for place, column in enumerate(self.front.columns)
        ]
        return dict(zip(zip(*cells, strict=True), labels, strict=True))


def is_keyed(front: Front) -> bool:
    """Whether the cells of one column are the list of rows."""
    return len(front.columns) == 1 and isinstance(front.columns[0].cutting, Cells)


def digit_sizes(front: Front) -> tuple[int, ...]:
    """How many digits each place has: its codes, and one more for a cell outside the table."""
    return tuple(size + 1 for size in front.sizes)


def _cells_of(cutting: Cutting, codes: list[int]) -> list[Any]:
    if isinstance(cutting, Cells):
        return [cutting.values[code] for code in codes]
    if isinstance(cutting, Scaled):
        return [cutting.value(code) for code in codes]
    raise ExportError(f"a lookup has no {cutting.name}")


def varint_bytes(numbers: Whole) -> int:
    """Bytes of whole numbers as a repeated attribute: a tag and 7 bits per byte, 10 bytes for a negative number.

    >>> varint_bytes(np.array([0, 127, 128, -1]))
    18
    """
    if not len(numbers):
        return 0
    bits = np.array([64 if n < 0 else max(1, int(n).bit_length()) for n in np.unique(numbers).tolist()])
    sizes = 1 + (bits + 6) // 7
    _, counts = np.unique(numbers, return_counts=True)
    return int((sizes * counts).sum())


def text_bytes(texts: Sequence[str]) -> int:
    """Bytes of texts as a repeated attribute or in a tensor: a tag, the length, the UTF-8 bytes."""
    lengths = [len(text.encode()) for text in texts]
    return sum(n + 2 + (n > 127) + (n > 16383) for n in lengths)


def whole_bytes(numbers: Whole) -> int:
    """Bytes of whole numbers in the smaller of the two forms."""
    return min(varint_bytes(numbers), _RAW * len(numbers) + 12)


def build_lookup_model(lookup: TableLookup, about: dict[str, str]) -> Any:
    """The ONNX model of a lookup.

    Args:
        lookup: The tables of the file.
        about: Metadata of the model.

    Returns:
        A checked `onnx.ModelProto`.
    """
    front, answers = lookup.front, lookup.answers
    graph, signature = Graph("float64"), TableSignature.of(front)
    kinds = graph.onnx.TensorProto
    element = {
        CellType.TEXT: kinds.STRING, CellType.WHOLE: kinds.INT64,
        CellType.NUMBER: kinds.DOUBLE, CellType.TRUTH: kinds.BOOL,
    }  # fmt: skip
    for name in (*signature.inputs, signature.label, signature.known):
        graph.name(name)
    if signature.matrix is not None:
        inputs = [graph.info(ROWS, ["batch", len(front.columns)], element[signature.matrix])]
    else:
        inputs = [graph.info(column.name, ["batch"], element[column.type]) for column in front.columns]
    if lookup.keys is None:
        column = front.columns[0]
        assert isinstance(column.cutting, Cells)
        cells = _castable(graph, column.name, column.type)
        _answer(graph, _cell_keys(graph, column.cutting, column.type), cells, lookup, signature)
    else:
        number = _row_number(graph, front, signature, lookup.keys)
        _answer(graph, _whole_keys(graph, lookup.keys.stages[-1].keys), number, lookup, signature)
    outputs = [
        graph.info(signature.label, ["batch"], element[answers.type]),
        graph.info(signature.known, ["batch"], kinds.BOOL),
    ]
    # Names of nodes are optional, and would be bytes of every file.
    for node in graph.nodes:
        node.name = ""
    return graph.model(inputs, outputs, about)


def _castable(graph: Graph, cells: str, type: CellType) -> str:
    """`LabelEncoder` has no truth values."""
    if type is CellType.TRUTH:
        return graph.node("Cast", [cells], "truth", to=graph.onnx.TensorProto.INT64)
    return cells


def _attribute(graph: Graph, name: str, **content: Any) -> Any:
    """An attribute with a long list: the library's helper inspects every element first."""
    kinds = graph.onnx.AttributeProto
    kind = {"ints": kinds.INTS, "strings": kinds.STRINGS, "t": kinds.TENSOR, "i": kinds.INT, "s": kinds.STRING}
    return graph.onnx.AttributeProto(name=name, type=kind[next(iter(content))], **content)


def _whole_list(graph: Graph, role: str, numbers: Whole) -> Any:
    """Whole numbers as an attribute or as a tensor, whichever is smaller."""
    if varint_bytes(numbers) <= _RAW * len(numbers) + 12:
        return _attribute(graph, f"{role}_int64s", ints=numbers.tolist())
    return _attribute(graph, f"{role}_tensor", t=graph.onnx.numpy_helper.from_array(numbers, role))


def _whole_keys(graph: Graph, keys: Whole) -> Any:
    return _whole_list(graph, "keys", keys)


def _cell_keys(graph: Graph, cutting: Cells, type: CellType) -> Any:
    if type is CellType.TEXT:
        return _attribute(graph, "keys_strings", strings=[(value or "").encode() for value in cutting.values])
    if type is CellType.NUMBER:
        keys = graph.onnx.numpy_helper.from_array(tensor(cutting.values, type), "keys")
        return _attribute(graph, "keys_tensor", t=keys)
    return _whole_keys(graph, np.array(cutting.values, dtype=np.int64))


def _encoder(graph: Graph, keys: Any, values: Sequence[Any], source: str, wish: str) -> str:
    """A `LabelEncoder` node; `values` are the attributes of the values and of the default."""
    name = graph.name(wish)
    node = graph.onnx.helper.make_node("LabelEncoder", [source], [name], domain=ML)
    node.attribute.extend([keys, *values])
    graph.domains.add(ML)
    graph.nodes.append(node)
    return name


def _default(graph: Graph, number: int, values: Any) -> Any:
    """The default in the form of the values: ONNX Runtime reads both from tensors or both from attributes."""
    if values.name.endswith("_tensor"):
        return _attribute(
            graph, "default_tensor", t=graph.onnx.numpy_helper.from_array(np.array([number], np.int64), "default")
        )
    return _attribute(graph, "default_int64", i=number)


def _digits(graph: Graph, keys: Any, count: int, source: str) -> str:
    """The place of each value among `count` keys, and `count` for any other value."""
    values = _whole_list(graph, "values", np.arange(count, dtype=np.int64))
    return _encoder(graph, keys, [values, _default(graph, count, values)], source, "digits")


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
        return int(sizes[lookup.classes].sum()) < varint_bytes(lookup.classes) + int(sizes.sum())
    if answers.type is CellType.WHOLE:
        labels = np.array(answers.labels, dtype=np.int64)
        return whole_bytes(labels[lookup.classes]) <= varint_bytes(lookup.classes) + _RAW * len(labels)
    return False


def _answer(graph: Graph, keys: Any, source: str, lookup: TableLookup, signature: TableSignature) -> None:
    """The label and whether the row is known, from the number of a row."""
    answers, helper = lookup.answers, graph.onnx.helper
    if _returns_label(lookup):
        if answers.type is CellType.TEXT:
            labels = [str(label).encode() for label in answers.labels]
            values = _attribute(graph, "values_strings", strings=[labels[k] for k in lookup.classes.tolist()])
            default = _attribute(graph, "default_string", s=str(answers.unknown).encode())
            mark = graph.texts([str(answers.unknown)], "unknown")
        else:
            values = _whole_list(graph, "values", np.array(answers.labels, dtype=np.int64)[lookup.classes])
            default, mark = _default(graph, answers.unknown, values), graph.whole([answers.unknown], "unknown")
        node = helper.make_node("LabelEncoder", [source], [signature.label], domain=ML)
        node.attribute.extend([keys, values, default])
        graph.domains.add(ML)
        graph.nodes.append(node)
        same = graph.node("Equal", [signature.label, mark], "is_unknown")
        graph.nodes.append(helper.make_node("Not", [same], [signature.known]))
        return
    values = _whole_list(graph, "values", lookup.classes)
    number = _encoder(graph, keys, [values, _default(graph, len(answers.labels), values)], source, "class")
    table = answers.array()
    text = answers.type is CellType.TEXT
    constant = graph.texts(table.tolist(), "labels") if text else graph.constant(table, "labels", table.dtype)
    graph.nodes.append(helper.make_node("Gather", [constant, number], [signature.label]))
    count = graph.constant(len(answers.labels), "classes", np.int64)
    graph.nodes.append(helper.make_node("Less", [number, count], [signature.known]))


def _row_number(graph: Graph, front: Front, signature: TableSignature, keys: RowKeys) -> str:
    """The number of each row that the last list is searched for."""
    digits = _matrix_digits(graph, front, signature)
    parts = None if digits else _column_digits(graph, front, signature)
    earlier = ""
    for stage in keys.stages:
        if digits:
            weights = np.zeros(front.places, dtype=np.int64)
            weights[stage.start : stage.start + len(stage.strides)] = stage.strides
            number = graph.node("MatMul", [digits, graph.constant(weights, "strides", np.int64)], "number")
        else:
            assert parts is not None
            number = ""
            for part, stride in zip(parts[stage.start :], stage.strides, strict=False):
                scaled = part if stride == 1 else graph.node("Mul", [part, graph.whole([stride], "stride")], "scaled")
                number = graph.node("Add", [number, scaled], "number") if number else scaled
        if earlier:
            carried = graph.node("Mul", [earlier, graph.whole([stage.carry], "carry")], "carried")
            number = graph.node("Add", [number, carried], "number")
        if stage is keys.stages[-1]:
            return number
        earlier = _digits(graph, _whole_keys(graph, stage.keys), len(stage.keys), number)
    raise ExportError("a row without cells has no number")


def _matrix_digits(graph: Graph, front: Front, signature: TableSignature) -> str:
    """Digits (batch, columns) of a matrix in one step; empty where the columns differ in how they become digits."""
    if signature.matrix is None:
        return ""
    ways = [column.cutting for column in front.columns]
    first = ways[0]
    if isinstance(first, Cells) and all(way is first or way == first for way in ways):
        cells = _castable(graph, ROWS, signature.matrix)
        return _digits(graph, _cell_keys(graph, first, signature.matrix), len(first.values), cells)
    scaled = [way for way in ways if isinstance(way, Scaled)]
    return _scaled_digits(graph, scaled, ROWS, signature.matrix) if len(scaled) == len(ways) else ""


def _scaled_digits(graph: Graph, ways: Sequence[Scaled], cells: str, type: CellType) -> str:
    """Digits of numbers: Round(x·10^d) - low where that divided by 10^d is x again, and in the range."""
    kinds = graph.onnx.TensorProto

    def row(values: list[Any], wish: str, kind: Any) -> str:
        same = len(set(values)) == 1
        return graph.constant(values[:1] if same else values, wish, kind)

    lows, highs = [way.low for way in ways], [way.high for way in ways]
    outside = row([way.high - way.low + 1 + way.missing for way in ways], "outside", np.int64)
    if type is CellType.WHOLE:
        least = row(lows, "low", np.int64)
        low = graph.node("GreaterOrEqual", [cells, least], "not_below")
        high = graph.node("LessOrEqual", [cells, row(highs, "high", np.int64)], "not_above")
        inside = graph.node("And", [low, high], "inside")
        return graph.node("Where", [inside, graph.node("Sub", [cells, least], "from_low"), outside], "digits")
    unit = row([10.0**way.digits for way in ways], "unit", np.float64)
    rounded = graph.node("Round", [graph.node("Mul", [cells, unit], "times_unit")], "rounded")
    exact = graph.node("Equal", [graph.node("Div", [rounded, unit], "divided"), cells], "exact")
    least = row(list(map(float, lows)), "low", np.float64)
    low = graph.node("GreaterOrEqual", [rounded, least], "not_below")
    high = graph.node("LessOrEqual", [rounded, row(list(map(float, highs)), "high", np.float64)], "not_above")
    known = graph.node("And", [graph.node("And", [low, high], "inside"), exact], "known_cell")
    # Where() before Cast: NaN and large numbers have no int64.
    from_low = graph.node("Sub", [rounded, least], "from_low")
    valid = graph.node("Where", [known, from_low, row([0.0], "zero", np.float64)], "valid")
    digits = graph.node("Where", [known, graph.node("Cast", [valid], "whole", to=kinds.INT64), outside], "digits")
    if any(way.missing for way in ways):
        # A column without missing cells has the digit of an unknown cell here.
        lost = row([way.high - way.low + 1 for way in ways], "missing", np.int64)
        digits = graph.node("Where", [graph.node("IsNaN", [cells], "is_missing"), lost, digits], "digits")
    return digits


def _column_digits(graph: Graph, front: Front, signature: TableSignature) -> list[str]:
    """The digits of each column (batch,)."""
    found = []
    for number, column in enumerate(front.columns):
        cells, type = column.name, column.type
        if signature.matrix is not None:
            cells = graph.node("Gather", [ROWS, graph.constant(number, "column", np.int64)], "cells", axis=1)
            type = signature.matrix
        if isinstance(column.cutting, Cells):
            keys = _cell_keys(graph, column.cutting, type)
            found.append(_digits(graph, keys, len(column.cutting.values), _castable(graph, cells, type)))
        elif isinstance(column.cutting, Scaled):
            found.append(_scaled_digits(graph, [column.cutting], cells, type))
        else:
            raise ExportError(f"a lookup has no {column.cutting.name}")
    return found


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

    try:
        found = _take_lookup(onnx, model.graph, columns, label_type, record)
        built = build_lookup_model(found, {})
    except FileFormatError:
        raise
    except Exception as error:
        raise FileFormatError(f"the graph is not a lookup that this version writes ({error})") from None
    same = built.graph.SerializeToString() == model.graph.SerializeToString()
    opsets = sorted((part.domain, part.version) for part in model.opset_import)
    if not same or opsets != sorted((part.domain, part.version) for part in built.opset_import) or model.functions:
        raise FileFormatError("the graph differs from the graph of the tables that it contains")
    return found


def _take_lookup(
    onnx: Any, graph: Any, columns: Sequence[tuple[str, CellType]], label_type: CellType, record: dict[str, Any]
) -> TableLookup:
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
    constants = {part.name: part for part in graph.initializer}
    direct = not any(node.op_type == "Gather" and node.input[0] == "labels" for node in graph.node)
    if direct:
        distinct = list(dict.fromkeys(values))
        answers = GraphLabels.of(distinct, label_type)
        ids = {label: k for k, label in enumerate(distinct)}
        classes = np.array([ids[value] for value in values], dtype=np.int64)
    else:
        table = constants["labels"]
        text = table.data_type == onnx.TensorProto.STRING
        labels = [part.decode() for part in table.string_data] if text else onnx.numpy_helper.to_array(table).tolist()
        answers = GraphLabels(tuple(labels[:-1]), label_type, labels[-1])
        classes = np.array(values, dtype=np.int64)
    if is_keyed(front):
        return TableLookup(front, None, classes, answers)._ordered()
    stages = [
        replace(stage, keys=np.array(listed("keys", part), dtype=np.int64))
        for stage, part in zip(empty_stages(digit_sizes(front), len(values)), encoders[number:], strict=True)
    ]
    return TableLookup(front, RowKeys(tuple(stages)), classes, answers)._ordered()
