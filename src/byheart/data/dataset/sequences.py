"""The user's sequences, read once: which distinct tokens there are, and which of them stands where.

Tokens are symbols (ints and strs) or real vectors (a lone float is a vector of dimension 1). Every other kind, and
every value that is no number, is refused with its row and position.

    >>> tokens = read_tokens(["ab", "b"])
    >>> tokens.symbols, tokens.ids.tolist(), tokens.lengths.tolist()
    (('a', 'b'), [0, 1, 1], [2, 1])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from byheart.data.dataset.distinct import Index
from byheart.data.dataset.vectors import Floats, distinct_floats, distinct_numbers
from byheart.data.wording import quote
from byheart.errors import DataError, InexactError
from byheart.exact.number import Dyadic, Number, from_float, from_fraction
from byheart.exact.values import Values

Symbol = int | str
_EXACT_IN_FLOAT = 1 << 53
_VECTOR_TYPES = (list, tuple, np.ndarray)
_NUMBER_TYPES = (int, float, Dyadic, Fraction)


@dataclass(frozen=True, eq=False)
class Tokens:
    """All rows one after the other: token t is number `ids[t]` of the sorted distinct symbols or vectors."""

    lengths: Index  # (N,)
    ids: Index  # (T,), T = lengths.sum()
    symbols: tuple[Symbol, ...] | None
    vectors: Values | None  # distinct, in lexicographic order

    def place(self, token: int) -> tuple[int, int]:
        """(row, position) of token number `token`."""
        return place(self.lengths, token)


def place(lengths: Index, token: int) -> tuple[int, int]:
    ends = np.cumsum(lengths)
    row = int(np.searchsorted(ends, token, side="right"))
    return row, token - int(ends[row] - lengths[row])


def read_tokens(sequences: Iterable[Any], *, as_vectors: bool = False, unordered: bool = False) -> Tokens:
    """Reads lists, tuples, strings and arrays of tokens.

    `as_vectors` takes lone ints as vectors of dimension 1 too; `unordered` also takes Python sets as rows.
    """
    if isinstance(sequences, np.ndarray) and sequences.ndim in (2, 3) and sequences.dtype.kind in "iuf":
        tokens = _from_array(sequences, as_vectors)
        if tokens is not None:
            return tokens
    rows = _rows(sequences, unordered)
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return _from_flat(lengths, list(chain.from_iterable(rows)), as_vectors)


def symbol_key(symbol: Symbol) -> tuple[bool, Symbol]:
    """Sorts ints before strs."""
    return isinstance(symbol, str), symbol


def _from_array(array: np.ndarray[Any, Any], as_vectors: bool) -> Tokens | None:
    """The fast way in for numeric arrays; None where 64 bits do not hold them exactly."""
    lengths = np.full(array.shape[0], array.shape[1], dtype=np.int64)
    if array.ndim == 2 and array.dtype.kind in "iu" and not as_vectors:
        if array.size and int(array.max()) >= 1 << 63:
            return None
        return _from_ints(lengths, array.astype(np.int64, copy=False).reshape(-1))
    small = array.dtype.itemsize <= 8
    if array.dtype.kind in "iu" and array.size:
        small = max(abs(int(array.min())), abs(int(array.max()))) <= _EXACT_IN_FLOAT
    if not small or array.shape[-1] == 0:
        return None
    width = array.shape[2] if array.ndim == 3 else 1
    return _from_floats(lengths, array.astype(np.float64).reshape(-1, width))


def _rows(sequences: Iterable[Any], unordered: bool) -> list[Any]:
    if isinstance(sequences, (str, bytes)):
        raise DataError(f"sequences is the single string {quote(sequences)}; put it into a list: [{quote(sequences)}]")
    rows = as_list(sequences)
    if set(map(type, rows)) <= {list, tuple, str}:
        return rows
    return [_row(row, number, unordered) for number, row in enumerate(rows)]


def as_list(sequences: Iterable[Any]) -> list[Any]:
    """All rows of anything that can be gone through."""
    try:
        return list(sequences)
    except TypeError:
        raise DataError(
            f"sequences is {quote(sequences)} ({type(sequences).__name__}); give a list of sequences of tokens"
        ) from None


def _row(row: Any, number: int, unordered: bool) -> Sequence[Any]:
    if isinstance(row, (list, tuple, str, bytes)):
        return row
    if isinstance(row, (set, frozenset)) and unordered:
        return sorted(row, key=lambda token: (str(type(token)), token))
    if isinstance(row, np.ndarray) and row.ndim:
        return list(row.tolist())
    if isinstance(row, (set, frozenset, dict)) or not hasattr(row, "__iter__"):
        raise DataError(
            f"row {number} is {quote(row)} ({type(row).__name__}), not a sequence of tokens; "
            "give each row as a list, a string or an array"
        )
    return list(row)


def _from_flat(lengths: Index, flat: list[Any], as_vectors: bool) -> Tokens:
    kinds = set(map(type, flat))
    if not kinds <= {int, str, float, list, tuple}:
        flat = [_plain(token, number, lengths) for number, token in enumerate(flat)]
        kinds = set(map(type, flat))
    if kinds & {list, tuple}:
        return _from_vectors(lengths, flat)
    if kinds & {float, Dyadic, Fraction} or (as_vectors and kinds <= {int}):
        if str in kinds:
            _refuse_mixture(lengths, flat, str, "a text among numbers that are not whole")
        return _from_coordinates(lengths, flat, 1)
    if kinds <= {int}:
        try:
            return _from_ints(lengths, np.array(flat, dtype=np.int64))
        except OverflowError:
            pass
    symbols = tuple(sorted(set(flat), key=symbol_key))
    code = {symbol: number for number, symbol in enumerate(symbols)}
    ids = np.fromiter(map(code.__getitem__, flat), dtype=np.int64, count=len(flat))
    return Tokens(lengths, ids, symbols, None)


def _plain(token: Any, number: int, lengths: Index) -> Any:
    """`token` as one of the plain types; NumPy scalars and subclasses such as IntEnum lose their wrapping."""
    if isinstance(token, np.generic):
        token = token.item()
    if isinstance(token, np.ndarray) and token.ndim == 1:
        return token.tolist()
    if isinstance(token, (list, tuple)):
        return token
    if not isinstance(token, bool):
        for plain in (int, str, float):
            if isinstance(token, plain):
                return plain(token)
        if isinstance(token, (Dyadic, Fraction)):
            return token
    row, position = place(lengths, number)
    remedy = "write 0 and 1, or text" if isinstance(token, bool) else "a token is an int, a str or a vector of numbers"
    raise DataError(f"row {row}, position {position}: {quote(token)} ({type(token).__name__}) is not a token; {remedy}")


def _refuse_mixture(lengths: Index, flat: list[Any], kind: type, what: str) -> None:
    number = next(i for i, token in enumerate(flat) if isinstance(token, kind))
    row, position = place(lengths, number)
    raise DataError(f"row {row}, position {position}: {quote(flat[number])} is {what}; make all tokens of one kind")


def _from_ints(lengths: Index, flat: Index) -> Tokens:
    values, ids = np.unique(flat, return_inverse=True)
    return Tokens(lengths, ids.reshape(-1).astype(np.int64, copy=False), tuple(values.tolist()), None)


def _from_vectors(lengths: Index, flat: list[Any]) -> Tokens:
    widths: dict[int, int] = {}  # dimension -> first token that has it
    for number, token in enumerate(flat):
        if not isinstance(token, (list, tuple)):
            _refuse_mixture(lengths, flat, type(token), "a lone value among vectors")
        widths.setdefault(len(token), number)
    if 0 in widths:
        row, position = place(lengths, widths[0])
        raise DataError(f"row {row}, position {position}: the vector is empty; give every token at least one number")
    if len(widths) > 1:
        (one, first), (two, second) = list(widths.items())[:2]
        places = [place(lengths, number) for number in (first, second)]
        raise DataError(
            f"row {places[1][0]}, position {places[1][1]}: a vector of {two} numbers, but row {places[0][0]}, "
            f"position {places[0][1]} has {one}; make all vectors of one dimension"
        )
    return _from_coordinates(lengths, list(chain.from_iterable(flat)), next(iter(widths)))


def _from_coordinates(lengths: Index, coordinates: list[Any], width: int) -> Tokens:
    """Vectors from their coordinates, one after the other: as floats where floats hold them, exactly otherwise."""
    if not set(map(type, coordinates)) <= {int, float}:
        coordinates = [_coordinate(x, number, width, lengths) for number, x in enumerate(coordinates)]
    if all(type(x) is float or (type(x) is int and abs(x) <= _EXACT_IN_FLOAT) for x in coordinates):
        return _from_floats(lengths, np.array(coordinates, dtype=np.float64).reshape(-1, width))
    exact = [_exact(x, number, width, lengths) for number, x in enumerate(coordinates)]
    vectors, ids = distinct_numbers([tuple(exact[i : i + width]) for i in range(0, len(exact), width)])
    return Tokens(lengths, ids, None, vectors)


def _from_floats(lengths: Index, floats: Floats) -> Tokens:
    bad = np.flatnonzero(~np.isfinite(floats).all(axis=1))
    if bad.size:
        width = floats.shape[1]
        coordinate = int(np.flatnonzero(~np.isfinite(floats[bad[0]]))[0])
        _exact(float(floats[bad[0], coordinate]), int(bad[0]) * width + coordinate, width, lengths)
    vectors, ids = distinct_floats(floats)
    return Tokens(lengths, ids, None, vectors)


def _coordinate(x: Any, number: int, width: int, lengths: Index) -> Any:
    if isinstance(x, np.longdouble):  # .item() would round it
        numerator, denominator = x.as_integer_ratio() if np.isfinite(x) else (0, 0)
        return Fraction(int(numerator), int(denominator)) if denominator else float(x)
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, _NUMBER_TYPES) and not isinstance(x, bool):
        return int(x) if isinstance(x, int) else float(x) if isinstance(x, float) else x
    raise DataError(f"{_where(number, width, lengths)}: {quote(x)} ({type(x).__name__}) is not a number")


def _exact(x: Any, number: int, width: int, lengths: Index) -> Number:
    try:
        if isinstance(x, float):
            return from_float(x)
        return from_fraction(x) if isinstance(x, Fraction) else x
    except InexactError as error:
        raise DataError(f"{_where(number, width, lengths)}: {error}") from None


def _where(number: int, width: int, lengths: Index) -> str:
    row, position = place(lengths, number // width)
    return f"row {row}, position {position}" + (f", coordinate {number % width}" if width > 1 else "")
