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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Cutting, Front, FrontColumn, Scaled
from byheart.data.tokens.row_keys import RowKeys, empty_stages
from byheart.errors import ExportError, FileFormatError
from byheart.export.onnx_table import (
    DTYPES,
    ROWS,
    GraphLabels,
    TableSignature,
    check_same_graph,
    finish_lookup,
    graph_inputs,
    tensor,
)
from byheart.export.targets.onnx import ML, Graph, pack, varint_sizes

Whole = npt.NDArray[np.int64]
_LEAST = -(1 << 63)  # the mark of unknown rows beside whole labels, unless it is a label
_RAW = 8  # bytes of a float64, and of an int64 in a raw tensor
# More bytes of a tensor in an attribute than of a list there: two wrappers, the dimension, the type; measured.
_TENSOR_BYTES, _DEFAULT_TENSOR_BYTES = 9, 8
_FOLDED_BYTES = 300  # more bytes of digits that are listed with their stride: a node less is half a microsecond


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
        front.forget_codes()
        if not known.all():
            raise ExportError("a row of the table has a cell that its own front does not contain; please report this")
        local = digits_of(front, codes - np.array(front.first_codes))
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

    def places(self, columns: Sequence[Sequence[Any]]) -> Whole:
        """The place of each row of cells in the list of the rows, -1 for a row that is not listed."""
        codes, known = self.front.encode(columns)
        self.front.forget_codes()
        codes -= np.array(self.front.first_codes)
        if self.keys is None:
            return np.where(known, codes[:, 0], -1)
        digits = digits_of(self.front, codes)
        known &= self.keys.known(digits)
        return np.where(known, self.keys.places(digits), -1)

    def check_order(self) -> None:
        """Raise a FileFormatError unless each cell and each row is listed once, the rows in their order."""
        for column in self.front.columns:
            cells = column.cutting.values if isinstance(column.cutting, Cells) else ()
            if len(set(cells)) < len(cells):
                raise FileFormatError(f"a cell of {column.name!r} is listed twice")
        for stage in () if self.keys is None else self.keys.stages:
            if (np.diff(stage.keys) <= 0).any():
                raise FileFormatError("the rows are not in their order")
        if self.keys is not None:
            digits = self.keys.digits(digit_sizes(self.front))
            for place, column in enumerate(self.front.columns):
                _refuse_unknown_digits(column.cutting, digits[:, place])

    def rows(self) -> dict[tuple[Any, ...], Any]:
        """Every row that the file contains -> its label."""
        labels = [self.answers.labels[number] for number in self.classes.tolist()]
        if self.keys is None:
            cutting = self.front.columns[0].cutting
            assert isinstance(cutting, Cells)
            return {(cell,): label for cell, label in zip(cutting.values, labels, strict=True)}
        digits = self.keys.digits(digit_sizes(self.front))
        cells = [_cells_of(column.cutting, digits[:, place]) for place, column in enumerate(self.front.columns)]
        return dict(zip(zip(*cells, strict=True), labels, strict=True))


def is_keyed(front: Front) -> bool:
    """Whether the cells of one column are the list of rows."""
    return len(front.columns) == 1 and isinstance(front.columns[0].cutting, Cells)


def digit_sizes(front: Front) -> tuple[int, ...]:
    """How many digits each place has.

    Listed cells have a digit each and one for every other cell. Scaled numbers have one for all below the lowest
    (0), one for each number of the scale, one for all others, and one for the missing cell.
    """
    return tuple(_digit_count(column.cutting) for column in front.columns)


def _digit_count(cutting: Cutting) -> int:
    return sum(cutting.sizes) + (2 if isinstance(cutting, Scaled) else 1)


def digits_of(front: Front, codes: Whole) -> Whole:
    """The digits of codes (rows, places) that are counted from 0 at every place."""
    found = codes.copy()
    for place, column in enumerate(front.columns):
        way = column.cutting
        if isinstance(way, Scaled):
            found[:, place] += 1 + (codes[:, place] > way.high - way.low)
    return found


