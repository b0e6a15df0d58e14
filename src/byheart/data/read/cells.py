"""A table as columns of cells, each column of one type: what a deployed model takes, one input after the other.

A column of a text format is taken as numbers where nothing is lost by it: every cell is written as numbers usually
are (no leading zeros), and different cells are different numbers. `00501` stays a text, and so does a column with both
`1.1` and `1.10`.

>>> table = read_cells({"size": ["1.5", "2"], "zip": ["00501", "10001"], "kind": ["a", "b"]})
>>> [(column.name, column.type.value) for column in table.columns], table.label.name
([('size', 'number'), ('zip', 'text')], 'kind')
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from byheart.data.read.columns import choose_column, numbers_rows, open_records, read_columns, table_columns
from byheart.data.read.sources import Limits, TextForm
from byheart.data.values import days_as_texts, is_missing, plain
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError
from byheart.progress import SILENT, Progress, timed

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_EXACT = (1 << 53) - 1  # whole numbers up to this are floats, and no others round to them
_SPELLED = (str, int, float, datetime.date, datetime.time, datetime.timedelta, UUID)
_SPELLED_NAMES = ("Period", "Interval")  # of pandas; their texts distinguish them
_USUAL_PLACES = 8  # of a cell, before it is tokenized


class CellType(StrEnum):
    """What the cells of a column are, and the type of its input tensor."""

    TEXT = "text"  # string
    WHOLE = "whole number"  # int64
    NUMBER = "number"  # double
    TRUTH = "truth value"  # bool


@dataclass(frozen=True)
class Column:
    """Cells of one type, None where one is missing."""

    name: str
    type: CellType
    cells: list[Any]

    def take(self, rows: Sequence[int]) -> Column:
        return replace(self, cells=[self.cells[row] for row in rows])


@dataclass(frozen=True)
class CellTable:
    """Input columns and the label's column, row by row; `numbers` are the places of the rows in their source."""

    columns: tuple[Column, ...]
    label: Column
    numbers: list[int]
    origin: str
    unit: str = "row"
    remarks: tuple[str, ...] = ()
    uneven: tuple[tuple[int, int], ...] = ()  # (place, cells) of lines that are not rows of this table
    header_doubt: tuple[str, str] = ("", "")  # why its first line may have been a row, and the flag that loses nothing
    reading: str = ""  # which columns were chosen, for people
    other_label: str = ""  # the last column, where the label was guessed to be another one

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Sequence[int]) -> CellTable:
        """These rows alone."""
        return replace(
            self,
            columns=tuple(column.take(rows) for column in self.columns),
            label=self.label.take(rows),
            numbers=[self.numbers[row] for row in rows],
        )


@timed("reading")
def read_cells(
    source: Any,
    *,
    label: str | None = None,
    columns: Sequence[str] = (),
    drop: Collection[str] = (),
    texts: Collection[str] = (),
    header: bool | None = None,
    encoding: str | None = None,
    limits: Limits | None = None,
    progress: Progress = SILENT,
) -> CellTable:
    """The columns of a file or a frame. The label is the named column, else one with a usual name, else the last one.

    `columns` are the inputs, by default all others but those of `drop`; the columns of `texts` stay texts. Without
    `header`, a CSV file has one, and `header_doubt` is set if it looks like a row.
    """
    limits = limits or Limits()
    records = open_records(source, limits, TextForm(header is not False, encoding, lenient=True))
    for name in texts:
        choose_column(records, name, (), "input", ())
    chosen = table_columns(records, columns, label, drop)
    inputs, named = list(chosen.inputs), chosen.label
    if not inputs:
        index = "; the index of a frame is not a column: frame.reset_index() makes it one"
        words = f"{records.origin} has one column, {named!r}; it needs another one to look its values up by"
        raise DataError(words + (index if _is_indexed(source) else ""))
    if named in inputs or len(set(inputs)) < len(inputs):
        raise OptionError(f"the column {named!r} is the label and cannot be an input too; each column is named once")
    found = read_columns(records, inputs, named, limits, progress, tokens=_USUAL_PLACES)
    pairs = [*zip(inputs, found.cells, strict=True), (named, found.labels)]
    nothing = [name for name, cells in pairs[:-1] if not name and all(map(is_missing, cells))]
    typed = [
        typed_column(name, cells, found.place, keep_text=name in texts) for name, cells in pairs if name not in nothing
    ]
    left = "a column without a name and without cells was skipped" if nothing else ""
    return CellTable(
        tuple(typed[:-1]),
        typed[-1],
        list(found.numbers),
        records.origin,
        records.unit,
        remarks=tuple(part for part in (records.remark, left) if part),
        uneven=tuple(records.uneven),
        header_doubt=found.doubt if header is None else ("", ""),
        reading=chosen.line(records.columns),
        other_label=inputs[-1] if chosen.reason and inputs[-1] == records.columns[-1] else "",
    )


def _is_indexed(source: Any) -> bool:
    """Whether a frame of pandas has rows with names, which are not among its columns."""
    return any(name is not None for name in getattr(getattr(source, "index", None), "names", None) or ())


