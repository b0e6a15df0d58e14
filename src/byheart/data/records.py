"""Tables of records from files: CSV, TSV, JSON Lines, Parquet, Arrow, NumPy, text, Hugging Face data sets.

Every format becomes the same thing: column names, and rows of cells with the place where they stand.
"""

from __future__ import annotations

import csv
import json
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.data.sources import LONGEST_LINE, STDIN, lines, open_bytes, suffixes
from byheart.data.wording import cut
from byheart.errors import DataError, MissingExtraError

HUGGING_FACE = "hf:"
LINE = "text"  # the one column of a plain text
_MISSING: Any = object()  # a field that an object does not have


@dataclass(frozen=True)
class Records:
    """Rows as tuples of cells in the order of `columns`; `places[i]` says where row i stands."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    places: list[str]

    def column(self, name: str) -> list[Any]:
        place = self.columns.index(name)
        cells = [row[place] for row in self.rows]
        if any(cell is _MISSING for cell in cells):
            row = next(i for i, cell in enumerate(cells) if cell is _MISSING)
            raise DataError(f"{self.places[row]} lacks the field {name!r}")
        return cells


def read_records(path: str) -> Records:
    """The records of a file by its ending; JSON Lines or CSV by its first character on standard input."""
    if path.startswith(HUGGING_FACE) or (path != STDIN and Path(path).is_dir()):
        return _hugging_face(path)
    ending, _ = suffixes(path)
    if ending in (".parquet", ".arrow", ".feather"):
        return _arrow(path, ending)
    if ending in (".npy", ".npz"):
        return _numpy(path, ending)
    if ending == ".txt":
        return _text(path)
    numbered = list(lines(path))
    if not any(line.strip() for _, line in numbered):
        raise DataError(f"{path} is empty; it needs a row")
    start = next(line for _, line in numbered if line.strip()).lstrip()[:1]
    if ending in (".jsonl", ".ndjson", ".json") or (ending not in (".csv", ".tsv") and start == "{"):
        return _json_array(path, numbered) if start == "[" else _json_lines(path, numbered)
    return _csv(path, numbered, "\t" if ending == ".tsv" else ",")


def _csv(path: str, numbered: list[tuple[int, str]], delimiter: str) -> Records:
    old_limit = csv.field_size_limit(LONGEST_LINE)  # a cell may be a whole page
    reader = csv.reader((line for _, line in numbered), delimiter=delimiter, strict=True)
    rows: list[tuple[Any, ...]] = []
    places: list[str] = []
    try:
        columns = tuple(name.strip() for name in next(row for row in reader if row))
        _check_columns(path, columns)
        for row in reader:
            if not row:
                continue
            place = f"{path}, line {reader.line_num}"
            if len(row) != len(columns):
                raise DataError(f"{place} has {len(row)} cells, the header has {len(columns)}; quote cells with commas")
            rows.append(tuple(row))
            places.append(place)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: this is no CSV: {error}; check the quotes") from None
    finally:
        csv.field_size_limit(old_limit)
    if not rows:
        raise DataError(f"{path} has a header and no rows")
    return Records(columns, rows, places)


def _check_columns(path: str, columns: tuple[str, ...]) -> None:
    twice = {name for name in columns if columns.count(name) > 1}
    if twice:
        raise DataError(f"{path} has two columns named {sorted(twice)[0]!r}; rename one")


def _json_lines(path: str, numbered: list[tuple[int, str]]) -> Records:
    records, places = [], []
    for number, line in numbered:
        if line.strip():
            places.append(f"{path}, line {number}")
            records.append(parse_json(line, places[-1]))
    return _from_objects(records, places)


def _json_array(path: str, numbered: list[tuple[int, str]]) -> Records:
    array = parse_json("".join(line for _, line in numbered), path)
    if not array:
        raise DataError(f"{path} is an empty list; it needs a row")
    return _from_objects(array, [f"{path}, entry {k}" for k in range(len(array))])


def _from_objects(records: Sequence[Any], places: list[str]) -> Records:
    columns: dict[str, None] = {}
    for record, place in zip(records, places, strict=True):
        if not isinstance(record, dict):
            raise DataError(f"{place} is {cut(json.dumps(record))}, not an object with named fields")
        columns.update(dict.fromkeys(record))
    names = tuple(columns)
    return Records(names, [tuple(record.get(name, _MISSING) for name in names) for record in records], places)


def parse_json(line: str, place: str) -> Any:
    """JSON without NaN, without duplicate keys and without unbounded nesting; a DataError names the place."""
    try:
        return json.loads(line, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise DataError(f"{place}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number; remove the row or replace the value")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{cut(text)} is too large a number; remove the row or replace the value")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))
        raise ValueError(f"the key {twice!r} stands twice in one object; keep one of them")
    return found


def _arrow(path: str, ending: str) -> Records:
    try:
        import pyarrow as pa
        from pyarrow import feather, parquet
    except ImportError:
        raise MissingExtraError(f"reading {ending} files", "data") from None
    try:
        with open_bytes(path) as file:
            table = parquet.read_table(file) if ending == ".parquet" else feather.read_table(file)
    except (pa.ArrowInvalid, pa.ArrowException) as error:
        raise DataError(f"{path} is no {ending} file: {error}") from None
    return from_columns({name: table[name].to_pylist() for name in table.column_names}, path)


def _numpy(path: str, ending: str) -> Records:
    import numpy as np

    try:
        with open_bytes(path) as file:
            loaded = np.load(file, allow_pickle=False)
            if ending == ".npz":
                return from_columns({name: list(loaded[name]) for name in loaded.files}, path)
            array = np.asarray(loaded)
    except (ValueError, EOFError, OSError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is no plain {ending} file: {error}") from None
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(f"{path} has shape {array.shape}; expected rows of tokens with the label in the last column")
    return from_columns({"sequence": [row[:-1] for row in array], "label": array[:, -1].tolist()}, path)


def _text(path: str) -> Records:
    rows = [(number, line.rstrip("\r\n")) for number, line in lines(path)]
    kept = [(number, line) for number, line in rows if line]
    if not kept:
        raise DataError(f"{path} is empty; it needs a line of text")
    return Records((LINE,), [(line,) for _, line in kept], [f"{path}, line {number}" for number, _ in kept])


def _hugging_face(path: str) -> Records:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("reading Hugging Face data sets", "data") from None
    name, _, split = path.removeprefix(HUGGING_FACE).partition(":")
    try:
        found = datasets.load_dataset(name, split=split or "train") if path.startswith(HUGGING_FACE) else None
        found = datasets.load_from_disk(name) if found is None else found
    except Exception as error:  # the library raises many kinds of errors for a missing data set
        raise DataError(f"the data set {name!r} cannot be loaded: {cut(str(error))}") from None
    if isinstance(found, datasets.DatasetDict):
        part = split or ("train" if "train" in found else next(iter(found)))
        if part not in found:
            raise DataError(f"{name} has no split {part!r}; it has {', '.join(found)}")
        found = found[part]
    return from_columns({column: list(found[column]) for column in found.column_names}, path)


def from_columns(columns: dict[str, list[Any]], origin: str) -> Records:
    """Records from named lists of one length."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise DataError(f"{origin} has columns of lengths {sorted(lengths)}; it needs rows, as many in every column")
    count = lengths.pop()
    names = tuple(columns)
    rows = list(zip(*columns.values(), strict=True))
    return Records(names, rows, [f"{origin}, row {k}" for k in range(count)])


def from_frame(frame: Any) -> Records | None:
    """Records of a pandas or polars frame; None for anything else."""
    module = type(frame).__module__.split(".")[0]
    if module == "pandas" and hasattr(frame, "columns"):
        return from_columns({str(name): frame[name].tolist() for name in frame.columns}, "the frame")
    if module == "polars" and hasattr(frame, "get_columns"):
        return from_columns({series.name: series.to_list() for series in frame.get_columns()}, "the frame")
    return None
