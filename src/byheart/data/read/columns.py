"""Which columns hold the sequences and the labels: as the user says, else a good guess that is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from byheart.data.read.options import ALL, Selection
from byheart.data.read.records import LINE, Records
from byheart.data.task import Task
from byheart.errors import DataError

SEQUENCE_NAMES = ("sequence", "sequences", "tokens", "text", "input", "premise", "sentence", "name", "x")
LABEL_NAMES = ("label", "labels", "y", "target", "class", "output", "answer")
NUMBERING = ("", "id", "index", "row", "nr", "no", "#", "unnamed: 0")  # columns that say nothing about their row
KEYS = ("rowid", "row_number", "level_0", "__index_level_0__")  # of rows, too
KEY_WORDS = ("id", "uid", "uuid", "guid", "idx", "index", "key", "pk")  # in a longer name: customer_id, OrderID
_SHOWN, _FEW, _MANY = 20, 5, 10
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


def choose_columns(
    records: Records, sequence: Sequence[str], label: str | None, task: Task, like: Selection | None = None
) -> tuple[tuple[str, ...], str | None]:
    """(sequence columns, label column); no label column where every next token is the label."""
    if like and not sequence and set(like.sequence_columns) <= set(records.columns):
        sequence = like.sequence_columns
    if like and label is None and like.label_column in records.columns:
        label = like.label_column
    if tuple(sequence) == (ALL,) and ALL not in records.columns:
        guess = label or usual_column(records, LABEL_NAMES, ()) or records.columns[-1]
        label = choose_column(records, guess, LABEL_NAMES, "label", ())
        sequence = [column for column in records.columns if column != label]
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
