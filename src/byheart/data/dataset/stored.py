"""How numbers are written in JSON, and read back from untrusted files; `data.values` has the rest.

Integers beyond 2^53 are hexadecimal text, so every JSON parser keeps them whole. A value that is not of the written
form is a FileFormatError with the name of its field.

    >>> store_integer(2**60), store_number(dyadic(3, -2))
    ('0x1000000000000000', [3, -2])
"""

from __future__ import annotations

import re

from byheart.data.wording import quote
from byheart.errors import FileFormatError
from byheart.exact.number import Number, dyadic, parts

_SAFE = 1 << 53
_HEXADECIMAL = re.compile(r"-?0x[1-9a-f][0-9a-f]*\Z")
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
    """An int of any size in its one written form."""
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
