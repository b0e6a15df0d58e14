"""Which rows of a table are kept, and an account of every other one: cells that are missing, rows at odds.

Both are looked for before anything is refused, so that one message names every flag that the table needs.

>>> from byheart.data.read.cells import read_cells
>>> table = read_cells({"code": ["a", "a", "b", None], "place": ["x", "y", "x", "x"]})
>>> try:
...     settle_cells(table)
... except DataError as error:
...     print(error)
the dictionary cannot be taken as it is:
  1 row has an empty cell (row 3: 'code'); add --missing drop to skip these rows, or --missing label to take an empty
  cell as a separate value
  2 rows have the same inputs as another row but another label (row 0 has 'x', row 1 has 'y'); add --conflicts first
  to keep the first of them, --conflicts majority for the most frequent label, or --conflicts drop to skip all of them
  for example, add: --missing drop --conflicts first
>>> kept, account = settle_cells(table, missing="drop", conflicts="first")
>>> len(kept), [(part.reason, part.numbers) for part in account.left_out]
(2, [('an empty cell', (3,)), ('another label than an earlier row with the same inputs', (1,))])
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byheart.data.dataset.conflicts import POLICIES, Conflicts, Mask
from byheart.data.dataset.distinct import Index, distinct_rows
from byheart.data.missing import POLICIES as MISSING
from byheart.data.read.cells import CellTable, CellType, Column
from byheart.data.read.columns import header_words, uneven_words
from byheart.data.read.options import UNEVEN
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError, TableError

_NAMED = 3  # rows that a message names
_UNEVEN_REASON = "more or fewer cells than there are columns"
_REASONS = {
    "first": "another label than an earlier row with the same inputs",
    "majority": "another label than most rows with the same inputs",
    "drop": "the same inputs as a row with another label",
}


@dataclass(frozen=True)
class TableProblem:
    """A defect of a table, with every flag about it, and the flag to begin with."""

    words: str
    flag: str


@dataclass(frozen=True)
class LeftOut:
    """Rows that were skipped for one reason, by their places in the source; `flag` is the flag that caused it."""

    reason: str
    flag: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Account:
    """What became of every row: read, kept (of these, how many repeat another one), and skipped."""

    rows: int
    kept: int
    repeated: int
    unit: str
    left_out: tuple[LeftOut, ...] = ()

    def counts(self) -> dict[str, int]:
        """How many rows were skipped, by the flag that did it."""
        return {part.flag: len(part.numbers) for part in self.left_out}

    def lines(self, most: int = 200) -> list[str]:
        """For people: every row that was skipped, up to `most` numbers for a reason."""
        twice = f", of which {self.repeated:,} repeat another row" if self.repeated else ""
        found = [f"{self.rows:,} rows read, {self.kept:,} known{twice}"]
        for part in self.left_out:
            runs = as_runs(part.numbers)
            more = f", … and {len(runs) - most:,} more places" if len(runs) > most else ""
            rows = "1 row" if len(part.numbers) == 1 else f"{len(part.numbers):,} rows"
            where = ", ".join(runs[:most])
            found.append(f"skipped: {rows} with {part.reason} ({part.flag}): {self.unit} {where}{more}")
        return found

    def as_dict(self) -> dict[str, Any]:
        left = [{"reason": part.reason, "flag": part.flag, "places": list(part.numbers)} for part in self.left_out]
        return {"read": self.rows, "known": self.kept, "repeated": self.repeated, "unit": self.unit, "left_out": left}


def as_runs(numbers: Sequence[int]) -> list[str]:
    """Numbers in ascending order, neighbours as runs.

    >>> as_runs([2, 3, 4, 9])
    ['2-4', '9']
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def settle_cells(
    table: CellTable,
    *,
    missing: str = "error",
    conflicts: str = "error",
    uneven: str = "error",
    problems: Sequence[TableProblem] = (),
) -> tuple[CellTable, Account]:
    """The rows that are kept, and the account. With `missing="label"` a missing text is the empty text;
    `uneven="drop"` skips lines that have more or fewer cells than there are columns.

    `problems` are further defects of the table; where there is any, the rows are refused together with them.
    """
    policies = (("missing", missing, MISSING), ("conflicts", conflicts, POLICIES), ("uneven", uneven, UNEVEN))
    for name, value, known in policies:
        if value not in known:
            raise OptionError(f"{name}={value!r} is not one of {', '.join(known)}")
    problems = [*problems, *_problems_of_the_file(table, uneven)]
    if missing != "label":
        problems += _empty_columns(table)
        rest = tuple(column for column in table.columns if any(cell is not None for cell in column.cells))
        table = replace(table, columns=rest)
    lacking = np.zeros(len(table), dtype=bool)
    for column in (*table.columns, table.label):
        lacking |= np.fromiter((cell is None for cell in column.cells), dtype=bool, count=len(table))
    taken = table
    if missing == "label":
        taken, lacking = _with_empty(table), np.zeros(len(table), dtype=bool)
    complete = np.flatnonzero(~lacking)
    if missing == "error" and lacking.any():
        problems.append(TableProblem(_missing_words(table, lacking), "--missing drop"))
    if not complete.size or not table.columns:
        raise _refusal(f"every row of {table.origin} has an empty cell", problems)
    group, label = _groups(taken, complete)
    found = Conflicts.of(group[:, None], label[:, None])
    if conflicts == "error" and found.torn.any():
        problems.append(TableProblem(_conflict_words(table, complete, found), "--conflicts first"))
    if problems:
        raise _refusal(f"{table.origin} cannot be taken as it is:", problems)
    keep = found.keep(conflicts)
    if not keep.any():
        raise DataError(f"--conflicts {conflicts} leaves no row: every row contradicts another one; relabel them")
    kept = complete[keep]
    left = []
    if table.uneven:
        left.append(LeftOut(_UNEVEN_REASON, f"--uneven {uneven}", tuple(place for place, _ in table.uneven)))
    if lacking.any():
        gone = np.flatnonzero(lacking).tolist()
        left.append(LeftOut("an empty cell", f"--missing {missing}", tuple(table.numbers[row] for row in gone)))
    if not keep.all():
        gone = complete[~keep].tolist()
        places = tuple(table.numbers[row] for row in gone)
        left.append(LeftOut(_REASONS[conflicts], f"--conflicts {conflicts}", places))
    repeated = int(keep.sum()) - len(np.unique(group[keep]))
    account = Account(len(table) + len(table.uneven), len(kept), repeated, table.unit, tuple(left))
    return (taken if len(kept) == len(table) else taken.take(kept.tolist())), account


