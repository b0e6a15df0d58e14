"""How symbols, numbers and labels are written in JSON, and read back from files that nobody vouches for.

Integers beyond 2^53 are hexadecimal text, so every JSON parser keeps them whole. A value that is not of the written
form is a FileFormatError with the name of its field.

    >>> store_label(("a", 2**60)), load_label({"tuple": ["a", 7]}, "classes")
    ({'tuple': ['a', {'integer': '0x1000000000000000'}]}, ('a', 7))
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

from byheart.data.wording import quote
from byheart.errors import DataError, FileFormatError
from byheart.exact.number import Number, dyadic, parts

_SAFE = 1 << 53
_HEXADECIMAL = re.compile(r"-?0x[1-9a-f][0-9a-f]*\Z")
_LOWEST_EXPONENT = -(1 << 16)
_DEEPEST = 20


def damaged(field: str, value: object, wanted: str) -> FileFormatError:
    return FileFormatError(f"{field} is {quote(value)}, not {wanted}; the file is damaged or no byheart file")


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
    """An int of any size in its one written form."""
    if type(value) is int and -_SAFE < value < _SAFE:
        return value
    if isinstance(value, str) and _HEXADECIMAL.match(value) and abs(number := int(value, 16)) >= _SAFE:
        return number
    raise damaged(field, value, "an integer (beyond 2^53: hexadecimal text)")


def store_symbol(symbol: int | str) -> Any:
    if isinstance(symbol, str):
        return symbol
    written = store_integer(symbol)
    return {"integer": written} if isinstance(written, str) else written


def load_symbol(value: object, field: str) -> int | str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and set(value) == {"integer"}:
        value = value["integer"]
        if not isinstance(value, str):
            raise damaged(field, value, "hexadecimal text")
    return load_integer(value, field)


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


def store_label(label: Hashable) -> Any:
    """A label as JSON: None, bools, ints, floats, strs, bytes and tuples of these."""
    if label is None or type(label) in (bool, str):
        return label
    if type(label) is int:
        return store_symbol(label)
    if type(label) is float:
        return {"float": label.hex()}
    if type(label) is bytes:
        return {"bytes": label.hex()}
    if type(label) is tuple:
        return {"tuple": [store_label(part) for part in label]}
    raise DataError(
        f"the label {quote(label)} ({type(label).__name__}) cannot be written to a file; "
        "use None, bool, int, float, str, bytes or a tuple of these"
    )


def load_label(value: object, field: str, depth: int = 0) -> Hashable:
    """The label of `store_label`."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Mapping) and len(value) == 1 and depth < _DEEPEST:
        ((kind, content),) = value.items()
        if kind == "tuple" and isinstance(content, list):
            return tuple(load_label(part, field, depth + 1) for part in content)
        if kind in ("float", "bytes") and isinstance(content, str):
            try:
                return float.fromhex(content) if kind == "float" else bytes.fromhex(content)
            except (ValueError, OverflowError):
                raise damaged(field, content, f"a {kind} in hexadecimal") from None
    return load_symbol(value, field)
