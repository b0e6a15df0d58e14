"""CSV and TSV: which character separates the cells, whether there is a header, and rows of cells.

>>> separator("land;capital;a, b"), separator("land,capital")
(';', ',')

Plain text has a row on each line that is not blank.
"""

from __future__ import annotations

import csv
import re
from itertools import chain
from typing import Any

from byheart.data.read.records import LINE, TEXT, Cells, Records, Source, reader
from byheart.data.read.sources import LONGEST_LINE
from byheart.errors import DataError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}  # in the order of preference
_DECLARED = re.compile(r"sep=([,;\t|])\s*")  # what Excel writes before the header
_MADE_UP = re.compile(r"column [1-9][0-9]*")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@reader(".csv", ".tsv")
def delimited(source: Source) -> Records:
    """The rows of a CSV file; its separator is guessed from the first line unless its name determines it.

    Cells are texts, whatever they look like; an empty one is missing.
    """
    delimiter = "\t" if source.ending == ".tsv" else None
    path, header = source.name, source.form.header
    numbered, _ = source.lines()
    first, line = next(numbered)
    if (declared := _DECLARED.fullmatch(line)) is not None:
        delimiter = declared[1]
        first, line = next(numbered, (first + 1, ""))
        if not line:
            raise DataError(f"{path} is empty; it needs a row")
    chosen = delimiter or separator(line)
    reader = csv.reader(chain([line], (text for _, text in numbered)), delimiter=chosen, strict=True)
    start = _next_row(path, reader, first) or []
    columns = tuple(name.strip() for name in start) if header else tuple(map(made_up_name, range(1, len(start) + 1)))
    columns, renamed = _numbered_names(columns)
    uneven: list[tuple[int, int]] = []

    def select(names: tuple[str, ...]) -> Cells:
        places = [columns.index(name) for name in names]
        row: list[str] | None = [] if header else start
        while row is not None:
            number = reader.line_num + first - 1
            if row and len(row) != len(columns) and source.form.lenient:
                uneven.append((number, len(row)))
            elif row and len(row) != len(columns):
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                counts = f"{cells}, the {'header' if header else 'first line'} has {len(columns)}"
                quote = f"quote cells that hold {SEPARATORS[chosen]}"
                remedy = quote if len(row) > len(columns) else "complete the line or remove it"
                raise DataError(f"{path}, line {number} has {counts}; {remedy}")
            elif row:
                yield number, tuple(row[place] or None for place in places)
            row = _next_row(path, reader, first)

    remark = "; ".join(part for part in (_remark(columns, chosen, delimiter, header), renamed) if part)
    return Records(columns, select, path, "line", remark, header, uneven)


def separator(line: str) -> str:
    """The most frequent candidate in a line, outside of quotes; a comma where there is none."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=bare.count)  # the first among equals


def made_up_name(number: int) -> str:
    """The name of a column of a file without a header, counted from 1."""
    return f"column {number}"


def is_made_up(name: str) -> bool:
    return _MADE_UP.fullmatch(name) is not None


def _numbered_names(columns: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Names of which none occurs twice, and what was done about it.

    >>> _numbered_names(("size", "size", "kind"))
    (('size', 'size (2)', 'kind'), "several columns are named 'size'; they are called 'size', 'size (2)' here")
    """
    taken, found = set(columns), dict.fromkeys(columns, 0)
    names: list[str] = []
    for name in columns:
        found[name] += 1
        number = found[name]
        while number > 1 and f"{name} ({number})" in taken:
            number += 1
        names.append(name if found[name] == 1 else f"{name} ({number})")
        taken.add(names[-1])
    called = {name: [new for old, new in zip(columns, names, strict=True) if old == name] for name in columns}
    parts = [
        f"several columns are named {name!r}; they are called {', '.join(map(repr, new))} here"
        for name, new in called.items()
        if len(new) > 1
    ]
    return tuple(names), "; ".join(parts)


def _remark(columns: tuple[str, ...], chosen: str, given: str | None, header: bool) -> str:
    parts = []
    if given is None and chosen != ",":
        parts.append(f"cells are separated by {SEPARATORS[chosen]}")
    if header and any(map(_NUMBER.fullmatch, columns)):
        parts.append("the first line was taken as the header: if it is a row, give --no-header")
    return "; ".join(parts)


def _next_row(path: str, reader: Any, first: int) -> list[str] | None:
    old_limit = csv.field_size_limit(LONGEST_LINE)  # a cell may be a whole page; the limit belongs to everybody
    try:
        return next(reader, None)
    except csv.Error as error:
        where = f"{path}, line {reader.line_num + first - 1}"
        raise DataError(f"{where}: this is not CSV: {error}; check the quotes") from None
    finally:
        csv.field_size_limit(old_limit)


@reader(TEXT)
def text_lines(source: Source) -> Records:
    numbered, _ = source.lines()

    def select(names: tuple[str, ...]) -> Cells:
        for number, line in numbered:
            if line.strip():
                yield number, (line.rstrip("\r\n"),) * len(names)

    return Records((LINE,), select, source.name, "line")
