"""Values: what a label or a token may be, when two of them are the same, and how they are written in a file.

A value is a str, an int, a float, a bool, bytes, a tuple of values, or None, which means "missing". Python's `==`
and its dictionaries take 1, 1.0 and True for one value and 0.0 for -0.0; byheart never does: type and value both count,
so all code that compares, numbers or looks up values goes through this module.

    >>> same(1, 1.0), same(0.0, -0.0), same("1", 1), same((1, "a"), (1, "a"))
    (False, False, False, True)
    >>> distinct([1, True, "1", 1.0, True])
    ((True, 1, 1.0, '1'), [1, 0, 3, 2, 0])

Files are read back as untrusted. Integers beyond 2^53 are hexadecimal text, so every JSON parser keeps them whole. A
value that is not of the written form is a FileFormatError with the name of its field.

    >>> store_integer(2**60), store_number(dyadic(3, -2))
    ('0x1000000000000000', [3, -2])

`UNKNOWN` is the marker that `predict` returns where a memory has no answer.

>>> UNKNOWN, bool(UNKNOWN)
(unknown, False)
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from byheart.data.wording import quote, quote_fully
from byheart.errors import DataError, FileFormatError
from byheart.exact.number import Number, dyadic, parts

AUTO = "auto"  # as the source has it
TYPES = (AUTO, "str", "int", "float", "bool")  # what a user may ask for
PLAIN = (type(None), bool, int, float, str, bytes, tuple)  # in the order in which classes and symbols are sorted
_RANK = {kind: rank for rank, kind in enumerate(PLAIN)}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONGEST = 4000  # digits: Python refuses to convert longer decimal numbers
# Nested tuples.
_DEEPEST = 20
_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


def plain(value: Any) -> Any:
    """A NumPy scalar as the Python value that it holds; anything else, and what Python has no equal for, as it is.

    >>> plain(np.float32(0.5)), plain(np.bool_(True)), plain(np.str_("x"))
    (0.5, True, 'x')
    """
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":  # the item of a datetime64[ns] is a bare int
        return value.item()
    return value


def listed(array: np.ndarray[Any, Any]) -> list[Any]:
    """The entries of an array as Python values, nested as the array is."""
    return list(array) if array.dtype.kind in "mM" else list(array.tolist())


def is_missing(value: Any) -> bool:
    """None, NaN, and what pandas has for them.

    >>> [is_missing(value) for value in (None, float("nan"), "", 0)]
    [True, True, False, False]
    """
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, np.generic) and bool(value != value))


def key(value: Any) -> Hashable:
    """What two values have in common if and only if they are the same: type and value, float by float bit for bit."""
    kind = type(value)
    if kind is str or kind is int:  # most values; no other key is a bare str or int
        return value  # type: ignore[no-any-return]
    if kind is float:
        return kind, value.hex()
    if kind is tuple:
        return kind, tuple(map(key, value))
    return kind, value


def same(one: Any, two: Any) -> bool:
    """Whether two values, or two lists of values, are the same: type by type and bit by bit.

    >>> same([1, "a"], [1, "a"]), same([1], [True]), same([1], (1,))
    (True, False, False)
    """
    if isinstance(one, list) or isinstance(two, list):
        if not (isinstance(one, list) and isinstance(two, list)):
            return False
        return len(one) == len(two) and all(map(same, one, two))
    return bool(key(one) == key(two))


def order(value: Any) -> tuple[Any, ...]:
    """Sorts values of any types: by type, in the order None, bool, int, float, str, bytes, tuple; then by value."""
    kind = type(value)
    rank = _RANK.get(kind, len(PLAIN))
    if kind is float:
        return rank, value, math.copysign(1, value)
    if kind is tuple:
        return rank, tuple(map(order, value))
    if value is None:
        return (rank,)
    return (rank, value) if kind in _RANK else (rank, kind.__module__, kind.__qualname__, _text(value))


def distinct(values: Sequence[Any]) -> tuple[tuple[Any, ...], list[int]]:
    """The distinct values in their order, and for each given value the number of its equal.

    Raises a TypeError for a value that cannot be hashed, and a DataError for two that cannot be distinguished reliably.
    """
    if set(map(type, values)) <= {int, str}:
        names_in_order, places = numbered(set(values))
        return names_in_order, list(map(places.__getitem__, values))
    names = list(map(key, values))
    first = dict(zip(reversed(names), reversed(values), strict=True))
    _refuse_twins(names, values, first)
    ordered = sorted(first.items(), key=lambda item: order(item[1]))
    number = {name: place for place, (name, _) in enumerate(ordered)}
    return tuple(value for _, value in ordered), list(map(number.__getitem__, names))


def numbered(values: set[Any]) -> tuple[tuple[Any, ...], dict[Any, int]]:
    """Different texts and whole numbers in their order, and the number of each.

    >>> numbered({"b", 7, "a"})
    ((7, 'a', 'b'), {7: 0, 'a': 1, 'b': 2})
    """
    number = {value: place for place, value in enumerate(sorted(values, key=order))}
    return tuple(number), number


def _refuse_twins(names: Sequence[Hashable], values: Sequence[Any], first: Mapping[Hashable, Any]) -> None:
    """Values of foreign types that are equal and yet written differently, such as Decimal("1") and Decimal("1.0")."""
    for name, value in zip(names, values, strict=True):
        if type(value) not in _RANK and _text(first[name]) != _text(value):
            raise DataError(
                f"{quote(first[name])} and {quote(value)} ({type(value).__name__}) are equal but written differently; "
                "write them alike, or as texts"
            )


def _text(value: Any) -> str:
    """A foreign value in words that do not depend on the process: sets have no order of their own."""
    return repr(sorted(map(quote_fully, value))) if isinstance(value, set | frozenset) else quote_fully(value)


def to_json(value: Any, depth: int = 0) -> Any:
    """A value in its one JSON form; floats and long integers in hexadecimal, so that every parser keeps them whole.

    >>> to_json((True, 2**60, 0.5))
    {'tuple': [True, {'integer': '0x1000000000000000'}, {'float': '0x1.0000000000000p-1'}]}
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        written = store_integer(value)
        return {"integer": written} if isinstance(written, str) else written
    if kind is float and value == value:
        return {"float": value.hex()}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is tuple and depth < _DEEPEST:
        return {"tuple": [to_json(part, depth + 1) for part in value]}
    if kind is tuple:
        raise DataError(f"a tuple is nested more than {_DEEPEST} deep and cannot be written to a file; flatten it")
    raise DataError(
        f"{quote(value)} ({kind.__name__}) cannot be written to a file; "
        "use None, bool, int, float, str, bytes or a tuple of these"
    )


