"""From a file or a frame to sequences and labels: which columns they are in, and how texts are tokenized.

A value is never changed: a cell of a text format is a text, whatever it looks like, and a number is a number
where the source has numbers or the user asks for them. The path is straight: records (rows of cells), columns, cells to
tokens, missing values, types, length.

>>> tokenize("to be or not", "words"), tokenize("abc", "characters"), tokenize("[1, 2]", "auto")
(['to', 'be', 'or', 'not'], ['a', 'b', 'c'], [1, 2])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from byheart.data.dataset.targets import Target
from byheart.data.missing import Present, settle_missing
from byheart.data.read.columns import (
    ChosenColumns,
    choose_columns,
    form_of,
    from_lines,
    header_words,
    numbering_flag,
    open_records,
    read_columns,
    sequence_columns,
    table_columns,
    uneven_words,
    unused,
)
from byheart.data.read.options import ALL, ReadOptions, Selection
from byheart.data.read.records import Records, parse_json
from byheart.data.read.row_codec import Place, RowCodec
from byheart.data.read.sources import STDIN, lines
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import AUTO, LISTS, Planned, Tokenizer, TokenTable, choose, is_list, other_choice
from byheart.data.values import PLAIN, convert, is_missing, listed, plain
from byheart.data.wording import quote
from byheart.errors import DataError, TableError
from byheart.progress import SILENT, Progress, timed, warn_left_out

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,999})")
_NOTHING_MISSING = Present((), ())
Planning = Callable[[TokenTable, int, int], int]  # parameters for a tokenization, so many rows and so many classes


@dataclass(frozen=True)
class Table:
    """Sequences and labels as read, and how: `byheart.memorize` takes a table as it is.

    A table is also a pair: `sequences, labels = table`.

    Attributes:
        sequences: Rows of tokens.
        labels: Their labels.
        tokens: How texts were tokenized.
        selection: Which columns and rows were taken.
        shortened: How many rows were truncated to `max_length`.
        task: The task.
        remarks: Further guesses about the source, for people.
        places: Returns the place of a row in its source.
        missing: Which rows have missing values, and the policy for them.
        target: Whether labels are classes or distributions.
        left_out: Why rows of the source are not rows here -> how many; see `not_here`.
        numbering: Sequence columns that only number the rows, where all columns were taken.
        numbering_flag: The remedy to suggest for them: `--drop`, or `--keep` where dropping them would lose rows.
        unused: The columns that were not taken, for people.
        reading: The columns in one line, as `deploy` prints it.

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
    remarks: tuple[str, ...] = ()
    places: Callable[[int], str] | None = field(default=None, repr=False)
    missing: Present = field(default=_NOTHING_MISSING, repr=False)
    target: Target = Target.CLASS
    left_out: Mapping[str, int] = field(default_factory=dict)
    numbering: tuple[str, ...] = ()
    numbering_flag: str = ""
    unused: str = ""
    reading: str = ""

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
        parts += [f"texts tokenized into {self.tokens}"] if self.tokens.kind != LISTS else []
        parts += [f"{self.shortened:,} rows truncated to {self.tokens.max_length} tokens"] if self.shortened else []
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
    """Read sequences and labels from a file or a frame.

    Columns are guessed where they are not named; several sequence columns make a row of their cells (`"*"`: all but the
    label's); `label="kind"` names the label and takes all other columns. Without a label column the task `causal` takes
    every next token as the label.

    Args:
        source: A file: CSV, TSV, JSON Lines, Parquet, Arrow, .npy, .npz, text, each also as .gz or .zst; a folder of a
            Hugging Face data set (by name: `hf:NAME`). Or a frame: pandas, polars, Arrow and whatever else narwhals
            supports, a Hugging Face data set, a dictionary of columns.
        options: How to read it; or its fields as keywords.
        like: An earlier reading, whose columns are taken again.
        planning: The parameters of the memory that the rows are for, by which `tokens="auto"` chooses.
        progress: Where to show progress.
        **given: `sequence_column`, `label`, `task` and the fields of `ReadOptions`. `tokens`: characters, bytes, words,
            wordpunct, uncased, integers, `bpe:500`, `wordpiece:500`, `unigram:500` (trained on these rows), or a
            tokenizer.json; a cell that is a JSON list is always taken as the tokens. `label_type` and `token_type`
            convert values (str, int, float, bool). `missing`: error, drop or label. `max_length` keeps the first
            tokens of a row, `pad` fills shorter ones up to it. `header=False`: a CSV file begins with a row; its
            columns are then `column 1`, `column 2`, … `encoding` is that of a text file, where that is not UTF-8.

    Returns:
        The table.

    Raises:
        DataError: The source cannot be read; the message names the place.
        TableError: The source needs a decision; the message names every flag.
        OptionError: An option is unknown or has no meaning here.

    >>> import pandas
    >>> table = read(pandas.DataFrame({"name": ["cat", "dog"], "zip": ["00501", "10001"]}))
    >>> table.sequences, table.labels, table.note
    ([['c', 'a', 't'], ['d', 'o', 'g']], ['00501', '10001'],
     "sequence from column 'name', label from column 'zip'; texts tokenized into characters")
    """
    options = options or ReadOptions.of(**given)
    records = open_records(source, options.limits, form_of(options, like, lenient=True))
    names, label = choose_columns(
        records, options.sequence_columns, options.label_column, options.task, like, options.drop
    )
    columns = read_columns(records, names, label, options.limits, progress).dated()
    guessed = not options.sequence_columns and like is None
    doubt, flag = columns.doubt if like is None and options.header is None and label is not None else ("", "")
    problems = [(header_words(doubt), flag)] if doubt else []
    if records.uneven and options.uneven == "error":
        problems.append((uneven_words(records.uneven, records.unit), "--uneven drop"))
    if problems:
        words, flags = zip(*problems, strict=True)
        raise TableError(f"{records.origin} cannot be read as it is:", list(words), list(flags))
    uneven = {f"uneven={options.uneven}": len(records.uneven)} if records.uneven else {}
    warn_left_out(f"lines of {records.origin}", uneven)
    cells = columns.rows()
    planned = None if planning is None else _planned(planning, cells, columns.labels, options)
    tokenizer = choose(options.tokens, cells, max_length=options.max_length, type=options.token_type, planned=planned)
    remark = _choice(tokenizer, cells, options, planned)
    whole = RowCodec(tokenizer).encode(cells, columns.place, progress)
    labels = columns.labels if label is not None else [0] * len(whole)
    if label is not None and options.task.labels_per_token:
        labels = _label_lists(labels, columns.place, options.task)
    present = settle_missing(
        whole, labels, options.missing, columns.name, records.origin, per_token=options.task.labels_per_token
    )
    warn_left_out(f"rows of {records.origin}", {f"missing={present.policy}": present.left_out})
    whole, labels = list(present.sequences), list(present.labels)
    place = columns.place if present.kept is None else columns.take(present.kept).place
    if label is None:
        whole, labels = _next_tokens(whole, place)
    else:
        labels = _typed_labels(labels, place, options)
        if options.task.labels_per_token:
            _check_counts(whole, labels, place)
    numbering = columns.numbering(options.keep) if guessed or options.sequence_columns == (ALL,) else ()
    tokenizer = replace(tokenizer, pad=_as_pad(options.pad, tokenizer, whole)) if options.pad is not None else tokenizer
    limit, rest = tokenizer.max_length, unused(records, (*names, label))
    if options.task.labels_per_token and limit is not None:
        labels = [row[:limit] for row in labels]
    return Table(
        sequences=whole if limit is None else [tokenizer.fit_length(row) for row in whole],
        labels=labels,
        tokens=tokenizer,
        selection=Selection(
            names,
            label,
            options.max_rows,
            label_type=options.label_type,
            missing=options.missing,
            header=options.header,
            encoding=options.encoding,
        ),
        shortened=sum(len(row) > limit for row in whole) if limit is not None else 0,
        task=options.task,
        remarks=tuple(part for part in (rest, records.remark, remark) if part),
        unused=rest,
        numbering=numbering,
        numbering_flag=numbering_flag(names, columns.cells, columns.labels, numbering) if numbering and label else "",
        reading=_reading(records, names, label, options),
        places=place,
        left_out=uneven,
        missing=replace(present, sequences=(), labels=()),
    )


