"""The common form of every format: column names, and rows of cells with the number of their place.

A format is one file in `formats/` that registers a reader; nothing else depends on it:

    >>> @reader(".shout")
    ... def shout(source: Source) -> Records:
    ...     return Records(("text",), lambda names: iter([(1, ("HO",))]), source.path)
    >>> list(read_records("x.shout").select(("text",)))
    [(1, ('HO',))]

JSON is read as data: numbers that are numbers, no key twice, and an error that names the place.

>>> parse_json('{"x": [1, 2.5]}', "line 1")
{'x': [1, 2.5]}
"""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from typing import Any

from byheart.data.read.sources import AS_USUAL, NO_LIMITS, Limits, TextForm, lines, shown_name, suffixes
from byheart.data.wording import cut
from byheart.errors import DataError
from byheart.files import repeated_key


def parse_json(line: str, place: str) -> Any:
    """JSON without NaN, without duplicate keys and without unbounded nesting; a DataError names the place."""
    try:
        return json.loads(line, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise DataError(f"{place}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{place}: {_words(error)}") from None


def _words(error: ValueError) -> str:
    if "integer string conversion" in str(error):
        return f"a number has more than {sys.get_int_max_str_digits()} digits; write it as text"
    return f"this is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON; write null where a value is missing")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{cut(text)} is too large a number; remove the row or replace the value")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = repeated_key(pairs)
    if twice is not None:
        raise ValueError(f"the key {twice!r} occurs twice in one object; keep one of them")
    return dict(pairs)


LINE = "text"  # the one column of a plain text
CSV, TEXT = ".csv", ".txt"
Numbered = Iterator[tuple[int, str]]
Cells = Iterator[tuple[int, tuple[Any, ...]]]


@dataclass(frozen=True)
class Records:
    """A table that can be read through once: `select(names)` gives (number, cells of these columns) row after row.

    A cell is what the format has: a text from a text format, a number where the format has numbers, None where it has
    nothing.
    """

    columns: tuple[str, ...]
    select: Callable[[tuple[str, ...]], Cells]
    origin: str
    unit: str = "row"  # what is counted: lines, rows, entries
    remark: str = ""  # what was guessed about the file, for people
    first_line: bool = False  # the names are the first line of the file, which may have been meant as a row
    uneven: list[tuple[int, int]] = field(default_factory=list)  # (place, cells) of what a lenient reader kept aside

    def name(self, number: int) -> str:
        return f"{self.unit} {number}"

    def place(self, number: int) -> str:
        return f"{self.origin}, {self.name(number)}"


@dataclass(frozen=True)
class Source:
    """The input of a reader. `ending` is that of the name without compression."""

    path: str
    ending: str = ""
    limits: Limits = NO_LIMITS
    form: TextForm = AS_USUAL

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return shown_name(self.path)

    def lines(self) -> tuple[Numbered, str]:
        """The numbered lines from the first one that is not blank, and that line's text."""
        return self._lines

    @cached_property
    def _lines(self) -> tuple[Numbered, str]:
        """Kept, because standard input can be opened once: who peeks at the first line leaves it for others."""
        numbered = lines(self.path, self.limits, self.form.encoding)
        for number, line in numbered:
            if line.strip():
                return chain([(number, line)], numbered), line.strip()
        raise DataError(f"{self.name} is empty; it needs a row")


Reader = Callable[[Source], Records]
_BY_ENDING: dict[str, Reader] = {}
_BY_NAME: list[tuple[Callable[[str], bool], Reader]] = []


def reader(*endings: str, claims: Callable[[str], bool] | None = None) -> Callable[[Reader], Reader]:
    """Register the decorated function as a reader of files.

    Args:
        *endings: The endings of their names.
        claims: Decides whether a name is the reader's whatever its ending.

    Returns:
        The decorator. The function takes a `Source` and returns `Records`.
    """

    def register(read: Reader) -> Reader:
        _BY_ENDING.update(dict.fromkeys(endings, read))
        if claims is not None:
            _BY_NAME.append((claims, read))
        return read

    return register


def read_records(path: str, limits: Limits = NO_LIMITS, form: TextForm = AS_USUAL, otherwise: str = CSV) -> Records:
    """The records of a file by its name; what no format claims is JSON Lines if it looks so, else `otherwise`."""
    load_formats()
    ending, _ = suffixes(path)
    source = Source(path, ending, limits, form)
    for claims, read in _BY_NAME:
        if claims(path):
            return read(source)
    if ending in _BY_ENDING:
        return _BY_ENDING[ending](source)
    return _BY_ENDING[".jsonl" if _looks_like_json(source.lines()[1], otherwise) else otherwise](source)


def _looks_like_json(line: str, otherwise: str) -> bool:
    """A table never begins with a brace, but a line of plain text may."""
    if not line.startswith("{") or otherwise != TEXT:
        return line.startswith("{")
    try:
        return isinstance(parse_json(line, ""), dict)
    except DataError:
        return False


@cache
def load_formats() -> None:
    """Import every file of `formats/`, which registers its readers."""
    from byheart.data.read import formats

    for module in pkgutil.iter_modules(formats.__path__):
        importlib.import_module(f"{formats.__name__}.{module.name}")


def distinct_names(names: Sequence[str], origin: str) -> list[str]:
    """The names, or a DataError that names the one that occurs twice."""
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{origin} has two columns named {twice!r}; rename one")
    return list(names)


def from_columns(columns: dict[str, Sequence[Any]], origin: str) -> Records:
    """Records from named lists of one length."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise DataError(f"{origin} has columns of lengths {sorted(lengths)}; it needs rows, as many in every column")

    def select(names: tuple[str, ...]) -> Cells:
        yield from enumerate(zip(*(columns[name] for name in names), strict=True))

    return Records(tuple(columns), select, origin)
