"""From a file to sequences and labels: which columns they are in, and how texts are cut into tokens.

>>> tokenize("to be or not", "words"), tokenize("abc", "characters"), tokenize("[1, 2]", "auto")
(['to', 'be', 'or', 'not'], ['a', 'b', 'c'], [1, 2])
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from os import PathLike
from typing import Any

import numpy as np

from byheart.data.dataset.dataset import as_task
from byheart.data.dataset.sequences import Symbol
from byheart.data.read.columnar import from_frame
from byheart.data.read.columns import choose_columns, sequence_columns, unused
from byheart.data.read.delimited import is_made_up
from byheart.data.read.records import LINE, Records, parse_json, read_records
from byheart.data.read.selection import Selection
from byheart.data.read.sources import STDIN, Limits, lines
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import LISTS, Tokenizer, choose, is_list
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError
from byheart.progress import SILENT, Progress

_WHOLE = re.compile(r"[+-]?[0-9]+")
_TOKEN = "a token is an integer, a text, a finite number or a list of such numbers"
_TOLD = 1000  # rows between two signs of progress
_LONG = 4000  # digits: Python refuses to convert longer decimal numbers


@dataclass(frozen=True)
class Table:
    """Sequences and labels as read, and how: `byheart.memorize` takes a table as it is.

    `tokens` is how texts were cut, `selection` which columns and rows were taken, `shortened` how many rows were cut
    to `max_length`. A table is also a pair: `sequences, labels = table`.
    """

    sequences: list[Any]
    labels: list[Any]
    tokens: Tokenizer = Tokenizer(LISTS)  # noqa: RUF009  # a frozen value
    selection: Selection = Selection()  # noqa: RUF009
    shortened: int = 0
    task: Task = Task.NEXT_TOKEN
    remarks: tuple[str, ...] = ()  # what else was guessed about the file
    places: Callable[[int], str] | None = field(default=None, repr=False)  # where a row stands in its file

    def __iter__(self) -> Iterator[list[Any]]:
        return iter((self.sequences, self.labels))

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def columns(self) -> dict[str, str]:
        return self.selection.columns

    @property
    def choice(self) -> str:
        """Which columns were taken, in words."""
        return ", ".join(f"{role} from column {name!r}" for role, name in self.columns.items())

    @property
    def note(self) -> str:
        """What was guessed and done, in one line."""
        parts = [self.choice]
        parts += self.remarks
        parts += [f"texts cut into {self.tokens}"] if self.tokens.kind != LISTS else []
        parts += [f"{self.shortened:,} rows cut to {self.tokens.max_length} tokens"] if self.shortened else []
        return "; ".join(part for part in parts if part)


def read(
    source: Any,
    *,
    sequence_column: str | Sequence[str] | None = None,
    label_column: str | None = None,
    tokens: str | Tokenizer = "auto",
    task: Task | str = Task.NEXT_TOKEN,
    max_length: int | None = None,
    pad: Symbol | None = None,
    max_rows: int | None = None,
    max_bytes: int = Limits.max_bytes,
    header: bool | None = None,
    like: Selection | None = None,
    progress: Progress = SILENT,
) -> Table:
    """Sequences and labels from a file or a frame.

    Files: CSV, TSV, JSON Lines, Parquet, Arrow, .npy, .npz, text, each also as .gz or .zst, and folders of Hugging Face
    data sets (by name: `hf:NAME`). Columns are guessed where they are not named; several sequence columns make a row
    of their cells (`"*"`: all but the label's). `tokens`: characters, bytes, words, wordpunct, integers, `bpe:500`,
    `wordpiece:500`, `unigram:500` (trained on these rows), or a tokenizer.json; a cell that is a JSON list is always
    taken as the tokens. `max_length` keeps the first tokens of a row, `pad` fills shorter ones up to it. Without a
    label column the task `causal` takes every next token as the label. `header=False` says that a CSV file begins with
    a row; its columns are then `column 1`, `column 2`, … `like` prefers the columns of an earlier reading where they
    exist.

    >>> import pandas
    >>> table = read(pandas.DataFrame({"name": ["cat", "dog"], "colour": ["red", "blue"]}))
    >>> table.sequences, table.labels, table.note
    ([['c', 'a', 't'], ['d', 'o', 'g']], ['red', 'blue'],
     "sequence from column 'name', label from column 'colour'; texts cut into characters")
    """
    task, limits = as_task(task), Limits(max_rows, max_bytes)
    records = _records(source, limits, _with_header(header, like))
    names, label = choose_columns(records, sequence_column, label_column, task, like or Selection())
    numbers, cells, labels = _collect(records, names, label, limits, progress)
    tokenizer = choose(tokens, cells, max_length=max_length, pad=_as_pad(pad, cells))
    whole = _cut(cells, numbers, tokenizer, records, progress)
    if label is None:
        whole, labels = _next_tokens(whole, records, numbers)
    else:
        labels = _labels(labels, records, numbers, task)
        if task.labels_per_token:
            _check_counts(whole, labels, records, numbers)
    if pad is not None and task.labels_per_token:
        raise OptionError(f"pad={pad!r} does not fit {task}: the filled places would need labels too; leave it out")
    sequences = [tokenizer.fit_length(row) for row in whole]
    if task.labels_per_token and max_length is not None:
        labels = [row[:max_length] for row in labels]
    shortened = sum(len(row) > max_length for row in whole) if max_length is not None else 0
    selection = Selection(names, label, max_rows)
    remarks = tuple(part for part in (unused(records, (*names, label)), records.remark) if part)
    places = lambda row: records.place(numbers[row])  # noqa: E731
    return Table(sequences, labels, tokenizer, selection, shortened, task, remarks, places)


def read_sequences(
    source: Any,
    *,
    sequence_column: str | Sequence[str] | None = None,
    tokens: str | Tokenizer = "auto",
    like: Selection | None = None,
    progress: Progress = SILENT,
) -> list[Any]:
    """Sequences alone, to be asked; on standard input every line is one sequence."""
    if source == STDIN:
        rows = [(n, line.rstrip("\r\n")) for n, line in lines(STDIN) if line.strip()]
        tokenizer = choose(tokens, [line for _, line in rows])
        place = Records((LINE,), lambda names: iter(()), "standard input", "line")
        return [tokenizer.fit_length(_sequence(line, tokenizer, place, number)) for number, line in rows]
    records = _records(source, Limits(), _with_header(None, like))
    earlier = like.sequence_columns if like and set(like.sequence_columns) <= set(records.columns) else ()
    names = sequence_columns(records, sequence_column or earlier)
    numbers, cells, _ = _collect(records, names, None, Limits(), progress)
    tokenizer = choose(tokens, cells)
    return [tokenizer.fit_length(row) for row in _cut(cells, numbers, tokenizer, records, progress)]


def tokenize(text: str, tokens: str | Tokenizer, number: int = 1) -> list[Any]:
    """One text as tokens; a JSON list is always taken as the tokens. `number` names it in messages."""
    tokenizer = choose(tokens, [text])
    place = Records((LINE,), lambda names: iter(()), "the question", "sequence")
    return tokenizer.fit_length(_sequence(text, tokenizer, place, number))


def _records(source: Any, limits: Limits, header: bool) -> Records:
    found = from_frame(source)
    if found is not None:
        return found
    if not isinstance(source, str | PathLike):
        kind = type(source).__name__
        raise DataError(f"a {kind} cannot be read; give the name of a file, a data frame or a dictionary of columns")
    return read_records(str(source), limits, header)


def _with_header(said: bool | None, like: Selection | None) -> bool:
    """As the user says, else as in an earlier reading: columns with made-up names were in a file without a header."""
    if said is not None:
        return said
    names = (*like.sequence_columns, like.label_column or "") if like else ()
    return not (names and all(is_made_up(name) for name in names if name))


def _collect(
    records: Records, names: tuple[str, ...], label: str | None, limits: Limits, progress: Progress
) -> tuple[list[int], list[Any], list[Any]]:
    """Numbers, sequence cells and labels of the rows; several sequence columns are one list of cells."""
    numbers, cells, labels = [], [], []
    wanted = names if label is None else (*names, label)
    with progress.stage("reading rows", total=limits.max_rows) as stage:
        for number, row in islice(records.select(wanted), limits.max_rows):
            numbers.append(number)
            cells.append(row[0] if len(names) == 1 else list(row[: len(names)]))
            labels.append(row[-1])
            if len(numbers) % _TOLD == 0:
                stage.advance(_TOLD)
    if not cells:
        raise DataError(f"{records.origin} has columns and no rows; it needs a row")
    if len(names) > 1:
        columns = [_numbers(list(column), reals=True) for column in zip(*cells, strict=True)]
        if any(isinstance(cell, str) for column in columns for cell in column):  # symbols, or numbers: not both
            columns = [[cell if isinstance(cell, str) else str(cell) for cell in column] for column in columns]
        cells = [list(row) for row in zip(*columns, strict=True)]
    return numbers, cells, labels


def _cut(
    cells: list[Any], numbers: list[int], tokenizer: Tokenizer, records: Records, progress: Progress
) -> list[list[Any]]:
    """The tokens of every cell, not yet cut to length."""
    found = []
    with progress.stage("cutting rows into tokens", total=len(cells)) as stage:
        for cell, number in zip(cells, numbers, strict=True):
            found.append(_sequence(cell, tokenizer, records, number))
            if len(found) % _TOLD == 0:
                stage.advance(_TOLD)
    return found


def _as_pad(pad: Symbol | None, cells: Sequence[Any]) -> Symbol | None:
    """The padding token as a number where the rows hold numbers."""
    if not isinstance(pad, str) or not _WHOLE.fullmatch(pad) or len(pad) > _LONG:
        return pad
    first = cells[0] if cells else None
    numbers = isinstance(first, list | tuple | np.ndarray) and len(first) and not isinstance(first[0], str)
    listed = isinstance(first, str) and is_list(first) and '"' not in first
    return int(pad) if numbers or listed else pad


def _sequence(cell: Any, tokenizer: Tokenizer, records: Records, number: int) -> list[Any]:
    """The tokens of one cell, not yet cut to length."""
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return _checked(list(cell), records, number)
    if _is_missing(cell):
        raise DataError(f"{records.place(number)}: the sequence is missing; remove the row")
    if not isinstance(cell, str):
        return _checked([cell.item() if isinstance(cell, np.generic) else cell], records, number)
    if is_list(cell):
        try:
            parsed = parse_json(cell, records.place(number))
        except DataError:
            if tokenizer.kind == LISTS:
                raise
        else:
            return _checked(parsed, records, number)
    if tokenizer.kind == LISTS:
        raise DataError(
            f"{records.place(number)}: {quote(cell)} is no JSON list of tokens; choose --tokens characters or words"
        )
    try:
        found = tokenizer.whole(cell)
    except DataError as error:
        raise DataError(f"{records.place(number)}: {error}") from None
    if not found:
        raise DataError(f"{records.place(number)}: the sequence is empty; remove the row")
    return found


def _checked(tokens: list[Any], records: Records, number: int) -> list[Any]:
    """A list of tokens as it stands; a DataError names the first that is none."""
    if not tokens:
        raise DataError(f"{records.place(number)}: the sequence is empty; remove the row")
    if set(map(type, tokens)) <= {int, str}:
        return tokens
    for position, token in enumerate(tokens):
        if not isinstance(token, str):
            numbers = token if isinstance(token, list | tuple) else [token]
            if not numbers or not all(map(_is_number, numbers)):
                raise DataError(f"{records.place(number)}: token {position} is {quote(token)}; {_TOKEN}")
    return tokens


def _is_number(x: Any) -> bool:
    return type(x) is int or (isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x))


def _check_counts(sequences: list[Any], labels: list[Any], records: Records, numbers: list[int]) -> None:
    for sequence, row, number in zip(sequences, labels, numbers, strict=True):
        if len(sequence) != len(row):
            counts = f"there are {len(sequence)} tokens but {len(row)} labels"
            raise DataError(f"{records.place(number)}: {counts}; give one per token")


def _is_missing(cell: Any) -> bool:
    not_a_number = isinstance(cell, float) and math.isnan(cell)
    return cell is None or not_a_number or type(cell).__name__ in ("NAType", "NaTType")


def _labels(cells: list[Any], records: Records, numbers: list[int], task: Task) -> list[Any]:
    for cell, number in zip(cells, numbers, strict=True):
        if _is_missing(cell):
            raise DataError(f"{records.place(number)}: the label is missing; remove the row or fill it")
    if not task.labels_per_token:
        return _numbers(cells)
    rows = []
    for cell, number in zip(cells, numbers, strict=True):
        row = parse_json(cell, records.place(number)) if isinstance(cell, str) and is_list(cell) else cell
        if isinstance(row, np.ndarray | tuple):
            row = list(row) if isinstance(row, tuple) else row.tolist()
        if not isinstance(row, list):
            raise DataError(
                f"{records.place(number)}: {task} takes a JSON list with one label per token, not {quote(cell)}"
            )
        rows.append(row)
    return rows


def _next_tokens(rows: list[Any], records: Records, numbers: list[int]) -> tuple[list[Any], list[Any]]:
    """Every prefix is labelled with the token that follows it."""
    for row, number in zip(rows, numbers, strict=True):
        if len(row) < 2:
            raise DataError(f"{records.place(number)}: one token alone has no next one; remove the row")
    return [row[:-1] for row in rows], [row[1:] for row in rows]


def _numbers(cells: list[Any], reals: bool = False) -> list[Any]:
    """Cells of a text format as ints where all of them are whole numbers written plainly; as floats where asked."""
    texts = [cell.strip() for cell in cells if isinstance(cell, str)]
    if len(texts) == len(cells) and all(_WHOLE.fullmatch(t) and len(t) < _LONG for t in texts):
        whole = [int(text) for text in texts]
        if reals or len(set(whole)) == len(set(texts)):
            return whole
    if reals and len(texts) == len(cells):
        try:
            found = [float(text) for text in texts]
        except ValueError:
            return cells
        return found if all(map(math.isfinite, found)) else cells
    return [c.tolist() if isinstance(c, np.generic) else c for c in cells]
