"""From a file or a frame to sequences and labels: which columns they are in, and how texts are cut into tokens.

A value is what its source says: a cell of a text format is a text, whatever it looks like, and a number is a number
where the source has numbers or the user asks for them. The path is straight: records (rows of cells), columns, cells to
tokens, missing values, types, length.

>>> tokenize("to be or not", "words"), tokenize("abc", "characters"), tokenize("[1, 2]", "auto")
(['to', 'be', 'or', 'not'], ['a', 'b', 'c'], [1, 2])
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice
from os import PathLike
from typing import Any

import numpy as np

from byheart.data.dataset.targets import Target
from byheart.data.missing import Present, settle_missing
from byheart.data.read.columns import (
    ChosenColumns,
    choose_columns,
    header_doubt,
    header_words,
    numbers_rows,
    sequence_columns,
    table_columns,
    unused,
)
from byheart.data.read.formats.delimited import is_made_up
from byheart.data.read.frames import from_frame
from byheart.data.read.options import ALL, ReadOptions, Selection
from byheart.data.read.records import CSV, LINE, Records, parse_json, read_records
from byheart.data.read.sources import STDIN, Limits, TextForm, lines
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import (
    AUTO,
    LISTS,
    Planned,
    Tokenizer,
    TokenTable,
    choose,
    is_list,
    other_choice,
)
from byheart.data.values import PLAIN, convert, is_missing, listed, plain
from byheart.data.wording import quote
from byheart.errors import DataError, TableError
from byheart.exact.budget import check_room
from byheart.progress import SILENT, Progress, timed, warn_left_out

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,999})")
_TOKEN = "a token is a text, a finite number, a truth value or a list of numbers (or choose --token-type str)"
_STEP = 1000  # rows between two signs of progress
_MANY = 1 << 18  # rows between two looks at the machine's memory
_NOTHING_MISSING = Present((), ())
Planning = Callable[[TokenTable, int, int], int]  # parameters for a way to cut, so many rows and so many classes


@dataclass(frozen=True)
class Table:
    """Sequences and labels as read, and how: `byheart.memorize` takes a table as it is.

    `tokens` is how texts were cut, `selection` which columns and rows were taken, `shortened` how many rows were cut
    to `max_length`, `missing` what was done about missing values. A table is also a pair: `sequences, labels = table`.

    >>> sequences, labels = Table(["sun", "moon"], ["day", "night"])
    >>> sequences
    ['sun', 'moon']
    """

    sequences: list[Any]
    labels: list[Any]
    tokens: Tokenizer = Tokenizer(LISTS)  # noqa: RUF009  # a frozen value
    selection: Selection = Selection()  # noqa: RUF009
    shortened: int = 0
    task: Task = Task.NEXT_TOKEN
    remarks: tuple[str, ...] = ()  # what else was guessed about the file
    places: Callable[[int], str] | None = field(default=None, repr=False)  # where a row stands in its file
    missing: Present = field(default=_NOTHING_MISSING, repr=False)
    target: Target = Target.CLASS
    left_out: Mapping[str, int] = field(default_factory=dict)  # rows of the source that are not rows here; see not_here
    numbering: tuple[str, ...] = ()  # sequence columns that only number the rows, where all columns were taken
    unused: str = ""  # columns that were not taken, in words; among the remarks, too
    reading: str = ""  # the columns in one line, as `deploy` prints it

    def __iter__(self) -> Iterator[list[Any]]:
        return iter((self.sequences, self.labels))

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def columns(self) -> dict[str, str]:
        """Role -> column: where sequences and labels were read."""
        return self.selection.columns

    @property
    def not_here(self) -> dict[str, int]:
        """Why rows of the source are not in this table -> how many, those with missing values included."""
        gone = self.missing.left_out
        return {**({f"by --missing {self.missing.policy}": gone} if gone else {}), **self.left_out}

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
        return "; ".join(part for part in (*parts, self.missing.note) if part)


@timed("reading")
def read(
    source: Any,
    options: ReadOptions | None = None,
    *,
    like: Selection | None = None,
    planning: Planning | None = None,
    progress: Progress = SILENT,
    **given: Any,
) -> Table:
    """Sequences and labels from a file or a frame.

    Files: CSV, TSV, JSON Lines, Parquet, Arrow, .npy, .npz, text, each also as .gz or .zst, and folders of Hugging Face
    data sets (by name: `hf:NAME`). Frames: pandas, polars, Arrow and whatever else narwhals knows, Hugging Face data
    sets, dictionaries of columns. How, is one `ReadOptions`, or its fields as keywords:

    Columns are guessed where they are not named; several sequence columns make a row of their cells (`"*"`: all but the
    label's); `label="kind"` names the label and takes all other columns. `tokens`: characters, bytes, words, wordpunct,
    uncased, integers, `bpe:500`, `wordpiece:500`, `unigram:500` (trained on these rows), or a tokenizer.json; a cell
    that is a JSON list is always taken as the tokens. `label_type` and `token_type` convert values (str, int, float,
    bool); without them a value is what the source has. `missing`: error, drop or label. `max_length` keeps the first
    tokens of a row, `pad` fills shorter ones up to it. Without a label column the task `causal` takes every next token
    as the label. `header=False` says that a CSV file begins with a row; its columns are then `column 1`, `column 2`, …
    `encoding` says how a text file is written, where that is not UTF-8.
    `like` prefers the columns of an earlier reading where they exist; `planning` gives the parameters of a memory that
    is wanted of the rows, by which `tokens="auto"` chooses.

    >>> import pandas
    >>> table = read(pandas.DataFrame({"name": ["cat", "dog"], "zip": ["00501", "10001"]}))
    >>> table.sequences, table.labels, table.note
    ([['c', 'a', 't'], ['d', 'o', 'g']], ['00501', '10001'],
     "sequence from column 'name', label from column 'zip'; texts cut into characters")
    """
    options = options or ReadOptions.of(**given)
    records = open_records(source, options.limits, form_of(options, like))
    names, label = choose_columns(
        records, options.sequence_columns, options.label_column, options.task, like, options.drop
    )
    rows = _collect(records, names, label, options.limits, progress)
    guessed = not options.sequence_columns and like is None
    if like is None and options.header is None and label is not None and records.first_line:
        _refuse_doubtful_header(records, names, label, rows)
    planned = None if planning is None else _planned(planning, rows, options)
    tokenizer = choose(
        options.tokens, rows.cells, max_length=options.max_length, type=options.token_type, planned=planned
    )
    remark = _choice(tokenizer, rows, options, planned)
    whole = _cut(rows, tokenizer, records, progress)
    labels = rows.labels if label is not None else [0] * len(whole)
    if label is not None and options.task.labels_per_token:
        labels = _label_lists(labels, records, rows.numbers, options.task)
    present = settle_missing(
        whole,
        labels,
        options.missing,
        lambda row: records.name(rows.numbers[row]),
        records.origin,
        per_token=options.task.labels_per_token,
    )
    warn_left_out(f"rows of {records.origin}", {f"missing={present.policy}": present.left_out})
    whole, labels = list(present.sequences), list(present.labels)
    numbers = rows.numbers if present.kept is None else array("q", (rows.numbers[row] for row in present.kept))
    if label is None:
        whole, labels = _next_tokens(whole, records, numbers)
    else:
        labels = _typed_labels(labels, records, numbers, options)
        if options.task.labels_per_token:
            _check_counts(whole, labels, records, numbers)
    tokenizer = replace(tokenizer, pad=_as_pad(options.pad, tokenizer, whole)) if options.pad is not None else tokenizer
    limit, rest = tokenizer.max_length, unused(records, (*names, label))
    if options.task.labels_per_token and limit is not None:
        labels = [row[:limit] for row in labels]
    return Table(
        sequences=whole if limit is None else [tokenizer.fit_length(row) for row in whole],
        labels=labels,
        tokens=tokenizer,
        selection=Selection(names, label, options.max_rows, label_type=options.label_type, missing=options.missing),
        shortened=sum(len(row) > limit for row in whole) if limit is not None else 0,
        task=options.task,
        remarks=tuple(part for part in (rest, records.remark, remark) if part),
        unused=rest,
        numbering=_numbering(names, rows, options.keep) if guessed or options.sequence_columns == (ALL,) else (),
        reading=_reading(records, names, label, options),
        places=lambda row: records.place(numbers[row]),
        missing=replace(present, sequences=(), labels=()),
    )


def _planned(planning: Planning, rows: Rows, options: ReadOptions) -> Planned | None:
    """The planned parameters by how these rows are cut. Where every token has a label, the way to cut them decides
    what is memorized, and not only its size."""
    if options.tokens != AUTO or options.task.labels_per_token:
        return None
    classes = len(set(map(str, rows.labels)))
    return cache(lambda table: planning(table, len(rows.cells), classes))


def _choice(tokenizer: Tokenizer, rows: Rows, options: ReadOptions, planned: Planned | None) -> str:
    """What else texts could be cut into, where nobody said how."""
    if options.tokens != AUTO or tokenizer.kind == LISTS:
        return ""
    return other_choice(tokenizer, rows.cells, planned)


def _numbering(names: tuple[str, ...], rows: Rows, keep: Sequence[str]) -> tuple[str, ...]:
    """Columns that count the rows or name them, by their names or because they are consecutive numbers."""
    if len(names) < 2:
        return ()
    columns = zip(names, zip(*rows.cells, strict=True), strict=True)
    return tuple(name for name, cells in columns if name not in keep and numbers_rows(name, cells))


def _refuse_doubtful_header(records: Records, names: tuple[str, ...], label: str, rows: Rows) -> None:
    """Refuse a CSV file whose first line may be a row, as `deploy` does."""
    columns = [rows.cells] if len(names) == 1 else list(zip(*rows.cells, strict=True))
    doubt, flag = header_doubt((*names, label), [*columns, rows.labels])
    if doubt:
        raise TableError(f"{records.origin} cannot be read as it is:", [header_words(doubt)], [flag])


def _reading(records: Records, names: tuple[str, ...], label: str | None, options: ReadOptions) -> str:
    """The line about the columns; empty where there is no label column."""
    if label is None:
        return ""
    chosen = ChosenColumns(names, label)
    if options.label_column is None and options.task is Task.NEXT_TOKEN and len(records.columns) > 1:
        chosen = replace(table_columns(records, names, None, options.drop), inputs=names)
    return chosen.line(records.columns)


def read_sequences(
    source: Any,
    options: ReadOptions | None = None,
    *,
    like: Selection | None = None,
    progress: Progress = SILENT,
    **given: Any,
) -> list[Any]:
    """Sequences alone, to be asked; on standard input every line is one sequence."""
    options = options or ReadOptions.of(**given)
    if isinstance(source, str) and source == STDIN:
        found = [(n, line.rstrip("\r\n")) for n, line in lines(STDIN) if line.strip()]
        place = Records((LINE,), lambda names: iter(()), "standard input", "line")
        rows = Rows(array("q", (n for n, _ in found)), [line for _, line in found], [])
        records = place
    else:
        records = open_records(source, options.limits, form_of(options, like))
        earlier = like.sequence_columns if like and set(like.sequence_columns) <= set(records.columns) else ()
        names = sequence_columns(records, options.sequence_columns or earlier)
        rows = _collect(records, names, None, options.limits, progress)
    tokenizer = choose(options.tokens, rows.cells, max_length=options.max_length, type=options.token_type)
    whole = _cut(rows, tokenizer, records, progress)
    name = lambda row: records.name(rows.numbers[row])  # noqa: E731
    present = settle_missing(whole, [0] * len(whole), options.missing, name, records.origin)
    return [tokenizer.fit_length(row) for row in present.sequences]


def tokenize(text: str, tokens: str | Tokenizer, number: int = 1) -> list[Any]:
    """One text as tokens; a JSON list is always taken as the tokens. `number` names it in messages."""
    tokenizer = choose(tokens, [text])
    place = Records((LINE,), lambda names: iter(()), "the question", "sequence")
    found = _sequence(text, tokenizer, place, number)
    if not found:
        raise DataError(f"{place.place(number)} is empty; give at least one token")
    return tokenizer.fit_length(found)


@dataclass(frozen=True)
class Rows:
    """Columns of a source: the number of each row's place, its sequence cell (or list of cells) and its label."""

    numbers: array[int]
    cells: list[Any]
    labels: list[Any]


def open_records(source: Any, limits: Limits, form: TextForm, otherwise: str = CSV) -> Records:
    """The records of a file or of a table in memory; a file that no format claims is read as `otherwise`."""
    found = from_frame(source)
    if found is not None:
        return found
    if not isinstance(source, str | PathLike):
        kind = type(source).__name__
        raise DataError(f"a {kind} cannot be read; give the name of a file, a data frame or a dictionary of columns")
    return read_records(str(source), limits, form, otherwise)


def form_of(options: ReadOptions, like: Selection | None = None) -> TextForm:
    """As the user says, else as in an earlier reading: columns with made-up names were in a file without a header."""
    if options.header is not None:
        return TextForm(options.header, options.encoding)
    names = (*like.sequence_columns, like.label_column or "") if like else ()
    return TextForm(not (names and all(is_made_up(name) for name in names if name)), options.encoding)


def _collect(records: Records, names: tuple[str, ...], label: str | None, limits: Limits, progress: Progress) -> Rows:
    """The rows; several sequence columns are one list of cells."""
    rows = Rows(array("q"), [], [])
    wanted = names if label is None else (*names, label)
    with progress.stage("reading rows", total=limits.max_rows) as stage:
        for number, row in islice(records.select(wanted), limits.max_rows):
            rows.numbers.append(number)
            rows.cells.append(row[0] if len(names) == 1 else list(row[: len(names)]))
            rows.labels.append(row[-1])
            if len(rows.numbers) % _STEP == 0:
                stage.advance(_STEP)
            if len(rows.numbers) % _MANY == 0:
                check_room(len(rows.numbers), _tokens(rows.cells))
    if not rows.cells:
        raise DataError(f"{records.origin} has columns and no rows; it needs a row")
    return rows


def _tokens(cells: Sequence[Any]) -> int:
    """About how many tokens the cells have, from some of them: at most one for each character."""
    some = [len(cell) if isinstance(cell, str | list | tuple) else 1 for cell in cells[:: max(1, len(cells) // 1000)]]
    return len(cells) * sum(some) // len(some)


def _cut(rows: Rows, tokenizer: Tokenizer, records: Records, progress: Progress) -> list[list[Any]]:
    """The tokens of every cell, not yet cut to length; none where the cell is missing."""
    found = []
    with progress.stage("cutting rows into tokens", total=len(rows.cells)) as stage:
        for cell, number in zip(rows.cells, rows.numbers, strict=True):
            found.append(_sequence(cell, tokenizer, records, number))
            if len(found) % _STEP == 0:
                stage.advance(_STEP)
    return found


def _as_pad(pad: Any, tokenizer: Tokenizer, rows: Sequence[Sequence[Any]]) -> Any:
    """The padding token, which a flag gives as text, as a number where every token is a whole number."""
    if tokenizer.type != AUTO:
        return convert(pad, tokenizer.type)
    if isinstance(pad, str) and _WHOLE.fullmatch(pad) and set(map(type, chain.from_iterable(rows))) == {int}:
        return int(pad)
    return pad


def _sequence(cell: Any, tokenizer: Tokenizer, records: Records, number: int) -> list[Any]:
    """The tokens of one cell, not yet cut to length; an empty list where there is none."""
    try:
        if isinstance(cell, str):
            return _text(cell, tokenizer, records, number)
        if isinstance(cell, np.ndarray):
            cell = listed(cell)
        if isinstance(cell, list | tuple):
            return _checked(tokenizer.typed(cell))
        return [] if is_missing(cell) else _checked(tokenizer.typed([cell]))
    except DataError as error:
        place = records.place(number)
        raise error if str(error).startswith(place) else DataError(f"{place}: {error}") from None


def _text(cell: str, tokenizer: Tokenizer, records: Records, number: int) -> list[Any]:
    if is_list(cell):
        try:
            parsed = parse_json(cell, records.place(number))
        except DataError:
            if tokenizer.kind == LISTS:
                raise
        else:
            return _checked(tokenizer.typed(parsed))
    if tokenizer.kind == LISTS:
        raise DataError(f"{quote(cell)} is not a JSON list of tokens; choose --tokens characters or words")
    return tokenizer.whole(cell)


def _checked(tokens: list[Any]) -> list[Any]:
    """A list of tokens, NumPy scalars as what they hold; a DataError names the first that is not a token."""
    if set(map(type, tokens)) <= {int, str, bool, type(None)}:
        return tokens
    found = [plain(token) for token in tokens]
    for position, token in enumerate(found):
        if not isinstance(token, str | bool) and not is_missing(token):
            numbers = token if isinstance(token, list | tuple) else [token]
            if not numbers or not all(map(_is_number, numbers)):
                raise DataError(f"token {position} is {quote(token)}; {_TOKEN}")
    return [None if is_missing(token) else token for token in found]


def _is_number(x: Any) -> bool:
    """A finite number, or NaN, which counts as missing."""
    return type(x) is int or (isinstance(x, int | float) and not isinstance(x, bool) and not math.isinf(x))


def _check_counts(sequences: list[Any], labels: list[Any], records: Records, numbers: Sequence[int]) -> None:
    for sequence, row, number in zip(sequences, labels, numbers, strict=True):
        if len(sequence) != len(row):
            counts = f"there are {len(sequence)} tokens but {len(row)} labels"
            raise DataError(f"{records.place(number)}: {counts}; give one per token")


def _label_lists(cells: list[Any], records: Records, numbers: Sequence[int], task: Task) -> list[Any]:
    """A list of labels per row, as it stands; None where it is missing."""
    rows = []
    for cell, number in zip(cells, numbers, strict=True):
        row = parse_json(cell, records.place(number)) if isinstance(cell, str) and is_list(cell) else cell
        if isinstance(row, np.ndarray | tuple):
            row = list(row) if isinstance(row, tuple) else listed(row)
        if not isinstance(row, list) and not is_missing(row):
            raise DataError(
                f"{records.place(number)}: {task} takes a JSON list with one label per token, not {quote(cell)}"
            )
        rows.append(row if isinstance(row, list) else None)
    return rows


def _typed_labels(labels: list[Any], records: Records, numbers: Sequence[int], options: ReadOptions) -> list[Any]:
    """The labels as the user's type; a DataError names the first that cannot be one, and how many there are."""
    nested = options.task.labels_per_token
    found: list[Any] = []
    wrong: list[tuple[int, str]] = []
    for row, label in enumerate(labels):
        try:
            found.append([_label(part, options) for part in label] if nested else _label(label, options))
        except DataError as error:
            wrong.append((row, str(error)))
    if wrong:
        row, words = wrong[0]
        more = f" (and {len(wrong) - 1:,} more rows)" if len(wrong) > 1 else ""
        raise DataError(f"{records.place(numbers[row])}: the label {words}{more}; choose another --label-type")
    return found


def _label(label: Any, options: ReadOptions) -> Any:
    label = convert(plain(label), options.label_type)
    if type(label) not in PLAIN and not isinstance(label, list | dict):
        raise DataError(f"{quote(label)} is of type {type(label).__name__}, which a memory cannot keep; read it as str")
    return label


def _next_tokens(rows: list[Any], records: Records, numbers: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Every prefix is labelled with the token that follows it."""
    for row, number in zip(rows, numbers, strict=True):
        if len(row) < 2:
            raise DataError(f"{records.place(number)}: one token alone has no next one; remove the row")
    return [row[:-1] for row in rows], [row[1:] for row in rows]
