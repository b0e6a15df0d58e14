"""How the cells of a table become codes, by the size of the file: what `deploy` decides before it builds.

Every column is tokenized into characters, into words, or not at all; the codes are rows of a table in the network, or
numbers that it scrambles. The second stores nothing for each code, so that numbers of many digits need no names.
Unknown rows are recognised exactly, by a list of the rows' codes beside the network, or nearly always, by bits that
the network keeps for every row (`abstain_bits`). A table of one column that is looked up by its whole cells needs
neither, because a cell that is not in the table is already unknown.

>>> from byheart.data.read.cells import read_cells
>>> table = read_cells({"code": ["AB 1", "BA 2", "BB 1"], "place": ["x", "y", "x"]})
>>> best = plan_fronts(table, "auto", None, "float64")[0][0]
>>> best.front.columns[0].cutting.name, best.exact_unknown, best.listed
('whole cells', True, False)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from byheart.data.read.cells import CellTable, CellType
from byheart.data.tokens.front import Cells, Characters, Cutting, Front, FrontColumn, Scaled, Words, cuttings
from byheart.data.tokens.row_keys import keys_bytes
from byheart.errors import OptionError
from byheart.export.onnx_table import GraphLabels, front_bytes
from byheart.memory.memorize import USUAL_BITS

WAYS: dict[str, type[Any]] = {"characters": Characters, "words": Words, "cells": Cells}
EXACT = "exact"  # how unknown rows are recognised where no bits are given
_LONGEST_SCALE = 1 << 27  # codes of scaled numbers: far from where tokens outgrow the float type
_TOO_LONG = 1 << 60  # bytes of a way that is not taken
# Nodes of the network and its certificate, measured on fourteen tables: 7 to 14 kB where codes are rows of a table,
# 13 to 22 kB where they are scrambled numbers, 5 to 12 kB where the weights are stacked for many abstention bits.
_GRAPH_BYTES, _SCALAR_GRAPH_BYTES, _STACKED_GRAPH_BYTES = 10_200, 15_800, 8_000
_USUAL_PLACES = 8  # of a row, before columns are tokenized
_LIST_BYTES = 460  # nodes around a list of rows
_MOST_BUILT = 100_000  # rows of a table whose front is built to count its bytes; larger ones are estimated
_FLOAT_BYTES = {"float64": 8, "float32": 4}


@dataclass(frozen=True)
class TablePlan:
    """A front, how unknown rows are recognised, and the bytes that the file is estimated to take.

    `listed`: by a list of the rows; else by `abstain_bits` of the network. `others` are the bytes of the same front
    where that is done otherwise, by the flag.
    """

    front: Front
    abstain_bits: int
    listed: bool
    bytes: int
    others: dict[str, int]

    @property
    def exact_unknown(self) -> bool:
        """Whether a row that is not in the table is never taken for one that is."""
        return self.listed or _is_exact([column.cutting for column in self.front.columns])


def _bits_flag(bits: int) -> str:
    return f"--abstain-bits {bits}"


def _is_exact(ways: Sequence[Cutting]) -> bool:
    return len(ways) == 1 and isinstance(ways[0], Cells)


@dataclass(frozen=True)
class _Prices:
    """What `native` takes for this many rows and labels, in bytes: its body, a code of its table, the scrambler."""

    base: int
    code: int
    scrambler: int

    @staticmethod
    def of(rows: int, labels: int, places: int, abstain_bits: int, dtype: str) -> _Prices:
        from byheart.build.native.construction import planned_sizes  # builders are loaded only to build

        base, width, scrambler = planned_sizes(rows, labels, places, abstain_bits=abstain_bits, dtype=dtype)
        unit = _FLOAT_BYTES[dtype]
        return _Prices(unit * base, unit * width, unit * scrambler)

    def way(self, way: Cutting, scalars: bool) -> int:
        # A table of codes has a row for each code that occurs, and a scale has codes between them.
        if isinstance(way, Scaled) and (not scalars or way.sizes[0] > _LONGEST_SCALE):
            return _TOO_LONG
        return way.stored_bytes + (0 if scalars else self.code * sum(way.sizes))

    def weights(self, ways: Sequence[Cutting], scalars: bool) -> int:
        """Bytes of the weights."""
        if any(self.way(way, scalars) >= _TOO_LONG for way in ways):
            return _TOO_LONG
        codes = 0 if scalars else self.code * sum(sum(way.sizes) for way in ways)
        return self.base + scalars * self.scrambler + codes


def plan_fronts(
    table: CellTable, tokens: str, abstain_bits: int | None, dtype: str
) -> tuple[list[TablePlan], dict[str, int]]:
    """Plans by the bytes that the file is estimated to take, the smallest first; and the bytes of each tokenization.

    Without `abstain_bits` unknown rows are recognised exactly.
    """
    distinct = [list(dict.fromkeys(column.cells)) for column in table.columns]
    ways = [cuttings(values, column.type) for values, column in zip(distinct, table.columns, strict=True)]
    usual = USUAL_BITS if abstain_bits is None else abstain_bits
    answers = GraphLabels.of(tuple(dict.fromkeys(table.label.cells)), table.label.type)

    @cache
    def price(bits: int, places: int) -> _Prices:
        return _Prices.of(len(table), len(answers.labels), places, bits, dtype)

    choosing = price(0 if abstain_bits is None else usual, max(_USUAL_PLACES, len(table.columns)))

    def plan(chosen: Sequence[Cutting], scalars: bool) -> TablePlan:
        pairs = zip(table.columns, chosen, strict=True)
        front = Front(tuple(FrontColumn(column.name, column.type, way) for column, way in pairs), scalars)
        full, bare = price(usual, front.places), price(0, front.places)
        lists = keys_bytes(front.sizes, len(table)) + _LIST_BYTES
        cells = _front_bytes(front, answers, len(table))
        smallest = bare.weights(chosen, scalars) + cells + (_SCALAR_GRAPH_BYTES if scalars else _GRAPH_BYTES)
        if _is_exact(chosen):
            return TablePlan(front, 0, False, smallest, {})
        stacked = _STACKED_GRAPH_BYTES if usual else smallest - bare.weights(chosen, scalars) - cells
        abstaining = full.weights(chosen, scalars) + cells + stacked
        takes = {EXACT: smallest + lists, _bits_flag(usual): abstaining, _bits_flag(0): smallest}
        mine = EXACT if abstain_bits is None else _bits_flag(usual)
        others = {flag: count for flag, count in takes.items() if flag != mine}
        return TablePlan(front, 0 if mine == EXACT else usual, mine == EXACT, takes[mine], others)

    def plans(wanted: str) -> list[TablePlan]:
        found: list[TablePlan] = []
        tried: list[tuple[list[Cutting], bool]] = []
        # The cheapest way of each column alone, and every way for all columns: a list of rows and the nodes around
        # characters count for the whole file.
        for want in (wanted,) if wanted != "auto" else ("auto", *WAYS):
            for scalars in (False, True):
                allowed = [_allowed(way, want) for way in ways]
                cheapest = [min(few, key=lambda way: choosing.way(way, scalars)) for few in allowed]
                if (cheapest, scalars) not in tried:
                    tried.append((cheapest, scalars))
                    found.append(plan(cheapest, scalars))
        return sorted(found, key=lambda one: one.bytes)

    if tokens != "auto":
        _check_wanted(table, ways, tokens)
    others = {}
    if any(len(way) > 1 for way, column in zip(ways, table.columns, strict=True) if column.type is CellType.TEXT):
        for name, kind in WAYS.items():
            if all(any(isinstance(way, kind) for way in found) for found in ways if len(found) > 1):
                others[name] = plans(name)[0].bytes
    return plans(tokens), others


def _front_bytes(front: Front, answers: GraphLabels, rows: int) -> int:
    """Bytes of the cells' names, the graph around them and the labels."""
    if rows > _MOST_BUILT:
        return front.stored_bytes + answers.stored_bytes
    return front_bytes(front, answers)