def _refuse_unknown_digits(cutting: Cutting, digits: Whole) -> None:
    """Raise a FileFormatError for a digit that cells outside the table have."""
    if isinstance(cutting, Scaled):
        unknown = (digits == 0) | (digits == cutting.high - cutting.low + 2)
    else:
        unknown = digits >= sum(cutting.sizes)
    if unknown.any():
        raise FileFormatError("the file lists a row of unknown cells")


def _cells_of(cutting: Cutting, digits: Whole) -> list[Any]:
    """The cells of digits."""
    _refuse_unknown_digits(cutting, digits)
    if isinstance(cutting, Cells):
        return [cutting.values[code] for code in digits.tolist()]
    if isinstance(cutting, Scaled):
        span = cutting.high - cutting.low + 1
        return [cutting.value(digit - 1 - (digit > span)) for digit in digits.tolist()]
    raise ExportError(f"a lookup has no {cutting.name}")


def list_bytes(numbers: Whole) -> int:
    """Bytes of whole numbers as a repeated attribute: a tag and a varint each.

    >>> list_bytes(np.array([0, 127, 128, -1]))
    18
    """
    return int((1 + varint_sizes(numbers)).sum())


def tensor_bytes(numbers: Whole) -> int:
    """Bytes of whole numbers as a tensor in an attribute."""
    return min(int(varint_sizes(numbers).sum()), _RAW * len(numbers)) + _TENSOR_BYTES


def text_bytes(texts: Sequence[str]) -> int:
    """Bytes of texts as a repeated attribute or in a tensor: a tag, the length, the UTF-8 bytes."""
    lengths = [len(text.encode()) for text in texts]
    return sum(n + 2 + (n > 127) + (n > 16383) for n in lengths)


def whole_bytes(numbers: Whole) -> int:
    """Bytes of whole numbers in the smaller of the two forms."""
    return min(list_bytes(numbers), tensor_bytes(numbers))


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
        cells = _castable(graph, column.name, column.type)
        answer_nodes(graph, cell_keys(graph, column.cutting, column.type), cells, lookup, signature)
    else:
        number = _row_number(graph, front, signature, lookup.keys)
        answer_nodes(graph, _whole_keys(graph, lookup.keys.stages[-1].keys), number, lookup, signature)
    return finish_lookup(graph, inputs, answers, signature, about, label)


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


def _whole_list(graph: Graph, role: str, numbers: Whole, extra: int = 0) -> Any:
    """Whole numbers as an attribute or as a tensor, whichever is smaller; `extra` bytes come with the tensor."""
    if list_bytes(numbers) <= tensor_bytes(numbers) + extra:
        return _attribute(graph, f"{role}_int64s", ints=numbers.tolist())
    return _attribute(graph, f"{role}_tensor", t=_unnamed(graph, numbers))


def _unnamed(graph: Graph, numbers: npt.NDArray[Any]) -> Any:
    return pack(graph.onnx.numpy_helper.from_array(numbers))


def _whole_keys(graph: Graph, keys: Whole) -> Any:
    return _whole_list(graph, "keys", keys)


def cell_keys(graph: Graph, cutting: Cells, type: CellType) -> Any:
    """The keys of a `LabelEncoder`: the cells of a column."""
    if type is CellType.TEXT:
        return _attribute(graph, "keys_strings", strings=[(value or "").encode() for value in cutting.values])
    if type is CellType.NUMBER:
        return _attribute(graph, "keys_tensor", t=_unnamed(graph, tensor(cutting.values, type)))
    return _whole_keys(graph, np.array(cutting.values, dtype=np.int64))


def _encoder(graph: Graph, keys: Any, values: Sequence[Any], source: str, wish: str) -> str:
    """A `LabelEncoder` node; `values` are the attributes of the values and of the default."""
    name = graph.name(wish)
    node = graph.onnx.helper.make_node("LabelEncoder", [source], [name], domain=ML)
    node.attribute.extend([keys, *values])
    graph.domains.add(ML)
    graph.nodes.append(node)
    return name


