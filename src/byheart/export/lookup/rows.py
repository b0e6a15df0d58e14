"""The rows of a lookup: each is a whole number, made of a digit for every column, and has a class.

A cell outside the table has a digit that no listed row has, so that a listed number belongs to one row of cells.

>>> from byheart.data.read.cells import CellType
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

from byheart.data.tokens.front import Cells, Cutting, Front, Scaled
from byheart.data.tokens.row_keys import RowKeys
from byheart.errors import ExportError, FileFormatError
from byheart.export.onnx_table import (
    GraphLabels,
)

Whole = npt.NDArray[np.int64]


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
                refuse_unknown_digits(column.cutting, digits[:, place])

    def rows(self) -> dict[tuple[Any, ...], Any]:
        """Every row that the file contains -> its label."""
        labels = [self.answers.labels[number] for number in self.classes.tolist()]
        if self.keys is None:
            cutting = self.front.columns[0].cutting
            assert isinstance(cutting, Cells)
            return {(cell,): label for cell, label in zip(cutting.values, labels, strict=True)}
        digits = self.keys.digits(digit_sizes(self.front))
        cells = [cells_of(column.cutting, digits[:, place]) for place, column in enumerate(self.front.columns)]
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


def refuse_unknown_digits(cutting: Cutting, digits: Whole) -> None:
    """Raise a FileFormatError for a digit that cells outside the table have."""
    if isinstance(cutting, Scaled):
        unknown = (digits == 0) | (digits == cutting.high - cutting.low + 2)
    else:
        unknown = digits >= sum(cutting.sizes)
    if unknown.any():
        raise FileFormatError("the file lists a row of unknown cells")


def cells_of(cutting: Cutting, digits: Whole) -> list[Any]:
    """The cells of digits."""
    refuse_unknown_digits(cutting, digits)
    if isinstance(cutting, Cells):
        return [cutting.values[code] for code in digits.tolist()]
    if isinstance(cutting, Scaled):
        span = cutting.high - cutting.low + 1
        return [cutting.value(digit - 1 - (digit > span)) for digit in digits.tolist()]
    raise ExportError(f"a lookup has no {cutting.name}")
