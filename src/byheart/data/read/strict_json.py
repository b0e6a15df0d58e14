"""JSON as data: numbers that are numbers, no key twice, and an error that names the place.

>>> parse_json('{"x": [1, 2.5]}', "line 1")
{'x': [1, 2.5]}
"""

from __future__ import annotations

import json
import math
from typing import Any

from byheart.data.wording import cut
from byheart.errors import DataError


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
        return "a number has more than 4300 digits; write it as text"
    return f"this is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON; write null where a value is missing")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{cut(text)} is too large a number; remove the row or replace the value")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} occurs twice in one object; keep one of them")
    return found
