"""The nodes from cells to the number of a row: a digit for every column, times its stride, added up.

A node costs about half a microsecond for one row. So numbers of one type are scaled together, few listed cells are
stored times their stride, and numbers are bounded by their scale in place of masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.read.cells import CellType
from byheart.data.tokens.front import Cells, Cutting, Front, FrontColumn, Scaled
from byheart.data.tokens.row_keys import RowKeys
from byheart.errors import ExportError
from byheart.export.lookup.encoders import castable, cell_keys, encoder, whole_bytes, whole_keys, whole_values
from byheart.export.onnx_table import (
    ROWS,
    TableSignature,
)
from byheart.export.targets.onnx import Graph

_FOLDED_BYTES = 300  # more bytes of digits that are listed with their stride
Whole = npt.NDArray[np.int64]


def row_number(graph: Graph, front: Front, signature: TableSignature, keys: RowKeys) -> str:
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
        earlier = digit_node(graph, whole_keys(graph, stage.keys), len(stage.keys), number)
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
            cells = castable(graph, column.name, column.type)
            keys = cell_keys(graph, column.cutting, column.type)
            count, stride = len(column.cutting.values), strides[place]
            folds = _folds(count, stride)
            digits = digit_node(graph, keys, count, cells, stride if folds else 1)
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
        return digit_node(graph, cell_keys(graph, first, type), len(first.values), castable(graph, ROWS, type))
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


def digit_node(graph: Graph, keys: Any, count: int, source: str, stride: int = 1) -> str:
    """The place of each value among `count` keys times the stride, and that of `count` for any other value."""
    values = whole_values(graph, np.arange(count, dtype=np.int64) * stride, count * stride)
    return encoder(graph, keys, values, source, "digits")


def _folds(count: int, stride: int) -> bool:
    """Whether digits are listed times their stride, which saves a node."""
    places = np.arange(count, dtype=np.int64)
    return count * stride < 1 << 62 and whole_bytes(places * stride) <= whole_bytes(places) + _FOLDED_BYTES
