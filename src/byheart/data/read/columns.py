"""Which columns hold the inputs and the labels: as the user says, else a good guess that is printed.

`table_columns` decides for every command that reads a table: the label is the column with a usual name, else the last
one; the inputs are a text column with a usual name, else all others. `header_doubt` decides whether the first line of a
CSV file may be a row.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from byheart.data.read.options import ALL, Selection
from byheart.data.read.records import LINE, Records
from byheart.data.task import Task
from byheart.errors import DataError

SEQUENCE_NAMES = ("sequence", "sequences", "tokens", "text", "input", "premise", "sentence", "name", "x")
# A column of this name is a text to tokenize, and the whole input.
TEXT_NAMES = ("sequence", "sequences", "tokens", "text", "premise", "sentence")
LABEL_NAMES = ("label", "labels", "y", "target", "class", "output", "answer")
NUMBERING = ("", "id", "index", "row", "nr", "no", "#", "unnamed: 0")  # columns that say nothing about their row
KEYS = ("rowid", "row_number", "level_0", "__index_level_0__")  # of rows, too
KEY_WORDS = ("id", "uid", "uuid", "guid", "idx", "index", "key", "pk")  # in a longer name: customer_id, OrderID
_SHOWN, _FEW, _MANY = 20, 5, 10
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class ChosenColumns:
    """The inputs and the label of a table, and the line that every command prints about them.

    >>> ChosenColumns(("a", "b"), "c", "the last column").line(("a", "b", "c", "d"))
    "inputs 'a', 'b' -> label 'c' (the last column; --label-column NAME for another); not used: 'd'"
    """

    inputs: tuple[str, ...]
    label: str
    reason: str = ""

    def line(self, columns: Sequence[str]) -> str:
        """One line for people; `columns` are all columns of the source."""
        shown = ", ".join(map(repr, self.inputs[:_FEW])) + (", …" if len(self.inputs) > _FEW else "")
        many = "input" if len(self.inputs) == 1 else "inputs"
        count = f" ({len(self.inputs)} columns)" if len(self.inputs) > _FEW else ""
        why = f" ({self.reason}; --label-column NAME for another)" if self.reason else ""
        rest = [column for column in columns if column not in (*self.inputs, self.label)]
        unused = f"; not used: {', '.join(map(repr, rest[:_FEW]))}{', …' if len(rest) > _FEW else ''}" if rest else ""
        return f"{many} {shown}{count} -> label {self.label!r}{why}{unused}"


def table_columns(
    records: Records, inputs: Sequence[str] = (), label: str | None = None, drop: Collection[str] = ()
) -> ChosenColumns:
    """Choose the inputs and the label of a table.

    Args:
        records: The source.
        inputs: The input columns; by default a text column with a usual name, else all others.
        label: The label column; by default one with a usual name, else the last one.
        drop: Columns to skip.

    Returns:
        The columns, and how the label was found where nobody named it.

    Raises:
        DataError: A named column does not exist, or no column is left for the label.
    """
    for name in (*inputs, *drop):
        choose_column(records, name, (), "input", ())
    rest = [name for name in records.columns if name not in inputs and name not in drop]
    chosen, reason = _label_of(records, rest, label, inputs)
    if inputs:
        return ChosenColumns(tuple(inputs), chosen, reason)
    others = [name for name in rest if name != chosen]
    text = usual_column(records, TEXT_NAMES, (chosen, *drop))
    return ChosenColumns((text,) if text is not None else tuple(others), chosen, reason)


def _label_of(records: Records, rest: list[str], label: str | None, inputs: Sequence[str]) -> tuple[str, str]:
    """The label column, and how it was found where nobody named it."""
    if label is not None:
        return choose_column(records, label, LABEL_NAMES, "label", ()), ""
    taken = [name for name in records.columns if name not in rest]
    usual = usual_column(records, LABEL_NAMES, taken)
    if usual is not None:
        return usual, "by its name"
    # A comma at the end of every line makes a column without a name.
    pair = len(rest) == 2 and not inputs
    named = rest if pair else [name for name in rest if name] or rest
    if pair:
        named = [name for name in rest if name.lower() not in SEQUENCE_NAMES] or rest
    if not named:
        raise DataError(f"every column of {records.origin} is an input; name the label's with --label-column")
    return named[-1], "the last column" if named[-1] == records.columns[-1] else "the other column is the input"


def header_doubt(names: Sequence[str], cells: Sequence[Sequence[Any]]) -> tuple[str, str]:
    """Why the first line may be a row and not the names of the columns, and the flag that loses nothing.

    A name that is also a cell below it may be a name all the same: `--header` keeps the reading. A number above numbers
    is hardly a name: `--no-header` keeps the row. Numbers in even steps (0, 1, 2 or 10, 20, 30) are names.

    >>> header_doubt(("SW1A", "London"), [["M1", "EH1"], ["North", "London"]])
    ("'London' is also a cell below it", '--header')
    >>> header_doubt(("5.1", "kind"), [["4.9", "4.7"], ["a", "b"]])
    ("'5.1' is a number like the cells below it", '--no-header')
    >>> header_doubt(("0", "1", "kind"), [["0", "2"], ["1", "1"], ["a", "b"]])
    ('', '')
    """
    numbers = [float(name) for name in names if _NUMBER.fullmatch(name)]
    steps = {b - a for a, b in pairwise(numbers)}
    even = steps == {1.0} or (len(steps) == 1 and len(numbers) > 2)
    if even:
        names = ["" if _NUMBER.fullmatch(name) else name for name in names]
    columns = [(name, below) for name, below in zip(names, cells, strict=True) if name]
    for name, below in columns:
        if _NUMBER.fullmatch(name) and all(cell is None or _NUMBER.fullmatch(str(cell)) for cell in below):
            return f"{name!r} is a number like the cells below it", "--no-header"
    for name, below in columns:
        if name in below:
            return f"{name!r} is also a cell below it", "--header"
    return "", ""


def header_words(doubt: str) -> str:
    """A doubt about the first line, with both remedies."""
    keep = "--header reads it as names all the same"
    return f"the first line was read as the names of the columns, but {doubt}; {keep}, --no-header reads it as a row"


def choose_columns(
    records: Records,
    sequence: Sequence[str],
    label: str | None,
    task: Task,
    like: Selection | None = None,
    drop: Collection[str] = (),
) -> tuple[tuple[str, ...], str | None]:
    """(sequence columns, label column); no label column where every next token is the label."""
    if like and not sequence and set(like.sequence_columns) <= set(records.columns):
        sequence = like.sequence_columns
    if like and label is None and like.label_column in records.columns:
        label = like.label_column
    if tuple(sequence) == (ALL,) and ALL not in records.columns:
        guess = label or usual_column(records, LABEL_NAMES, ()) or records.columns[-1]
        label = choose_column(records, guess, LABEL_NAMES, "label", ())
        sequence = [column for column in records.columns if column != label and column not in drop]
    if task is Task.NEXT_TOKEN and len(records.columns) > 1:
        chosen = table_columns(records, sequence, label, drop)
        if chosen.inputs:
            return chosen.inputs, chosen.label
    names = sequence_columns(records, sequence, label)
    if label is None and task is Task.CAUSAL and not usual_column(records, LABEL_NAMES, names):
        return names, None
    return names, choose_column(records, label, LABEL_NAMES, "label", names)


def sequence_columns(records: Records, given: Sequence[str], label: str | None = None) -> tuple[str, ...]:
    if not given:
        return (choose_column(records, None, SEQUENCE_NAMES, "sequence", (label,)),)
    return tuple(choose_column(records, name, SEQUENCE_NAMES, "sequence", ()) for name in given)


def choose_column(
    records: Records, name: str | None, known: tuple[str, ...], role: str, taken: Sequence[str | None]
) -> str:
    """The named column, or a good guess: a usual name, else the first free column, one that numbers the rows last."""
    if name is not None:
        if name not in records.columns:
            raise DataError(f"{records.origin} has no column {name!r}; it has {_listed(records)}{_near(records, name)}")
        return name
    guess = usual_column(records, known, taken)
    if guess is None:
        others = {*SEQUENCE_NAMES, *LABEL_NAMES} - set(known)
        free = [column for column in records.columns if column not in taken]
        if len(records.columns) > 2:
            free.sort(key=lambda column: column.lower() in NUMBERING)
        guess = next((column for column in free if column.lower() not in others), None)
    if guess is None:
        remedy = f"use --{role}-column" if len(records.columns) > 1 else f"add a column with the {role}s"
        remedy += ", or use --task causal to recite a text" if role == "label" and records.columns == (LINE,) else ""
        raise DataError(f"{records.origin} has no {role} column: it has {_listed(records)}; {remedy}")
    return guess


def numbers_rows(name: str, cells: Sequence[Any]) -> bool:
    """Whether a column counts the rows or names them: no cell repeats, and they are consecutive whole numbers, whole
    numbers in even steps from row to row, or cells of a column with a usual name.

    >>> numbers_rows("n", ["7", "8", "9"]), numbers_rows("userId", ["x1", "q7", "a3"]), numbers_rows("n", [1, 5, 6])
    (True, True, False)
    """
    distinct = {cell for cell in cells if isinstance(cell, str | int) and cell != ""}
    if len(cells) < 3 or len(distinct) < len(cells):
        return False
    if name.strip().lower() in (*NUMBERING, *KEYS) or any(word.lower() in KEY_WORDS for word in _WORD.findall(name)):
        return True
    if not all(type(cell) is int or (isinstance(cell, str) and _WHOLE.fullmatch(cell)) for cell in distinct):
        return False
    numbers = list(map(int, cells))
    even = len(numbers) >= _MANY and len({b - a for a, b in pairwise(numbers)}) == 1
    return even or max(numbers) - min(numbers) == len(numbers) - 1


def row_number_words(name: str) -> str:
    """Why a column that numbers the rows is refused, with both remedies."""
    shown = shlex.quote(name)
    words = f"column {name!r} numbers the rows (no value repeats), so that a query would need the number of its row"
    return f"{words}; --drop {shown} skips it, --keep {shown} accepts it"


def unused(records: Records, used: Sequence[str | None]) -> str:
    """Which columns were left aside, for people; empty where there are none."""
    rest = [column for column in records.columns if column not in used]
    more = ", …" if len(rest) > _FEW else ""
    return f"not used: {', '.join(map(repr, rest[:_FEW]))}{more}" if rest else ""


def refuse_labels(records: Records, column: str) -> None:
    """A DataError where a memory of next tokens gets a table of labels: a file must not decide that these are
    not compared, so the user names the column."""
    label = usual_column(records, LABEL_NAMES, (column,))
    if label is not None:
        raise DataError(
            f"{records.origin} has labels in {label!r}, but this memory continues texts and would not be asked about "
            f"them; give --sequence-column {column!r} to compare the texts alone"
        )


def _near(records: Records, name: str) -> str:
    found = get_close_matches(name.lower(), [column.lower() for column in records.columns], n=1)
    same = [column for column in records.columns if found and column.lower() == found[0]]
    return f"; did you mean {same[0]!r}?" if same else ""


def usual_column(records: Records, known: tuple[str, ...], taken: Sequence[str | None]) -> str | None:
    """The first column with one of the known names, whatever its case; None where there is none."""
    lower = {column.lower(): column for column in reversed(records.columns) if column not in taken}
    return next((lower[usual] for usual in known if usual in lower), None)


def _listed(records: Records) -> str:
    return ", ".join(map(repr, records.columns[:_SHOWN])) + (", …" if len(records.columns) > _SHOWN else "")
