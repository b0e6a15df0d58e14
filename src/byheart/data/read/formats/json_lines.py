"""JSON Lines, and JSON lists: rows are objects with named fields, or texts and lists of tokens without a name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from byheart.data.read.records import LINE, Cells, Numbered, Records, Source, parse_json, reader
from byheart.data.wording import cut
from byheart.errors import DataError

_NAMING = 100  # objects whose fields are columns
Values = Iterator[tuple[int, Any]]


@reader(".jsonl", ".ndjson")
def json_lines(source: Source) -> Records:
    """A value on each line; a file that holds one list of objects is read as its rows."""
    numbered, start = source.lines()
    if start.startswith("["):
        first = next(numbered)
        numbered = chain([first], numbered)
        if not _is_tokens(first[1]):
            return _one_list(source.name, numbered)
    place = f"{source.name}, line"
    return from_values(
        source.name, "line", ((n, parse_json(text, f"{place} {n}")) for n, text in numbered if text.strip())
    )


@reader(".json")
def json_file(source: Source) -> Records:
    numbered, start = source.lines()
    return _one_list(source.name, numbered) if start.startswith("[") else json_lines(source)


def _is_tokens(line: str) -> bool:
    """Whether a line alone is a list of tokens, not the beginning of a list of rows."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return bool(found) and not any(isinstance(value, dict) for value in found)


def _one_list(name: str, numbered: Numbered) -> Records:
    array = parse_json("".join(line for _, line in numbered), name)
    if not isinstance(array, list) or not array:
        raise DataError(f"{name} is an empty list; it needs a row")
    return from_values(name, "entry", enumerate(array))


def from_values(name: str, unit: str, values: Values, remark: str = "") -> Records:
    """Rows that are objects, of which the first few name the columns; or texts and lists, in one column."""
    first = list(islice(values, _NAMING))
    if first and all(isinstance(value, str | list) for _, value in first):
        return _unnamed(name, unit, chain(first, values), remark)
    whole = _only_objects(name, unit, chain(first, values))
    named = list(islice(whole, len(first)))
    columns = tuple(dict.fromkeys(field for _, value in named for field in value))

    def select(names: tuple[str, ...]) -> Cells:
        for number, value in chain(named, whole):
            yield number, tuple(value.get(field) for field in names)

    return Records(columns, select, name, unit, remark)


def _unnamed(name: str, unit: str, values: Values, remark: str) -> Records:
    def select(names: tuple[str, ...]) -> Cells:
        for number, value in values:
            if not isinstance(value, str | list):
                raise DataError(
                    f"{name}, {unit} {number} is {_shown(value)}, but other rows are texts or lists of tokens"
                )
            yield number, (value,) * len(names)

    return Records((LINE,), select, name, unit, remark)


def _only_objects(name: str, unit: str, values: Values) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, value in values:
        if not isinstance(value, dict):
            raise DataError(f"{name}, {unit} {number} is {_shown(value)}, not an object with named fields")
        yield number, value


def _shown(value: Any) -> str:
    try:
        return cut(json.dumps(value))
    except ValueError:  # an integer of too many digits
        return f"a {type(value).__name__}"
