"""Which columns hold the sequences and the labels: as the user says, else a good guess that is shown."""

from __future__ import annotations

from collections.abc import Sequence

from byheart.data.records import Records
from byheart.data.selection import Selection
from byheart.data.task import Task
from byheart.errors import DataError

SEQUENCE_NAMES = ("sequence", "sequences", "tokens", "text", "input", "premise", "sentence", "name", "x")
LABEL_NAMES = ("label", "labels", "y", "target", "class", "output", "answer")
_SHOWN = 20


def choose_columns(
    records: Records, sequence: str | Sequence[str] | None, label: str | None, task: Task, like: Selection
) -> tuple[tuple[str, ...], str | None]:
    """(sequence columns, label column); no label column where every next token is the label."""
    if not sequence and set(like.sequence_columns) <= set(records.columns):
        sequence = like.sequence_columns
    if label is None and like.label_column in records.columns:
        label = like.label_column
    names = sequence_columns(records, sequence, label)
    if label is None and task is Task.CAUSAL and not _usual(records, LABEL_NAMES, names):
        return names, None
    return names, choose_column(records, label, LABEL_NAMES, "label", names)


def sequence_columns(
    records: Records, given: str | Sequence[str] | None, label: str | None = None
) -> tuple[str, ...]:
    if not given:
        return (choose_column(records, None, SEQUENCE_NAMES, "sequence", (label,)),)
    given = (given,) if isinstance(given, str) else given
    return tuple(choose_column(records, name, SEQUENCE_NAMES, "sequence", ()) for name in given)


def choose_column(
    records: Records, name: str | None, known: tuple[str, ...], role: str, taken: Sequence[str | None]
) -> str:
    """The named column, or a good guess: a usual name, else the first column that is free."""
    if name is not None:
        if name not in records.columns:
            raise DataError(f"{records.origin} has no column {name!r}; it has {_listed(records)}")
        return name
    guess = _usual(records, known, taken)
    if guess is None:
        others = {*SEQUENCE_NAMES, *LABEL_NAMES} - set(known)
        free = [column for column in records.columns if column not in taken]
        guess = next((column for column in free if column.lower() not in others), None)
    if guess is None:
        raise DataError(f"{records.origin} has no {role} column: it has {_listed(records)}; use --{role}-column")
    return guess


def _usual(records: Records, known: tuple[str, ...], taken: Sequence[str | None]) -> str | None:
    lower = {column.lower(): column for column in reversed(records.columns) if column not in taken}
    return next((lower[usual] for usual in known if usual in lower), None)


def _listed(records: Records) -> str:
    return ", ".join(map(repr, records.columns[:_SHOWN])) + (", …" if len(records.columns) > _SHOWN else "")