def _refusal(head: str, problems: Sequence[TableProblem]) -> TableError:
    return TableError(head, [problem.words for problem in problems], [problem.flag for problem in problems])


def _problems_of_the_file(table: CellTable, uneven: str) -> list[TableProblem]:
    """A first line that looks like a row, and lines that are not rows of this table."""
    found = []
    doubt, flag = table.header_doubt
    if doubt:
        found.append(TableProblem(header_words(doubt), flag))
    if table.uneven and uneven == "error":
        found.append(TableProblem(uneven_words(table.uneven, table.unit), "--uneven drop"))
    return found


def _empty_columns(table: CellTable) -> list[TableProblem]:
    """Columns without a single cell: every row would be skipped because of them."""
    if all(cell is None for cell in table.label.cells):
        raise DataError(f"the label's column, {table.label.name!r}, is empty; name another one with --label")
    empty = [column.name for column in table.columns if all(cell is None for cell in column.cells)]
    return [
        TableProblem(f"column {name!r} is empty; add --drop {shlex.quote(name)}", f"--drop {shlex.quote(name)}")
        for name in empty
    ]


def _with_empty(table: CellTable) -> CellTable:
    """Missing texts as empty ones; missing numbers stay None, which is NaN in a tensor."""
    if table.label.type is not CellType.TEXT and None in table.label.cells:
        raise DataError(
            f"the label {table.label.name!r} is a number and missing in some rows, and a missing number would look "
            "like the answer for an unknown row; add --missing drop"
        )
    return replace(table, columns=tuple(map(_filled, table.columns)), label=_filled(table.label))


def _filled(column: Column) -> Column:
    if column.type is not CellType.TEXT or None not in column.cells:
        return column
    if "" in column.cells:
        raise DataError(f"column {column.name!r} has both empty texts and missing ones; make them one")
    return replace(column, cells=["" if cell is None else cell for cell in column.cells])


def _groups(table: CellTable, rows: Index) -> tuple[Index, Index]:
    """For every row the number of its inputs, and the number of its label."""
    chosen = rows.tolist()
    ids = [_numbered(column, chosen) for column in table.columns]
    _, group = distinct_rows(np.stack(ids, axis=1))
    return group, _numbered(table.label, chosen)


def _numbered(column: Column, rows: list[int]) -> Index:
    numbers: dict[Any, int] = {}
    cells = column.cells
    return np.fromiter((numbers.setdefault(cells[row], len(numbers)) for row in rows), dtype=np.int64, count=len(rows))


def _missing_words(table: CellTable, lacking: Mask) -> str:
    rows = np.flatnonzero(lacking).tolist()
    named = []
    for row in rows[:_NAMED]:
        names = [column.name for column in (*table.columns, table.label) if column.cells[row] is None]
        named.append(f"{table.unit} {table.numbers[row]}: {', '.join(map(repr, names))}")
    more = ", …" if len(rows) > _NAMED else ""
    count = "1 row has" if len(rows) == 1 else f"{len(rows):,} rows have"
    return (
        f"{count} an empty cell ({'; '.join(named)}{more}); add --missing drop to skip these rows, or --missing "
        "label to take an empty cell as a separate value"
    )


def _conflict_words(table: CellTable, complete: Index, conflicts: Conflicts) -> str:
    group, label, places = conflicts.group[:, 0], conflicts.label[:, 0], np.flatnonzero(conflicts.places[:, 0])
    one = int(places[0])
    two = int(np.flatnonzero((group == group[one]) & (label != label[one]))[0])
    named = [
        f"{table.unit} {table.numbers[row]} has {quote(table.label.cells[row])}"
        for row in (int(complete[one]), int(complete[two]))
    ]
    more = ", …" if len(places) > 2 else ""
    return (
        f"{len(places):,} rows have the same inputs as another row but another label ({', '.join(named)}{more}); add "
        "--conflicts first to keep the first of them, --conflicts majority for the most frequent label, or --conflicts "
        f"drop to skip all of them{_other_label_words(table.take(complete.tolist()))}"
    )


def _other_label_words(table: CellTable) -> str:
    """A hint where the label was guessed and no rows contradict each other with the last column as the label."""
    other = next((column for column in table.columns if column.name == table.other_label), None)
    if other is None:
        return ""
    inputs = [column for column in (*table.columns, table.label) if column is not other]
    rows = set(zip(*(column.cells for column in inputs), strict=True))
    if len(rows) < len(set(zip(*(column.cells for column in (*inputs, other)), strict=True))):
        return ""
    flag = f"--label-column {shlex.quote(other.name)}"
    return f"; the label {table.label.name!r} is a guess, and with {flag} no rows contradict each other"
