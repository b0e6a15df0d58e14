"""A table as a lookup: one ONNX graph of standard operators with the inputs, outputs and refusals of a network.

One column is one `LabelEncoder`: cell -> class. Several columns become digits of one whole number (`RowKeys`), and the
last `LabelEncoder` maps this number to the class. A cell outside the table gets a digit that no stored number has, so
that `known` needs no test of its own. The class selects the label, or the `LabelEncoder` returns the label itself where
that makes the file smaller. Rows of texts that seldom repeat are one joined text instead (`onnx_joined`).

`read_lookup` reverses `build_lookup_model`: it takes the tables out of a file, builds the graph of these tables again
and compares the two. So a file is proved from its own bytes: it lists these rows with these labels, and no others.

>>> from byheart.data.tokens.front import Cells, Front, FrontColumn
>>> front = Front((FrontColumn("code", CellType.TEXT, Cells(("a", "b", "c"))),))
>>> lookup = TableLookup.of(front, [["b", "a", "c"]], [0, 1, 0], GraphLabels.of(("x", "y"), CellType.TEXT))
>>> lookup.rows()
{('a',): 'y', ('b',): 'x', ('c',): 'x'}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Cutting, Front, FrontColumn, Scaled
from byheart.data.tokens.row_keys import RowKeys, empty_stages
from byheart.errors import ExportError, FileFormatError
from byheart.export.onnx_table import (
    ROWS,
    GraphLabels,
    TableSignature,
    check_same_graph,
    graph_inputs,
    graph_outputs,
    label_constant,
    read_labels,
    tensor,
)
from byheart.export.targets.onnx import ML, Graph

Whole = npt.NDArray[np.int64]
_LEAST = -(1 << 63)  # the mark of unknown rows beside whole labels, unless it is a label
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
    inputs = graph_inputs(graph, front.named_types, signature)
    if lookup.keys is None:
        column = front.columns[0]
        assert isinstance(column.cutting, Cells)
        cells = _castable(graph, column.name, column.type)
        answer_nodes(graph, cell_keys(graph, column.cutting, column.type), cells, lookup, signature)
    else:
        number = _row_number(graph, front, signature, lookup.keys)
        answer_nodes(graph, _whole_keys(graph, lookup.keys.stages[-1].keys), number, lookup, signature)
    graph.forget_node_names()
    return graph.model(inputs, graph_outputs(graph, answers, signature), about)


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


def cell_keys(graph: Graph, cutting: Cells, type: CellType) -> Any:
    """The keys of a `LabelEncoder`: the cells of a column."""
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
    return _RAW * len(lookup.classes) <= varint_bytes(lookup.classes) + _RAW * len(answers.labels)


def answer_nodes(graph: Graph, keys: Any, source: str, lookup: TableLookup, signature: TableSignature) -> None:
    """The label and whether the row is known, from the number of a row."""
    answers, helper = lookup.answers, graph.onnx.helper
    if _returns_label(lookup):
        values, default = _label_values(graph, lookup)
        node = helper.make_node("LabelEncoder", [source], [signature.label], domain=ML)
        node.attribute.extend([keys, values, default])
        graph.domains.add(ML)
        graph.nodes.append(node)
        _known_by_label(graph, answers, signature)
        return
    values = _whole_list(graph, "values", lookup.classes)
    number = _encoder(graph, keys, [values, _default(graph, len(answers.labels), values)], source, "class")
    graph.nodes.append(helper.make_node("Gather", [label_constant(graph, answers), number], [signature.label]))
    count = graph.constant(len(answers.labels), "classes", np.int64)
    graph.nodes.append(helper.make_node("Less", [number, count], [signature.known]))


def _label_values(graph: Graph, lookup: TableLookup) -> tuple[Any, Any]:
    """The label of every row and the one of no row, as attributes of a `LabelEncoder`."""
    answers, classes = lookup.answers, lookup.classes
    if answers.type is CellType.TEXT:
        labels = [str(label).encode() for label in answers.labels]
        values = _attribute(graph, "values_strings", strings=[labels[k] for k in classes.tolist()])
        return values, _attribute(graph, "default_string", s=str(answers.unknown).encode())
    if answers.type is CellType.WHOLE:
        values = _whole_list(graph, "values", np.array(answers.labels, dtype=np.int64)[classes])
        return values, _default(graph, answers.unknown, values)
    stored, nothing = (
        graph.onnx.numpy_helper.from_array(np.array(numbers, dtype=np.float64), name)
        for numbers, name in (([answers.labels[k] for k in classes.tolist()], "values"), ([math.nan], "default"))
    )
    return _attribute(graph, "values_tensor", t=stored), _attribute(graph, "default_tensor", t=nothing)


def _known_by_label(graph: Graph, answers: GraphLabels, signature: TableSignature) -> None:
    """Whether the label is not the one of unknown rows, in as few nodes as possible: each costs half a microsecond."""
    helper = graph.onnx.helper
    if answers.type is CellType.NUMBER:  # NaN, which is no label (`settle_cells`) and differs from itself
        graph.nodes.append(helper.make_node("Equal", [signature.label, signature.label], [signature.known]))
        return
    text = answers.type is CellType.TEXT
    mark = graph.texts([str(answers.unknown)], "none") if text else graph.whole([answers.unknown], "none")
    if not text and answers.unknown == _LEAST:
        graph.nodes.append(helper.make_node("Greater", [signature.label, mark], [signature.known]))
        return
    same = graph.node("Equal", [signature.label, mark], "new")
    graph.nodes.append(helper.make_node("Not", [same], [signature.known]))


def _row_number(graph: Graph, front: Front, signature: TableSignature, keys: RowKeys) -> str:
    """The number of each row that the last list is searched for."""
    groups = _digit_groups(graph, front, signature)
    earlier = ""
    for stage in keys.stages:
        strides = dict(enumerate(stage.strides, start=stage.start))
        terms = [earlier and graph.node("Mul", [earlier, graph.whole([stage.carry], "carry")], "carried")]
        terms += [_weighed(graph, group, strides) for group in groups]
        number = ""
        for term in filter(None, terms):
            number = graph.node("Add", [number, term], "number") if number else term
        if stage is keys.stages[-1]:
            return number
        earlier = _digits(graph, _whole_keys(graph, stage.keys), len(stage.keys), number)
    raise ExportError("a row without cells has no number")


@dataclass(frozen=True)
class _Group:
    """Columns that become digits in one step: (batch, places) of a matrix, else (places, batch), or (batch,) of one."""

    places: list[int]
    digits: str
    matrix: bool = False


def _weighed(graph: Graph, group: _Group, strides: dict[int, int]) -> str:
    """The digits of a group times the strides of their places, added up (batch,); empty where none has a stride."""
    weights = [strides.get(place, 0) for place in group.places]
    if not any(weights):
        return ""
    if group.matrix:
        return graph.node("MatMul", [group.digits, graph.whole(weights, "strides")], "number")
    if len(weights) > 1:
        return graph.node("MatMul", [graph.whole(weights, "strides"), group.digits], "number")
    if weights == [1]:
        return group.digits
    return graph.node("Mul", [group.digits, graph.whole(weights, "stride")], "scaled")


def _digit_groups(graph: Graph, front: Front, signature: TableSignature) -> list[_Group]:
    """The digits of all columns."""
    ways = [column.cutting for column in front.columns]
    if signature.matrix is not None:
        return [_Group(list(range(len(ways))), _matrix_digits(graph, ways, signature.matrix), matrix=True)]
    # Numbers of one type are scaled together: a dozen nodes for all of them instead of a dozen each.
    together: dict[CellType, list[int]] = {}
    for place, column in enumerate(front.columns):
        if isinstance(column.cutting, Scaled):
            together.setdefault(column.type, []).append(place)
    groups = []
    for place, column in enumerate(front.columns):
        if isinstance(column.cutting, Cells):
            cells = _castable(graph, column.name, column.type)
            keys = cell_keys(graph, column.cutting, column.type)
            groups.append(_Group([place], _digits(graph, keys, len(column.cutting.values), cells)))
        elif isinstance(column.cutting, Scaled):
            places = together[column.type]
            if place == places[0]:
                groups.append(_Group(places, _scaled_columns(graph, [front.columns[k] for k in places])))
        else:
            raise ExportError(f"a lookup has no {column.cutting.name}")
    return groups


def _matrix_digits(graph: Graph, ways: Sequence[Cutting], type: CellType) -> str:
    """Digits (batch, columns) of a matrix in one step."""
    first = ways[0]
    if isinstance(first, Cells) and all(way is first or way == first for way in ways):
        return _digits(graph, cell_keys(graph, first, type), len(first.values), _castable(graph, ROWS, type))
    scaled = [way for way in ways if isinstance(way, Scaled)]
    if len(scaled) < len(ways):
        raise ExportError("the columns of a matrix share one list of cells, or are scaled together")
    return _scaled_digits(graph, scaled, ROWS, type)


def _scaled_columns(graph: Graph, columns: Sequence[FrontColumn]) -> str:
    """Digits of columns of numbers: (batch,) of one, else (columns, batch), which is faster than its transpose."""
    ways = [column.cutting for column in columns if isinstance(column.cutting, Scaled)]
    cells = columns[0].name
    if len(columns) > 1:
        axis = graph.whole([0], "axis")
        rows = [graph.node("Unsqueeze", [column.name, axis], "column") for column in columns]
        cells = graph.node("Concat", rows, "columns", axis=0)
    return _scaled_digits(graph, ways, cells, columns[0].type, upright=True)


def _scaled_digits(graph: Graph, ways: Sequence[Scaled], cells: str, type: CellType, upright: bool = False) -> str:
    """Digits of numbers: Round(x·10^d) - low where that divided by 10^d is x again, and in the range.

    Cells are (batch, columns), or (columns, batch) if `upright`.
    """
    kinds = graph.onnx.TensorProto

    def row(values: list[Any], wish: str, kind: Any) -> str:
        same = len(set(values)) == 1
        return graph.constant(values[:1] if same else [[one] for one in values] if upright else values, wish, kind)

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
        found = take_lookup(onnx, model.graph, columns, label_type, record)
        check_same_graph(build_lookup_model(found, {}), model)
    except FileFormatError:
        raise
    except Exception as error:
        raise FileFormatError(f"the graph is not a lookup that this version writes ({error})") from None
    return found


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
    constants = {part.name: part for part in graph.initializer}
    direct = not any(node.op_type == "Gather" and node.input[0] == "labels" for node in graph.node)
    if direct:
        distinct = list(dict.fromkeys(values))
        answers = GraphLabels.of(distinct, label_type)
        ids = {label: k for k, label in enumerate(distinct)}
        classes = np.array([ids[value] for value in values], dtype=np.int64)
    else:
        answers = read_labels(onnx, constants["labels"], label_type)
        classes = np.array(values, dtype=np.int64)
    if is_keyed(front):
        return TableLookup(front, None, classes, answers)._ordered()
    stages = [
        replace(stage, keys=np.array(listed("keys", part), dtype=np.int64))
        for stage, part in zip(empty_stages(digit_sizes(front), len(values)), encoders[number:], strict=True)
    ]
    return TableLookup(front, RowKeys(tuple(stages)), classes, answers)._ordered()