def _allowed(ways: list[Cutting], wanted: str) -> list[Cutting]:
    """The ways that the user wants, where a column has them: numbers are not tokenized into characters."""
    found = [way for way in ways if wanted != "auto" and isinstance(way, WAYS[wanted])]
    return found or ways


def _check_wanted(table: CellTable, ways: list[list[Cutting]], tokens: str) -> None:
    for column, found in zip(table.columns, ways, strict=True):
        if column.type is CellType.TEXT and not any(isinstance(way, WAYS[tokens]) for way in found):
            reason = {
                "characters": "a cell is longer than 128 characters, or holds a null character",
                "words": "its texts have no spaces, or several in a row",
            }[tokens]
            raise OptionError(f"column {column.name!r} cannot be tokenized into {tokens}: {reason}; give --tokens auto")


def plan_lookup(table: CellTable) -> Front:
    """How the cells of each column become digits of a lookup, by the size of the file.

    One column is listed as it is. Columns of one type share one list of cells, or are scaled to whole numbers together;
    columns of several types are listed or scaled one by one.

    >>> from byheart.data.read.cells import read_cells
    >>> front = plan_lookup(read_cells({"x": [0.5, 1.25, 2.0], "y": [1.0, 2.0, 3.5], "kind": ["a", "b", "c"]}))
    >>> [column.cutting.name for column in front.columns]
    ['whole cells', 'whole cells']
    """
    distinct = [list(dict.fromkeys(column.cells)) for column in table.columns]
    ways = [cuttings(values, column.type) for values, column in zip(distinct, table.columns, strict=True)]
    listed = [next(way for way in found if isinstance(way, Cells)) for found in ways]
    scaled = [next((way for way in found if isinstance(way, Scaled)), None) for found in ways]

    def front(chosen: Sequence[Cutting]) -> Front:
        pairs = zip(table.columns, chosen, strict=True)
        return Front(tuple(FrontColumn(column.name, column.type, way) for column, way in pairs))

    def cost(chosen: Front, shared: bool = False) -> int:
        parts = [column.cutting for column in chosen.columns]
        stored = sum(way.stored_bytes for way in (parts[:1] if shared or isinstance(parts[0], Scaled) else parts))
        return stored + keys_bytes(chosen.sizes, len(table))

    if len(table.columns) == 1:
        return front(listed)
    types = {column.type for column in table.columns}
    doubles = all(column.fits_double for column in front(listed).columns)
    if len(types) == 1 or (types == {CellType.WHOLE, CellType.NUMBER} and doubles):
        union = Cells.of([value for way in listed for value in way.values])
        found = [(cost(front([union] * len(listed)), True), front([union] * len(listed)))]
        numbers = [way for way in scaled if way is not None]
        if len(numbers) == len(scaled):
            found.append((cost(front(numbers)), front(numbers)))
        return min(found, key=lambda pair: pair[0])[1]
    chosen = [
        one if number is None or one.stored_bytes <= number.stored_bytes else number
        for one, number in zip(listed, scaled, strict=True)
    ]
    return front(chosen)