def typed_column(
    name: str, cells: list[Any], place: Callable[[int], str] = "row {}".format, *, keep_text: bool = False
) -> Column:
    """The cells as one type that holds each of them exactly; a DataError where there is none.

    >>> typed_column("x", ["1", None, "2.5"]).cells, typed_column("x", ["1", "01"]).cells
    ([1.0, None, 2.5], ['1', '01'])
    """
    found = [None if is_missing(cell) else plain(cell) for cell in cells]
    kinds = {type(cell) for cell in found} - {type(None)}
    if kinds == {Decimal}:
        found = _numbers_of_decimals(found)
        kinds = {type(cell) for cell in found} - {type(None)}
    if kinds == {str}:
        numbers = None if keep_text else _numbers_of_texts(found)
        return Column(name, CellType.TEXT, found) if numbers is None else _numeric(name, numbers)
    if kinds == {bool} and None not in found and not keep_text:
        return Column(name, CellType.TRUTH, found)
    if kinds and kinds <= {int, float} and not keep_text:
        numeric = _numeric(name, found)
        if numeric.type is not CellType.TEXT:
            return numeric
    return Column(name, CellType.TEXT, _as_texts(name, found, place))


def _numbers_of_texts(cells: list[Any]) -> list[Any] | None:
    """The numbers that the texts write, where every one is a number and no two texts write the same."""
    distinct = {cell for cell in cells if cell is not None}
    if not all(_NUMBER.fullmatch(cell) and len(cell) <= 40 for cell in distinct):
        return None
    whole = all(map(_WHOLE.fullmatch, distinct))
    value = {cell: int(cell) if whole else float(cell) for cell in distinct}
    if len(set(value.values())) < len(value) or "-0" in distinct or not all(map(math.isfinite, value.values())):
        return None
    if whole and not all(-(1 << 63) <= number < 1 << 63 for number in value.values()):
        return None
    if (not whole or None in cells) and any(_is_rounded(cell, value[cell]) for cell in distinct):
        return None
    return [None if cell is None else value[cell] for cell in cells]


def _is_rounded(cell: str, number: float) -> bool:
    """Whether a whole number has more digits than a float holds: another number would then equal the cell.

    >>> _is_rounded("9007199254740993", float(2**53 + 1)), _is_rounded("0.1", 0.1)
    (True, False)
    """
    return abs(number) > _EXACT and _WHOLE.fullmatch(cell) is not None


def _numbers_of_decimals(cells: list[Any]) -> list[Any]:
    """Decimals, as databases have them: whole numbers, or floats where these keep them apart, else their texts.

    >>> _numbers_of_decimals([Decimal("1.10"), None, Decimal("2.5")]), _numbers_of_decimals([Decimal("1.00")])
    ([1.1, None, 2.5], [1])
    """
    cells = [None if cell is None or cell.is_nan() else cell for cell in cells]
    distinct = {cell for cell in cells if cell is not None}
    if all(cell == cell.to_integral_value() and abs(cell) < 1 << 63 for cell in distinct):
        return [None if cell is None else int(cell) for cell in cells]
    if len({float(cell) for cell in distinct}) == len(distinct):
        return [None if cell is None else float(cell) for cell in cells]
    return [None if cell is None else str(cell) for cell in cells]


def _numeric(name: str, cells: list[Any]) -> Column:
    """Whole numbers as int64 where none is missing, else numbers as float64; as texts where neither holds them all."""
    kinds = {type(cell) for cell in cells}
    if kinds == {int} and all(-(1 << 63) <= cell < 1 << 63 for cell in cells):
        return Column(name, CellType.WHOLE, cells)
    exact = all(cell is None or type(cell) is float or abs(cell) <= _EXACT for cell in cells)
    if not exact:
        return Column(name, CellType.TEXT, cells)
    # 0.0 and -0.0 are one number, here as in every comparison of floats
    return Column(name, CellType.NUMBER, [None if cell is None else float(cell) + 0.0 for cell in cells])


def _as_texts(name: str, cells: list[Any], place: Callable[[int], str]) -> list[str | None]:
    """Every cell as its text, where that keeps different cells apart."""
    spelled: dict[str, Any] = {}
    found: list[str | None] = []
    cells = days_as_texts(cells)
    for row, cell in enumerate(cells):
        if cell is None:
            found.append(None)
            continue
        kind = type(cell).__name__
        if not isinstance(cell, _SPELLED) and kind not in _SPELLED_NAMES:
            raise DataError(
                f"{place(row)}: column {name!r} holds {quote(cell)} ({kind}); a deployed model takes texts, numbers "
                f"and truth values: convert the column, or skip it with --drop {name}"
            )
        text = str(cell)
        if type(spelled.setdefault(text, cell)) is not type(cell) or spelled[text] != cell:
            raise DataError(
                f"{place(row)}: column {name!r} holds {quote(cell)} both as {kind} and as "
                f"{type(spelled[text]).__name__}; make the column one type"
            )
        found.append(text)
    return found


def row_number_columns(columns: Iterable[Column], keep: Collection[str] = ()) -> list[str]:
    """Columns that count the rows or name them: consecutive whole numbers, or one of a usual name; no cell repeats.

    >>> one = Column("nr", CellType.WHOLE, [7, 8, 9])
    >>> row_number_columns([one, Column("size", CellType.WHOLE, [30, 10, 20])])
    ['nr']
    """
    return [column.name for column in columns if column.name not in keep and numbers_rows(column.name, column.cells)]
