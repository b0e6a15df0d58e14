"""The columns of a source: which hold the inputs and the label (as the user names them, else a printed guess), and
their cells.

`table_columns` decides for every command that reads a table: the label is the column with a usual name, else the last
one; the inputs are a text column with a usual name, else all others. `header_doubt` decides whether the first line of a
CSV file may be a row.
"""

from __future__ import annotations

import datetime
import re
import shlex
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice, pairwise
from os import PathLike
from typing import Any

from byheart.data.read.formats.delimited import is_made_up
from byheart.data.read.frames import from_frame
from byheart.data.read.options import ALL, ReadOptions, Selection
from byheart.data.read.records import CSV, LINE, Records, read_records
from byheart.data.read.sources import Limits, TextForm
from byheart.data.task import Task
from byheart.data.values import days_as_texts
from byheart.errors import DataError
from byheart.exact.budget import check_free_memory
from byheart.progress import SILENT, Progress

SEQUENCE_NAMES = ("sequence", "sequences", "tokens", "text", "input", "premise", "sentence", "name", "x")
# A column of this name is a text to tokenize, and the whole input.
TEXT_NAMES = ("sequence", "sequences", "tokens", "text", "premise", "sentence")
LABEL_NAMES = ("label", "labels", "y", "target", "class", "output", "answer")
# columns that carry no information about their row
NUMBERING = ("", "id", "index", "row", "nr", "no", "#", "unnamed: 0")
KEYS = ("rowid", "row_number", "level_0", "__index_level_0__")  # of rows, too
KEY_WORDS = ("id", "uid", "uuid", "guid", "idx", "index", "key", "pk")  # in a longer name: customer_id, OrderID
# Columns that a message lists, columns of a line for people, and rows from which even steps count as numbering.
_SHOWN, _FEW, _MANY = 20, 5, 10
_UNEVEN_SHOWN = 3  # lines that a message names
_STEP = 1000  # rows between two signs of progress
_LOOK = 1 << 18  # rows between two looks at the machine's memory
_DIGIT = re.compile(r"[0-9]")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, eq=False)
class Columns:
    """The cells of a source, column by column: what every command that takes a table reads.

    Attributes:
        records: The source.
        inputs: The names of the input columns.
        label: The name of the label column; None where there is none.
        cells: The cells of each input column, as the source has them.
        labels: The cells of the label column.
        numbers: The number of each row in its source.
    """

    records: Records
    inputs: tuple[str, ...]
    label: str | None
    cells: tuple[list[Any], ...]
    labels: list[Any]
    numbers: array[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def name(self, row: int) -> str:
        """Return how messages about the source call a row."""
        return self.records.name(self.numbers[row])

    def place(self, row: int) -> str:
        """Return the place of a row, with the source."""
        return self.records.place(self.numbers[row])

    def rows(self) -> list[Any]:
        """Return the input of every row: its cell, or the list of its cells where there are several columns."""
        return self.cells[0] if len(self.cells) == 1 else [list(row) for row in zip(*self.cells, strict=True)]

    def take(self, rows: Sequence[int]) -> Columns:
        """Return some rows alone."""
        return replace(
            self,
            cells=tuple([cells[row] for row in rows] for cells in self.cells),
            labels=[self.labels[row] for row in rows] if self.labels else [],
            numbers=array("q", (self.numbers[row] for row in rows)),
        )

    def dated(self) -> Columns:
        """Return the columns with dates as texts: a token is something that a user can type."""
        dates = [any(isinstance(cell, datetime.date) for cell in cells[:_STEP]) for cells in self.cells]
        found = zip(self.cells, dates, strict=True)
        return replace(self, cells=tuple(days_as_texts(cells) if dated else cells for cells, dated in found))

    @property
    def doubt(self) -> tuple[str, str]:
        """Why the first line may be a row, and the flag that loses nothing; empty where it is none."""
        if not self.records.first_line or self.label is None:
            return "", ""
        return header_doubt((*self.inputs, self.label), [*self.cells, self.labels])

    def numbering(self, keep: Collection[str] = ()) -> tuple[str, ...]:
        """Return the input columns that count the rows or name them, where there are several columns."""
        columns = zip(self.inputs, self.cells, strict=True) if len(self.inputs) > 1 else ()
        return tuple(name for name, cells in columns if name not in keep and numbers_rows(name, cells))


def read_columns(
    records: Records,
    inputs: Sequence[str],
    label: str | None,
    limits: Limits,
    progress: Progress = SILENT,
    *,
    tokens: int | None = None,
) -> Columns:
    """Read the cells of chosen columns.

    Args:
        records: The source.
        inputs: The input columns.
        label: The label column; None where there is none.
        limits: How much to read.
        progress: Where to show progress.
        tokens: Of a cell, where cells are not tokenized one character at a time; decides how much memory they need.

    Raises:
        DataError: The source has no rows, or cannot be read.
        BudgetError: The rows need more memory than the machine has.
    """
    names = (*inputs, *(() if label is None else (label,)))
    cells: list[list[Any]] = [[] for _ in names]
    numbers = array("q")
    with progress.stage("reading rows", total=limits.max_rows) as stage:
        for number, row in islice(records.select(names), limits.max_rows):
            numbers.append(number)
            for kept, cell in zip(cells, row, strict=True):
                kept.append(cell)
            if len(numbers) % _STEP == 0:
                stage.advance(_STEP)
            if len(numbers) % _LOOK == 0:
                inputs_only = cells[: len(inputs)]
                check_free_memory(len(numbers), sum(len(k) * tokens if tokens else _tokens(k) for k in inputs_only))
    if not numbers and records.uneven:
        place, count = records.uneven[0]
        every = "no line has as many cells as there are columns"
        width = f"{records.unit} {place} has {count}, the columns are {len(records.columns)}"
        raise DataError(f"{records.origin}: {every} ({width}); quote cells that contain the separator")
    if not numbers:
        raise DataError(f"{records.origin} has columns and no rows; it needs a row")
    labels = [] if label is None else cells.pop()
    return Columns(records, tuple(inputs), label, tuple(cells), labels, numbers)


def from_lines(numbered: Iterable[tuple[int, str]], origin: str) -> Columns:
    """Return lines of a text as one column, without those that are blank."""
    found = [(number, line.rstrip("\r\n")) for number, line in numbered if line.strip()]
    records = Records((LINE,), lambda names: iter(()), origin, "line")
    return Columns(records, (LINE,), None, ([line for _, line in found],), [], array("q", (n for n, _ in found)))


def _tokens(cells: Sequence[Any]) -> int:
    """About how many tokens the cells have, from some of them: at most one for each character."""
    some = [len(cell) if isinstance(cell, str | list | tuple) else 1 for cell in cells[:: max(1, len(cells) // 1000)]]
    return len(cells) * sum(some) // len(some)


def open_records(source: Any, limits: Limits, form: TextForm, otherwise: str = CSV) -> Records:
    """The records of a file or of a table in memory; a file that no format claims is read as `otherwise`."""
    found = from_frame(source)
    if found is not None:
        return found
    if not isinstance(source, str | PathLike):
        kind = type(source).__name__
        raise DataError(f"a {kind} cannot be read; give the name of a file, a data frame or a dictionary of columns")
    return read_records(str(source), limits, form, otherwise)


def form_of(options: ReadOptions, like: Selection | None = None, lenient: bool = False) -> TextForm:
    """As the user chooses, else as in an earlier reading: columns with made-up names were in a file without a
    header."""
    if options.header is not None:
        return TextForm(options.header, options.encoding, lenient)
    names = (*like.sequence_columns, like.label_column or "") if like else ()
    return TextForm(not (names and all(is_made_up(name) for name in names if name)), options.encoding, lenient)


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
        The columns, and how the label was found where the user did not name it.

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
    """The label column, and how it was found where the user did not name it."""
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
    is hardly a name: `--no-header` keeps the row; neither is a code of digits above codes of as many digits, or a date
    above dates. Numbers in even steps (0, 1, 2 or 10, 20, 30) are names.

    >>> header_doubt(("SW1A", "London"), [["M1", "EH1"], ["North", "London"]])
    ("'London' is also a cell below it", '--header')
    >>> header_doubt(("5.1", "kind"), [["4.9", "4.7"], ["a", "b"]])
    ("'5.1' is a number like the cells below it", '--no-header')
    >>> header_doubt(("00501", "NY"), [["02139", "10001"], ["MA", "NY"]])
    ("'00501' is written like the cells below it", '--no-header')
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
        if (shape := _digit_shape(name)) and all(cell is None or _digit_shape(str(cell)) == shape for cell in below):
            return f"{name!r} is written like the cells below it", "--no-header"
    for name, below in columns:
        if name in below:
            return f"{name!r} is also a cell below it", "--header"
    return "", ""


def _digit_shape(text: str) -> str:
    """A text of digits and marks with 0 for every digit; empty where it has letters or no digit.

    >>> _digit_shape("2024-01-31"), _digit_shape("Q1"), _digit_shape("")
    ('0000-00-00', '', '')
    """
    if any(letter.isalpha() for letter in text):
        return ""
    shape = _DIGIT.sub("0", text)
    return shape if "0" in shape else ""


def header_words(doubt: str) -> str:
    """A doubt about the first line, with both remedies."""
    keep = "--header reads it as names all the same"
    return f"the first line was read as the names of the columns, but {doubt}; {keep}, --no-header reads it as a row"


def uneven_words(uneven: Sequence[tuple[int, int]], unit: str) -> str:
    """Lines that are not rows of a table, as (place, cells), with both remedies.

    >>> uneven_words([(3, 1)], "line")
    '1 line does not have as many cells as there are columns (line 3 has 1); add --uneven drop to skip them, or quote
     cells that contain the separator'
    """
    named = ", ".join(f"{unit} {place} has {count}" for place, count in uneven[:_UNEVEN_SHOWN])
    more = ", …" if len(uneven) > _UNEVEN_SHOWN else ""
    lines = f"1 {unit} does" if len(uneven) == 1 else f"{len(uneven):,} {unit}s do"
    remedy = "add --uneven drop to skip them, or quote cells that contain the separator"
    return f"{lines} not have as many cells as there are columns ({named}{more}); {remedy}"


def choose_columns(
    records: Records,
    sequence: Sequence[str],
    label: str | None,
    task: Task,
    like: Selection | None = None,
    drop: Collection[str] = (),
) -> tuple[tuple[str, ...], str | None]:
    """(sequence columns, label column); no label column where every next token is the label.

    `like` is an earlier reading, whose columns are taken again.
    """
    if like and like.sequence_columns:
        if label is None:
            label = _recorded_label(records, like)
        sequence = sequence or like.sequence_columns
        missing = [name for name in sequence if name not in (*records.columns, ALL)]
        if missing and tuple(sequence) == like.sequence_columns:
            raise DataError(
                f"{records.origin} has no column {missing[0]!r}, which the memory was built from; it has "
                f"{_listed(records)}: name the input with --sequence-column"
            )
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


def _recorded_label(records: Records, like: Selection) -> str | None:
    """The label column of an earlier reading. A table whose own names speak against it needs the user's word: a file
    must not decide which column its answers are compared with."""
    usual = usual_column(records, LABEL_NAMES, ())
    if like.label_column is not None and like.label_column not in records.columns:
        raise DataError(
            f"{records.origin} has no column {like.label_column!r}, the label that the memory was built from; it has "
            f"{_listed(records)}: name the label with --label-column"
        )
    if like.label_column in like.sequence_columns:
        raise DataError(
            f"the memory returns its own input, the column {like.label_column!r}; name the columns to compare with "
            "--sequence-column and --label-column"
        )
    if usual is not None and usual != like.label_column:
        made = "continues texts and stores no labels" if like.label_column is None else f"returns {like.label_column!r}"
        raise DataError(
            f"{records.origin} has labels in {usual!r}, but the memory {made}; name the columns to compare with "
            "--sequence-column and --label-column"
        )
    return like.label_column


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


def numbering_flag(
    names: Sequence[str], cells: Sequence[Sequence[Any]], labels: Sequence[Any], numbering: Sequence[str]
) -> str:
    """The remedy to suggest for columns that number the rows: `--drop`, or `--keep` where dropping would lose rows.

    Without them no column may be left, or rows may contradict each other that do not with them.

    >>> numbering_flag(("id", "code"), [[1, 2, 3], ["a", "a", "b"]], ["x", "y", "x"], ["id"])
    '--keep'
    >>> numbering_flag(("id", "code"), [[1, 2, 3], ["a", "b", "c"]], ["x", "y", "x"], ["id"])
    '--drop'
    >>> numbering_flag(("low", "high"), [[1, 2, 3], [2, 3, 4]], ["x", "y", "x"], ["low", "high"])
    '--keep'
    """
    rest = [below for name, below in zip(names, cells, strict=True) if name not in numbering]
    keeps = not rest or (_contradict(rest, labels) and not _contradict(cells, labels))
    return "--keep" if keeps else "--drop"


def _contradict(cells: Sequence[Sequence[Any]], labels: Sequence[Any]) -> bool:
    """Whether equal rows have different labels."""
    rows: dict[tuple[Any, ...], Any] = {}
    for *row, label in zip(*cells, labels, strict=True):
        # Lists in cells of JSON cannot be hashed.
        named = tuple(repr(cell) if isinstance(cell, list | dict) else cell for cell in row)
        if rows.setdefault(named, label) != label:
            return True
    return False


def row_number_words(name: str) -> str:
    """Why a column that numbers the rows is refused, with both remedies."""
    shown = shlex.quote(name)
    words = f"column {name!r} numbers the rows (no value repeats), so that a query would need the number of its row"
    return f"{words}; --drop {shown} skips it, --keep {shown} accepts it"


def unused(records: Records, used: Sequence[str | None]) -> str:
    """The unused columns, for people; empty where there are none."""
    rest = [column for column in records.columns if column not in used]
    more = ", …" if len(rest) > _FEW else ""
    return f"not used: {', '.join(map(repr, rest[:_FEW]))}{more}" if rest else ""


def refuse_labels(records: Records, column: str) -> None:
    """A DataError where a memory of next tokens gets a table of labels: a file must not decide that these are
    not compared, so the user names the column."""
    label = usual_column(records, LABEL_NAMES, (column,))
    if label is not None:
        raise DataError(
            f"{records.origin} has labels in {label!r}, but this memory continues texts and would not be compared with "
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