def _planned(planning: Planning, cells: list[Any], labels: list[Any], options: ReadOptions) -> Planned | None:
    """The planned parameters by how these rows are tokenized. Where every token has a label, the tokenization decides
    what is memorized, and not only its size."""
    if options.tokens != AUTO or options.task.labels_per_token:
        return None
    classes = len(set(map(str, labels)))
    return cache(lambda table: planning(table, len(cells), classes))


def _choice(tokenizer: Tokenizer, cells: list[Any], options: ReadOptions, planned: Planned | None) -> str:
    """How else texts could be tokenized, where the user did not decide."""
    if options.tokens != AUTO or tokenizer.kind == LISTS:
        return ""
    return other_choice(tokenizer, cells, planned)


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
    """Sequences alone, as queries; on standard input every line is one sequence."""
    options = options or ReadOptions.of(**given)
    if isinstance(source, str) and source == STDIN:
        columns = from_lines(lines(STDIN), "standard input")
    else:
        records = open_records(source, options.limits, form_of(options, like))
        earlier = like.sequence_columns if like and set(like.sequence_columns) <= set(records.columns) else ()
        names = sequence_columns(records, options.sequence_columns or earlier)
        columns = read_columns(records, names, None, options.limits, progress).dated()
    cells = columns.rows()
    tokenizer = choose(options.tokens, cells, max_length=options.max_length, type=options.token_type)
    whole = RowCodec(tokenizer).encode(cells, columns.place, progress)
    present = settle_missing(whole, [0] * len(whole), options.missing, columns.name, columns.records.origin)
    return [tokenizer.fit_length(row) for row in present.sequences]


