"""Tables of records from files: JSON Lines and text here, row by row; others in `delimited` and `columnar`.

Every format becomes the same thing: column names, and rows of cells with the number of their place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from byheart.data.read.sources import NO_LIMITS, STDIN, Limits, lines, shown_name, suffixes
from byheart.data.wording import cut
from byheart.errors import DataError

LINE = "text"  # the one column of a plain text
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
_NAMING = 100  # objects whose fields are columns
Numbered = Iterator[tuple[int, str]]
Cells = Iterator[tuple[int, tuple[Any, ...]]]


@dataclass(frozen=True)
class Records:
    """A table that can be read through once: `select(names)` gives (number, cells of these columns) row after row."""

    columns: tuple[str, ...]
    select: Callable[[tuple[str, ...]], Cells]
    origin: str
    unit: str = "row"  # what is counted: lines, rows, entries
    remark: str = ""  # what was guessed about the file, for people

    def place(self, number: int) -> str:
        return f"{self.origin}, {self.unit} {number}"


def read_records(path: str, limits: Limits = NO_LIMITS, header: bool = True) -> Records:
    """The records of a file by its ending; JSON Lines or CSV by its first character on standard input.

    Without `header` the first line of a CSV file is a row, and columns have numbers for names.
    """
    from byheart.data.read import arrow, columnar, delimited, hugging_face

    ending, _ = suffixes(path)
    if path.startswith(hugging_face.MARK) or (path != STDIN and _is_folder(path)):
        return hugging_face.hugging_face(path)
    if ending in arrow.ENDINGS:
        return arrow.arrow(path, ending, limits)
    if ending in columnar.NUMPY_ENDINGS:
        return columnar.numpy_arrays(path, ending, limits)
    source, path = path, shown_name(path)
    numbered, start = _from_first_text(path, lines(source, limits))
    if ending == ".txt":
        return _text(path, numbered)
    if ending in JSON_ENDINGS or (ending not in (".csv", ".tsv") and start == "{"):
        return _json_array(path, numbered) if start == "[" else _json_lines(path, numbered)
    return delimited.cells(path, numbered, "\t" if ending == ".tsv" else None, header)


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):  # names that no file can have; opening them says why
        return False


def _from_first_text(path: str, numbered: Numbered) -> tuple[Numbered, str]:
    """The lines from the first one that is not blank, and its first character."""
    for number, line in numbered:
        if line.strip():
            return chain([(number, line)], numbered), line.lstrip()[:1]
    raise DataError(f"{path} is empty; it needs a row")


def _json_lines(path: str, numbered: Numbered) -> Records:
    return objects(path, "line", ((n, parse_json(line, f"{path}, line {n}")) for n, line in numbered if line.strip()))


def _json_array(path: str, numbered: Numbered) -> Records:
    array = parse_json("".join(line for _, line in numbered), path)
    if not isinstance(array, list) or not array:
        raise DataError(f"{path} is an empty list; it needs a row")
    return objects(path, "entry", enumerate(array))


def objects(path: str, unit: str, records: Iterator[tuple[int, Any]], remark: str = "") -> Records:
    """Rows that are JSON objects; the first few of them name the columns."""
    checked = _only_objects(path, unit, records)
    first = list(islice(checked, _NAMING))
    columns = tuple(dict.fromkeys(name for _, record in first for name in record))

    def select(names: tuple[str, ...]) -> Cells:
        for number, record in chain(first, checked):
            missing = [name for name in names if name not in record]
            if missing:
                raise DataError(f"{path}, {unit} {number} lacks the field {missing[0]!r}")
            yield number, tuple(record[name] for name in names)

    return Records(columns, select, path, unit, remark)


def _only_objects(path: str, unit: str, records: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, record in records:
        if not isinstance(record, dict):
            raise DataError(f"{path}, {unit} {number} is {_shown(record)}, not an object with named fields")
        yield number, record


def _shown(value: Any) -> str:
    try:
        return cut(json.dumps(value))
    except ValueError:  # an integer of too many digits
        return f"a {type(value).__name__}"


def parse_json(line: str, place: str) -> Any:
    """JSON without NaN, without duplicate keys and without unbounded nesting; a DataError names the place."""
    try:
        return json.loads(line, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise DataError(f"{place}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{place}: {_json_words(error)}") from None


def _json_words(error: ValueError) -> str:
    if "integer string conversion" in str(error):
        return "a number has more than 4300 digits; write it as text"
    return f"this is no JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number; remove the row or replace the value")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{cut(text)} is too large a number; remove the row or replace the value")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice in one object; keep one of them")
    return found


def _text(path: str, numbered: Numbered) -> Records:
    def select(names: tuple[str, ...]) -> Cells:
        for number, line in numbered:
            if line.strip("\r\n"):
                yield number, (line.rstrip("\r\n"),) * len(names)

    return Records((LINE,), select, path, "line")
