"""From a file to sequences and labels: which columns they are in, and how texts are cut into tokens.

>>> tokenize("to be or not", "words"), tokenize("abc", "characters"), tokenize("[1, 2]", "auto")
(['to', 'be', 'or', 'not'], ['a', 'b', 'c'], [1, 2])
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from byheart.data.dataset import Dataset, as_task, load
from byheart.data.records import Records, from_frame, parse_json, read_records
from byheart.data.task import Task
from byheart.data.wording import cut, quote
from byheart.errors import ConflictError, DataError, OptionError

TOKENS = ("auto", "characters", "bytes", "words", "wordpunct", "json")
SEQUENCE_NAMES = ("sequence", "sequences", "tokens", "text", "input", "premise", "sentence", "name", "x")
LABEL_NAMES = ("label", "labels", "y", "target", "class", "output", "answer")
_PIECES = re.compile(r"\w+|[^\w\s]+")
_WHOLE = re.compile(r"[+-]?\d+")
_TOKEN = "a token is an integer, a text, a finite number or a list of such numbers"
_CUTTERS: dict[str, Callable[[str], list[Any]]] = {
    "characters": list,
    "bytes": lambda text: list(text.encode("utf-8", "surrogatepass")),
    "words": str.split,
    "wordpunct": _PIECES.findall,
}
_LONG = 4000  # digits: Python refuses to convert longer decimal numbers


@dataclass(frozen=True)
class Table:
    """Sequences and labels as read; `tokens` is how texts were cut, `columns` where they came from."""

    sequences: list[Any]
    labels: list[Any]
    tokens: str
    columns: dict[str, str] = field(default_factory=dict)
    places: list[str] = field(default_factory=list, repr=False)  # where each row stands in its file

    @property
    def note(self) -> str:
        used = ", ".join(f"{role} from column {name!r}" for role, name in self.columns.items())
        return f"{used}; texts cut into {self.tokens}" if self.tokens != "json" else used


def read_table(
    source: Any,
    *,
    sequence_column: str | None = None,
    label_column: str | None = None,
    tokens: str = "auto",
    task: Task | str = Task.NEXT_TOKEN,
) -> Table:
    """Sequences and labels from a file (CSV, TSV, JSON Lines, Parquet, Arrow, .npy/.npz, Hugging Face) or a frame."""
    records = from_frame(source) or read_records(str(source))
    sequence = choose_column(records, sequence_column, SEQUENCE_NAMES, "sequence", str(source))
    label = choose_column(records, label_column, LABEL_NAMES, "label", str(source), other_than=sequence)
    mode = resolve(tokens, records.column(sequence))
    sequences = [
        _sequence(cell, mode, place) for cell, place in zip(records.column(sequence), records.places, strict=True)
    ]
    labels = _labels(records.column(label), records.places, as_task(task))
    if as_task(task).labels_per_token:
        _check_counts(sequences, labels, records.places)
    return Table(sequences, labels, mode, {"sequence": sequence, "label": label}, records.places)


def load_table(table: Table, *, task: Task | str = Task.NEXT_TOKEN, positions: bool = True) -> Dataset:
    """`load` of a table; a conflict names the lines of the file too."""
    try:
        return load(table.sequences, table.labels, task=task, positions=positions)
    except ConflictError as error:
        lines = [f"row {row} is {table.places[row]}" for row in dict.fromkeys(error.rows) if row < len(table.places)]
        raise ConflictError(f"{error} ({'; '.join(lines)})" if lines else str(error), error.rows) from None


def read_sequences(source: Any, *, sequence_column: str | None = None, tokens: str = "auto") -> list[Any]:
    """Sequences alone, to be asked; on standard input every line that is no JSON object is one sequence."""
    if source == "-":
        from byheart.data.sources import lines

        rows = [(n, line.rstrip("\r\n")) for n, line in lines("-") if line.strip()]
        return [_sequence(line, resolve(tokens, [line]), f"line {n}") for n, line in rows]
    records = from_frame(source) or read_records(str(source))
    column = choose_column(records, sequence_column, SEQUENCE_NAMES, "sequence", str(source))
    mode = resolve(tokens, records.column(column))
    return [_sequence(cell, mode, place) for cell, place in zip(records.column(column), records.places, strict=True)]


def choose_column(
    records: Records, name: str | None, known: tuple[str, ...], role: str, origin: str, other_than: str | None = None
) -> str:
    """The named column, or a good guess: a usual name, else the first column that is not taken."""
    if name is not None:
        if name not in records.columns:
            raise DataError(f"{origin} has no column {name!r}; it has {', '.join(map(repr, records.columns))}")
        return name
    free = [column for column in records.columns if column != other_than]
    lower = {column.lower(): column for column in reversed(free)}
    guess = next((lower[usual] for usual in known if usual in lower), None)
    if guess is None:
        taken = {*SEQUENCE_NAMES, *LABEL_NAMES} - set(known)
        guess = next((column for column in free if column.lower() not in taken), None)
    if guess is None:
        raise DataError(
            f"{origin} has no {role} column: it has {', '.join(map(repr, records.columns))}; use --{role}-column"
        )
    return guess


def resolve(tokens: str, cells: list[Any]) -> str:
    """The way of cutting that `auto` stands for: words where a text has spaces, else characters; json for lists."""
    if tokens not in TOKENS:
        raise OptionError(f"unknown tokens {tokens!r}; known: {', '.join(TOKENS)}")
    if tokens != "auto":
        return tokens
    texts = [cell for cell in cells if isinstance(cell, str) and not _is_list(cell)]
    if not texts:
        return "json"
    return "words" if any(re.search(r"\S\s+\S", cell) for cell in texts) else "characters"


def tokenize(text: str, tokens: str) -> list[Any]:
    """One text as tokens; a JSON list is always taken as the tokens."""
    return list(_sequence(text, resolve(tokens, [text]), "the sequence"))


def _is_list(cell: str) -> bool:
    return cell.lstrip().startswith("[") and cell.rstrip().endswith("]")


def _sequence(cell: Any, mode: str, place: str) -> Any:
    if isinstance(cell, list | tuple | np.ndarray):
        return _checked(cell.tolist() if isinstance(cell, np.ndarray) else cell, place)
    if cell is None:
        raise DataError(f"{place}: the sequence is missing; remove the row")
    if not isinstance(cell, str):
        return _checked([cell.item() if isinstance(cell, np.generic) else cell], place)
    if _is_list(cell):
        try:
            parsed = parse_json(cell, place)
        except DataError:
            if mode == "json":
                raise
        else:
            return _checked(parsed, place)
    if mode == "json":
        raise DataError(f"{place}: {cut(cell)!r} is no JSON list of tokens; choose --tokens characters or words")
    found = _CUTTERS[mode](cell)
    if not found:
        raise DataError(f"{place}: the sequence is empty; remove the row")
    return found


def _checked(tokens: Any, place: str) -> Any:
    """A list of tokens as it stands; a DataError names the first that is none."""
    if len(tokens) == 0:
        raise DataError(f"{place}: the sequence is empty; remove the row")
    if set(map(type, tokens)) <= {int, str}:
        return tokens
    for position, token in enumerate(tokens):
        if not isinstance(token, str):
            numbers = token if isinstance(token, list | tuple) else [token]
            if not numbers or not all(map(_is_number, numbers)):
                raise DataError(f"{place}: token {position} is {quote(token)}; {_TOKEN}")
    return tokens


def _is_number(x: Any) -> bool:
    return type(x) is int or (isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x))


def _check_counts(sequences: list[Any], labels: list[Any], places: list[str]) -> None:
    for sequence, row, place in zip(sequences, labels, places, strict=True):
        if len(sequence) != len(row):
            raise DataError(f"{place}: there are {len(sequence)} tokens but {len(row)} labels; give one per token")


def _labels(cells: list[Any], places: list[str], task: Task) -> list[Any]:
    if not task.labels_per_token:
        return _numbers(cells)
    rows = []
    for cell, place in zip(cells, places, strict=True):
        row = parse_json(cell, place) if isinstance(cell, str) and _is_list(cell) else cell
        if isinstance(row, np.ndarray):
            row = row.tolist()
        if not isinstance(row, list):
            raise DataError(f"{place}: {task} takes a JSON list with one label per token, not {cut(repr(cell))}")
        rows.append(row)
    return rows


def _numbers(cells: list[Any]) -> list[Any]:
    """Cells of a text format as ints where all of them are whole numbers written plainly."""
    plain = all(isinstance(c, str) and _WHOLE.fullmatch(c.strip()) and len(c) < _LONG for c in cells)
    if plain and len({int(c) for c in cells}) == len({c.strip() for c in cells}):
        return [int(c) for c in cells]
    return [c.tolist() if isinstance(c, np.generic) else c for c in cells]