def tokenize(text: str, tokens: str | Tokenizer, number: int = 1) -> list[Any]:
    """One text as tokens; a JSON list is always taken as the tokens. `number` names it in messages."""
    tokenizer, place = choose(tokens, [text]), f"the query, sequence {number}"
    (found,) = RowCodec(tokenizer).encode([text], lambda _: place)
    if not found:
        raise DataError(f"{place} is empty; give at least one token")
    return tokenizer.fit_length(found)


def _as_pad(pad: Any, tokenizer: Tokenizer, rows: Sequence[Sequence[Any]]) -> Any:
    """The padding token, which a flag gives as text, as a number where every token is a whole number."""
    if tokenizer.type != AUTO:
        return convert(pad, tokenizer.type)
    if isinstance(pad, str) and _WHOLE.fullmatch(pad) and set(map(type, chain.from_iterable(rows))) == {int}:
        return int(pad)
    return pad


def _check_counts(sequences: list[Any], labels: list[Any], place: Place) -> None:
    for number, (sequence, row) in enumerate(zip(sequences, labels, strict=True)):
        if len(sequence) != len(row):
            counts = f"there are {len(sequence)} tokens but {len(row)} labels"
            raise DataError(f"{place(number)}: {counts}; give one per token")


def _label_lists(cells: list[Any], place: Place, task: Task) -> list[Any]:
    """A list of labels per row, unchanged; None where it is missing."""
    rows = []
    for number, cell in enumerate(cells):
        row = parse_json(cell, place(number)) if isinstance(cell, str) and is_list(cell) else cell
        if isinstance(row, np.ndarray | tuple):
            row = list(row) if isinstance(row, tuple) else listed(row)
        if not isinstance(row, list) and not is_missing(row):
            raise DataError(f"{place(number)}: {task} takes a JSON list with one label per token, not {quote(cell)}")
        rows.append(row if isinstance(row, list) else None)
    return rows


def _typed_labels(labels: list[Any], place: Place, options: ReadOptions) -> list[Any]:
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
        raise DataError(f"{place(row)}: the label {words}{more}; choose another --label-type")
    return found


def _label(label: Any, options: ReadOptions) -> Any:
    label = convert(plain(label), options.label_type)
    if type(label) not in PLAIN and not isinstance(label, list | dict):
        raise DataError(f"{quote(label)} is of type {type(label).__name__}, which a memory cannot keep; read it as str")
    return label


def _next_tokens(rows: list[Any], place: Place) -> tuple[list[Any], list[Any]]:
    """Every prefix is labelled with the token that follows it."""
    for number, row in enumerate(rows):
        if len(row) < 2:
            raise DataError(f"{place(number)}: one token alone has no next one; remove the row")
    return [row[:-1] for row in rows], [row[1:] for row in rows]