def from_json(value: object, field: str, depth: int = 0) -> Any:
    """The value of `to_json`; a FileFormatError names the field whose text is not in that one form."""
    if value is None or isinstance(value, bool | str):
        return value
    if type(value) is int:
        return load_integer(value, field)
    if isinstance(value, Mapping) and len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "tuple" and isinstance(content, list) and depth < _DEEPEST:
            return tuple(from_json(part, field, depth + 1) for part in content)
        if tag == "integer" and isinstance(content, str):
            return load_integer(content, field)
        if tag in _READERS and isinstance(content, str):
            try:
                found = _READERS[tag](content)
                if found == found and to_json(found) == value:
                    return found
            except (ValueError, OverflowError):
                pass
            raise damaged(field, content, f"a {tag} in hexadecimal, in its canonical form")
    raise damaged(field, value, "a text, an integer, true, false, null, or one of integer, float, bytes, tuple")


_READERS: dict[str, Callable[[str], Any]] = {"float": float.fromhex, "bytes": bytes.fromhex}


def convert(value: Any, kind: str) -> Any:
    """The value as the user's type, or a DataError; None stays None.

    >>> convert("00501", "int"), convert(7, "str"), convert("2.50", "float"), convert(3.0, "int")
    (501, '7', 2.5, 3)
    """
    if kind == AUTO or value is None:
        return value
    return _CONVERTERS[kind](value)


def _no(value: Any, what: str) -> DataError:
    return DataError(f"{quote(value)} ({type(value).__name__}) is not {what}")


