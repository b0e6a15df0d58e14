"""Documents from files, or contexts with given distributions.

JSON Lines, a JSON list, CSV, TSV, Parquet and the other tables that byheart reads, each with a text column; anything
else is plain text with one document on each line. All of them also as .gz or .zst, and from standard input. A document
is a text, or a list of tokens that is taken as it is. Rows {"context": …, "next": {token: weight}} give distributions.

    >>> guess_column({"idx": 3, "text": "Once upon a time"})
    'text'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from byheart.data.dataset.documents import Document
from byheart.data.read import arrow, hugging_face
from byheart.data.read.columnar import NUMPY_ENDINGS
from byheart.data.read.given import GivenDistributions
from byheart.data.read.records import JSON_ENDINGS, parse_json, read_records
from byheart.data.read.sources import STDIN, lines, suffixes, text
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError

TEXT_COLUMNS = (
    "text", "story", "document", "doc", "content", "body", "sentence", "review", "premise", "tokens", "sequence",
    "input",
)  # fmt: skip
CONTEXT, NEXT = "context", "next"  # the columns of given distributions
TABLES = (".csv", ".tsv", *arrow.ENDINGS, *NUMPY_ENDINGS)

Rows = Iterator[tuple[str, Any]]  # (place, an object, a text or a list of tokens)


def read_documents(
    path: str | Path, *, column: str | None = None, where: Mapping[str, str] | None = None, limit: int | None = None
) -> list[Document]:
    """The documents of a file in order; `where` keeps rows with the given values, `limit` the first so many."""
    found = read_source(path, column=column, where=where, limit=limit)
    if isinstance(found, GivenDistributions):
        raise DataError(f"{path} gives contexts and distributions, not documents; name a text column with --column")
    return found


def read_source(
    path: str | Path, *, column: str | None = None, where: Mapping[str, str] | None = None, limit: int | None = None
) -> list[Document] | GivenDistributions:
    """`read_documents`, or the distributions that a file gives in columns `context` and `next`."""
    if limit is not None and limit < 1:
        raise OptionError(f"a limit of {limit} documents leaves none; give at least 1")
    rows = (
        (place, row)
        for place, row in _rows(str(path))
        if not where or (isinstance(row, dict) and all(str(row.get(k)) == v for k, v in where.items()))
    )
    kept = list(islice(rows, limit))
    if not kept:
        chosen = f" with {', '.join(f'{k}={v}' for k, v in where.items())}" if where else ""
        raise DataError(f"{path} has no documents{chosen}")
    if column is None and all(_is_given(row) for _, row in kept):
        return GivenDistributions(
            [_document(place, row, CONTEXT) for place, row in kept],
            [_weights(place, row[NEXT]) for place, row in kept],
        )
    if column is None and isinstance(kept[0][1], dict):
        column = guess_column(kept[0][1])
    return [_document(place, row, column) for place, row in kept]


def guess_column(row: Mapping[str, Any]) -> str:
    """The text column of a row: a well-known name, else the only column that holds text."""
    lower = {name.lower(): name for name in reversed(list(row))}
    for name in TEXT_COLUMNS:
        if name in lower and isinstance(row[lower[name]], str | list):
            return lower[name]
    strings = [name for name, value in row.items() if isinstance(value, str)]
    if len(strings) == 1:
        return strings[0]
    raise DataError(f"which column is the text? The row has {', '.join(row) or 'none'}; name it with --column")


def _rows(path: str) -> Rows:
    ending, _ = suffixes(path)
    if path.startswith(hugging_face.MARK) or ending in TABLES or (path != STDIN and Path(path).is_dir()):
        return _table(path)
    if ending in JSON_ENDINGS:
        start = next((line.lstrip()[:1] for _, line in lines(path) if line.strip()), "") if ending == ".json" else ""
        return _json_list(path) if start == "[" else _json_lines(path, lines(path))
    return _lines_by_look(path, ending)


def _table(path: str) -> Rows:
    records = read_records(path)
    for number, cells in records.select(records.columns):
        yield records.place(number), dict(zip(records.columns, cells, strict=True))


def _json_list(path: str) -> Rows:
    array = parse_json(text(path), path)
    if not isinstance(array, list):
        raise DataError(f"{path} holds a JSON {type(array).__name__}; give a list of texts or of objects")
    for number, value in enumerate(array):
        yield f"{path}, entry {number}", value


def _json_lines(path: str, numbered: Iterator[tuple[int, str]]) -> Rows:
    for number, line in numbered:
        if line.strip():
            place = f"{path}, line {number}"
            yield place, parse_json(line, place)


def _lines_by_look(path: str, ending: str) -> Rows:
    """Plain text; without an ending that says so, JSON Lines if the first line is a JSON object."""
    numbered = ((number, line) for number, line in lines(path) if line.strip())
    first = next(numbered, None)
    if first is None:
        return
    whole = chain([first], numbered)
    if ending != ".txt" and _is_object(first[1]):
        yield from _json_lines(path, whole)
        return
    for number, line in whole:
        yield f"{path}, line {number}", line.rstrip("\r\n")


def _is_object(line: str) -> bool:
    try:
        return line.lstrip().startswith("{") and isinstance(parse_json(line, ""), dict)
    except DataError:
        return False


def _document(place: str, row: Any, column: str | None) -> Document:
    value = row
    if isinstance(row, dict):
        value = row.get(column) if column else None
    elif column is not None:
        raise DataError(f"{place} has no columns: it is one document; leave --column and --where out")
    if isinstance(value, list) and all(type(token) in (str, int) for token in value):
        return tuple(str(token) for token in value)
    if not isinstance(value, str):
        named = f" in {column!r}" if column else ""
        raise DataError(f"{place} has no text{named} but {quote(value)}; name a column with --column")
    return value


def _is_given(row: Any) -> bool:
    return isinstance(row, dict) and CONTEXT in row and isinstance(row.get(NEXT), dict)


def _weights(place: str, weights: dict[str, Any]) -> dict[str, float]:
    for token, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < 1e300:
            raise DataError(f"{place}: {quote(token)} has the weight {quote(weight)}; give numbers of at least 0")
    return {token: float(weight) for token, weight in weights.items()}