def _whole_values(graph: Graph, numbers: Whole, default: int) -> list[Any]:
    """The attributes of whole values and of the default: ONNX Runtime reads both from tensors or both from lists."""
    values = _whole_list(graph, "values", numbers, _DEFAULT_TENSOR_BYTES)
    if values.name.endswith("_tensor"):
        return [values, _attribute(graph, "default_tensor", t=_unnamed(graph, np.array([default], np.int64)))]
    return [values, _attribute(graph, "default_int64", i=default)]


def _digits(graph: Graph, keys: Any, count: int, source: str, stride: int = 1) -> str:
    """The place of each value among `count` keys times the stride, and that of `count` for any other value."""
    values = _whole_values(graph, np.arange(count, dtype=np.int64) * stride, count * stride)
    return _encoder(graph, keys, values, source, "digits")


def _folds(count: int, stride: int) -> bool:
    """Whether digits are listed times their stride, which saves a node."""
    places = np.arange(count, dtype=np.int64)
    return count * stride < 1 << 62 and whole_bytes(places * stride) <= whole_bytes(places) + _FOLDED_BYTES


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
    return _RAW * len(lookup.classes) <= whole_bytes(lookup.classes + 1) + _RAW * len(answers.labels)


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
    number = _encoder(graph, keys, _whole_values(graph, lookup.classes + 1, 0), source, "class")
    graph.nodes.append(helper.make_node("Gather", [_label_table(graph, answers), number], [signature.label]))
    truth = graph.onnx.TensorProto.BOOL
    graph.nodes.append(helper.make_node("Cast", [number], [signature.known], to=truth))


def _label_table(graph: Graph, answers: GraphLabels) -> str:
    """The label of unknown rows, then the label of every class, as a constant."""
    labels = [answers.unknown, *answers.labels]
    if answers.type is CellType.TEXT:
        return graph.texts(labels, "labels")
    return graph.constant(np.array(labels, dtype=DTYPES[answers.type]), "labels", DTYPES[answers.type])


def _read_label_table(onnx: Any, constant: Any, type: CellType) -> GraphLabels:
    text = constant.data_type == onnx.TensorProto.STRING
    labels = [part.decode() for part in constant.string_data] if text else onnx.numpy_helper.to_array(constant).tolist()
    return GraphLabels(tuple(labels[1:]), type, labels[0])


def _label_values(graph: Graph, lookup: TableLookup) -> list[Any]:
    """The label of every row and the one of no row, as attributes of a `LabelEncoder`."""
    answers, classes = lookup.answers, lookup.classes
    if answers.type is CellType.TEXT:
        labels = [str(label).encode() for label in answers.labels]
        values = _attribute(graph, "values_strings", strings=[labels[k] for k in classes.tolist()])
        return [values, _attribute(graph, "default_string", s=str(answers.unknown).encode())]
    if answers.type is CellType.WHOLE:
        return _whole_values(graph, np.array(answers.labels, dtype=np.int64)[classes], answers.unknown)
    stored = _unnamed(graph, np.array(answers.labels, dtype=np.float64)[classes])
    nothing = _unnamed(graph, np.array([math.nan]))
    return [_attribute(graph, "values_tensor", t=stored), _attribute(graph, "default_tensor", t=nothing)]


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
    strides = {place: stride for stage in keys.stages for place, stride in enumerate(stage.strides, start=stage.start)}
    groups = _digit_groups(graph, front, signature, strides)
    earlier = ""
    for stage in keys.stages:
        own = dict(enumerate(stage.strides, start=stage.start))
        terms = [earlier and graph.node("Mul", [earlier, graph.whole([stage.carry], "carry")], "carried")]
        terms += [_weighed(graph, group, own) for group in groups]
        number = ""
        for term in filter(None, terms):
            number = graph.node("Add", [number, term], "number") if number else term
        if stage is keys.stages[-1]:
            return number
        earlier = _digits(graph, _whole_keys(graph, stage.keys), len(stage.keys), number)
    raise ExportError("a row without cells has no number")


@dataclass(frozen=True)
class _Group:
    """Columns that become digits in one step: (batch, places) of a matrix, else (places, batch), or (batch,) of one.

    `folded`: the digits are those times their stride.
    """

    places: list[int]
    digits: str
    matrix: bool = False
    folded: bool = False