def _to_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | list | tuple | dict):
        raise _no(value, "a text")
    return repr(value) if isinstance(value, float) else str(value)


def _to_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value) and len(value) < _LONGEST:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise _no(value, "a whole number")


def _to_float(value: Any) -> float:
    try:
        if isinstance(value, float):
            return value
        if isinstance(value, str) and _REAL.fullmatch(value) and math.isfinite(number := float(value)):
            return number
        if type(value) is int and int(number := float(value)) == value:
            return number
    except OverflowError:
        pass
    raise _no(value, "a number that a float holds")


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    found = _TRUTHS.get(str(value).lower()) if isinstance(value, str | int) else None
    if found is None:
        raise _no(value, "true or false")
    return found


_CONVERTERS: dict[str, Callable[[Any], Any]] = {"str": _to_str, "int": _to_int, "float": _to_float, "bool": _to_bool}


# Integers up to this are JSON numbers that every reader holds.
_SAFE = 1 << 53
_HEXADECIMAL = re.compile(r"-?0x[1-9a-f][0-9a-f]*\Z")
# Of stored numbers: far below any float.
_LOWEST_EXPONENT = -(1 << 16)


def damaged(field: str, value: object, wanted: str) -> FileFormatError:
    return FileFormatError(f"{field} is {quote(value)}, not {wanted}; the file is damaged or not a byheart file")


def load_int(value: object, field: str, low: int, high: int) -> int:
    """An int between `low` and `high`."""
    if type(value) is not int or not low <= value <= high:
        raise damaged(field, value, f"an integer from {low} to {high}")
    return value


def load_bool(value: object, field: str) -> bool:
    if not isinstance(value, bool):
        raise damaged(field, value, "true or false")
    return value


def store_integer(value: int) -> int | str:
    return value if -_SAFE < value < _SAFE else hex(value)


def load_integer(value: object, field: str) -> int:
    """An int of any size in its canonical form."""
    if type(value) is int and -_SAFE < value < _SAFE:
        return value
    if isinstance(value, str) and _HEXADECIMAL.match(value) and abs(number := int(value, 16)) >= _SAFE:
        return number
    raise damaged(field, value, "an integer (beyond 2^53: hexadecimal text)")


def store_number(number: Number) -> list[int | str]:
    mantissa, exponent = parts(number)
    return [store_integer(mantissa), exponent]


def load_number(value: object, field: str) -> Number:
    if not isinstance(value, list) or len(value) != 2:
        raise damaged(field, value, "a pair [mantissa, exponent]")
    mantissa = load_integer(value[0], field)
    number = dyadic(mantissa, load_int(value[1], field, _LOWEST_EXPONENT, 0))
    if store_number(number) != value:
        raise damaged(field, value, "a pair [mantissa, exponent] in lowest terms")
    return number


class Unknown:
    """The type of `UNKNOWN`; there is one instance, also after pickling.

    >>> UNKNOWN, bool(UNKNOWN), UNKNOWN == "unknown"
    (unknown, False, False)
    """

    _instance: Unknown | None = None

    def __new__(cls) -> Unknown:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "unknown"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> tuple[type[Unknown], tuple[()]]:
        return Unknown, ()


UNKNOWN = Unknown()


def days_as_texts(cells: Sequence[Any]) -> list[Any]:
    """A column of dates as pandas writes it, days without times; other columns as they are.

    >>> days_as_texts([datetime.datetime(2024, 1, 31), None]), days_as_texts([datetime.datetime(2024, 1, 31, 6)])
    (['2024-01-31', None], ['2024-01-31 06:00:00'])
    """
    present = [cell for cell in cells if not is_missing(cell)]
    if not present or not all(isinstance(cell, datetime.date) for cell in present):
        return list(cells)
    midnight = datetime.time()
    times = [cell for cell in present if isinstance(cell, datetime.datetime)]
    if len(times) == len(present) and all(cell.time() == midnight and cell.tzinfo is None for cell in times):
        return [None if is_missing(cell) else cell.date().isoformat() for cell in cells]
    return [None if is_missing(cell) else str(cell) for cell in cells]