def _weighed(graph: Graph, group: _Group, strides: dict[int, int]) -> str:
    """The digits of a group times the strides of their places, added up (batch,); empty where none has a stride."""
    weights = [strides.get(place, 0) for place in group.places]
    if not any(weights):
        return ""
    if group.matrix:
        return graph.node("MatMul", [group.digits, graph.whole(weights, "strides")], "number")
    if len(weights) > 1:
        return graph.node("MatMul", [graph.whole(weights, "strides"), group.digits], "number")
    if group.folded or weights == [1]:
        return group.digits
    return graph.node("Mul", [group.digits, graph.whole(weights, "stride")], "scaled")


def _digit_groups(graph: Graph, front: Front, signature: TableSignature, strides: dict[int, int]) -> list[_Group]:
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
            count, stride = len(column.cutting.values), strides[place]
            folds = _folds(count, stride)
            digits = _digits(graph, keys, count, cells, stride if folds else 1)
            groups.append(_Group([place], digits, folded=folds))
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
    """Digits of numbers (`digit_sizes`): Round(x·10^d) - low + 1 where that divided by 10^d is x again.

    Cells are (batch, columns), or (columns, batch) if `upright`. A number that is not of the scale is taken for one
    above it, and numbers outside it for the one before its first or after its last number. Whole numbers are compared
    as doubles, which keeps their order: ONNX Runtime 1.31 orders some int64 above 2^31 wrongly in Max, Min and Clip.
    """
    kinds = graph.onnx.TensorProto

    def row(values: list[Any], wish: str, kind: Any) -> str:
        same = len(set(values)) == 1
        return graph.constant(values[:1] if same else [[one] for one in values] if upright else values, wish, kind)

    below, above = [float(way.low - 1) for way in ways], [float(way.high + 1) for way in ways]
    alike = len({*below}) == len({*above}) == 1
    # Clip takes scalars.
    least, most = (
        graph.constant(bounds[0], wish, np.float64) if alike else row(bounds, wish, np.float64)
        for bounds, wish in ((below, "below"), (above, "above"))
    )
    if type is CellType.WHOLE:
        inside = graph.node("Cast", [cells], "numbers", to=kinds.DOUBLE)
    else:
        inside = graph.node("Where", [*_on_scale(graph, ways, cells, row), most], "on_scale")
    if alike:
        inside = graph.node("Clip", [inside, least, most], "inside")
    else:
        inside = graph.node("Min", [graph.node("Max", [inside, least], "not_below"), most], "inside")
    digits = graph.node("Cast", [graph.node("Sub", [inside, least], "from_low")], "digits", to=kinds.INT64)
    if any(way.missing for way in ways):
        # A column without missing cells has the digit of a number above its scale here.
        lost = row([way.high - way.low + 2 + way.missing for way in ways], "missing", np.int64)
        digits = graph.node("Where", [graph.node("IsNaN", [cells], "is_missing"), lost, digits], "digits")
    return digits


def _on_scale(graph: Graph, ways: Sequence[Scaled], cells: str, row: Callable[..., str]) -> tuple[str, str]:
    """Which decimals are of their scale, and their rounded multiples; NaN is not."""
    if not any(way.digits for way in ways):
        rounded = graph.node("Round", [cells], "rounded")
        return graph.node("Equal", [rounded, cells], "exact"), rounded
    unit = row([10.0**way.digits for way in ways], "unit", np.float64)
    rounded = graph.node("Round", [graph.node("Mul", [cells, unit], "times_unit")], "rounded")
    return graph.node("Equal", [graph.node("Div", [rounded, unit], "divided"), cells], "exact"), rounded


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
        found.check_order()
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
    table = next((node.input[0] for node in graph.node if node.op_type == "Gather"), None)
    if table is None:
        distinct = list(dict.fromkeys(values))
        answers = GraphLabels.of(distinct, label_type)
        ids = {label: k for k, label in enumerate(distinct)}
        classes = np.array([ids[value] for value in values], dtype=np.int64)
    else:
        stored = next(part for part in graph.initializer if part.name == table)
        answers = _read_label_table(onnx, stored, label_type)
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
