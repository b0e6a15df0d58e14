"""The user's sequences, read once: the distinct tokens, and which of them is at each position.

Tokens are symbols or real vectors. Where every token is a number and one of them is not whole, each is a vector of
dimension 1; otherwise texts, whole numbers, and numbers and truth values beside texts are symbols, distinguished by
type and value. None is the symbol of a missing token. Every other kind, and NaN, is refused with its row and position.

    >>> tokens = read_tokens(["ab", "b"])
    >>> tokens.symbols, tokens.ids.tolist(), tokens.lengths.tolist()
    (('a', 'b'), [0, 1, 1], [2, 1])

Real vectors become exact values, integers over one power of two, without loss.

>>> exact_floats(np.array([[0.5, -1.75]])).row(0)
(Fraction(1, 2), Fraction(-7, 4))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index, distinct_rows
from byheart.data.values import distinct, listed, numbered, plain
from byheart.data.wording import quote
from byheart.errors import DataError, InexactError
from byheart.exact.number import Dyadic, Number, Values, as_fraction, dyadic, from_float, from_fraction, parts

Floats = npt.NDArray[np.float64]
# Bits of a float64.
_MANTISSA = 53


def exact_floats(floats: Floats) -> Values:
    """`from_float` of every entry of a finite (count, width) array, at once."""
    fractions, exponents = np.frexp(floats)
    mantissas = np.ldexp(fractions, _MANTISSA).astype(np.int64)
    trailing = _trailing_zeros(mantissas)
    mantissas >>= trailing
    powers = np.where(mantissas == 0, 0, exponents.astype(np.int64) - _MANTISSA + trailing)
    low = min(int(powers.min(initial=0)), 0)
    shifts = powers - low
    if int(shifts.max(initial=0)) + _MANTISSA < 63:
        return Values((mantissas << shifts).astype(object), 1 << -low)
    return Values(np.left_shift(mantissas.astype(object), shifts.astype(object)), 1 << -low)


def _trailing_zeros(mantissas: Index) -> Index:
    lowest = np.where(mantissas == 0, 1, mantissas & -mantissas)
    return np.asarray(np.frexp(lowest.astype(np.float64))[1] - 1, dtype=np.int64)


def distinct_floats(floats: Floats) -> tuple[Values, Index]:
    """The distinct rows in lexicographic order, exactly, and for every row the number of its kind."""
    floats = floats + 0.0  # -0.0 and 0.0 are one number
    first, which = distinct_rows(np.ascontiguousarray(floats).view(np.uint64))
    table = floats[first]
    order = np.lexsort(table.T[::-1])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return exact_floats(table[order]), rank[which]


def distinct_numbers(rows: Sequence[tuple[Number, ...]]) -> tuple[Values, Index]:
    """`distinct_floats` for vectors that floats cannot hold."""
    ordered = sorted(set(rows), key=lambda row: tuple(map(as_fraction, row)))
    rank = {row: number for number, row in enumerate(ordered)}
    return Values.of_numbers(ordered), np.fromiter(map(rank.__getitem__, rows), dtype=np.int64, count=len(rows))


def join(upper: Values, lower: Values) -> Values:
    """Both batches, one below the other, over the larger of the two power-of-two denominators."""
    denominator = max(upper.denominator, lower.denominator)
    factors = [denominator // part.denominator for part in (upper, lower)]
    scaled = [
        part.numerators if factor == 1 else part.numerators * factor
        for part, factor in zip((upper, lower), factors, strict=True)
    ]
    return Values(np.concatenate(scaled), denominator)


def numbers(values: Values, index: int) -> tuple[Number, ...]:
    """Row `index` as exact numbers (the denominator is a power of two)."""
    exponent = 1 - values.denominator.bit_length()
    return tuple(dyadic(int(x), exponent) for x in values.numerators[index])


def padding_vector(values: Values) -> tuple[Number, ...]:
    """A vector that is not among the values, and at least as far from each as any of their coordinates is long.

    Its first coordinate is twice a power of two that no coordinate exceeds, so neither r nor 1/δ grows by more than
    a small factor; the others are zero.
    """
    largest = max((abs(int(x)) for x in values.numerators.flat), default=0)
    if largest == 0:
        return (1, *[0] * (values.width - 1))
    power = (largest - 1).bit_length() + 1 - (values.denominator.bit_length() - 1)
    return (dyadic(1, power), *[0] * (values.width - 1))


def find_vector(values: Values, vector: Sequence[Number]) -> int | None:
    """The number of the row that equals `vector`, if any."""
    exponent = values.denominator.bit_length() - 1
    wanted = []
    for number in vector:
        mantissa, power = parts(number)
        if power + exponent < 0:
            return None
        wanted.append(mantissa << (power + exponent))
    hits = np.flatnonzero((values.numerators == np.array(wanted, dtype=object)).all(axis=1))
    return int(hits[0]) if hits.size else None


Symbol = str | int | float | bool | None
# Whole numbers up to this are floats.
_EXACT_IN_FLOAT = 1 << 53
_NUMBER_TYPES = (int, float, Dyadic, Fraction)


class TokenKind(Enum):
    """What lone numbers are: vectors as soon as one is not whole (ANY), or what a memory was built from.

    NAMES: symbols that are distinguished by their value alone, all of them written as floats.
    """

    ANY = "any"
    VECTORS = "vectors"
    SYMBOLS = "symbols"
    NAMES = "names"


@dataclass(frozen=True, eq=False)
class Tokens:
    """All rows one after the other: token t is number `ids[t]` of the sorted distinct symbols or vectors.

    Equal vectors may be written differently: 0.0 and -0.0, 1 and 1.0. Where that happens `spellings` differs.
    """

    lengths: Index  # (N,)
    ids: Index  # (T,), T = lengths.sum()
    symbols: tuple[Symbol, ...] | None
    vectors: Values | None  # distinct, in lexicographic order
    spellings: Index | None = None  # (T,) equal where tokens are written alike

    def place(self, token: int) -> tuple[int, int]:
        """(row, position) of token number `token`."""
        return place(self.lengths, token)


def place(lengths: Index, token: int) -> tuple[int, int]:
    ends = np.cumsum(lengths)
    row = int(np.searchsorted(ends, token, side="right"))
    return row, token - int(ends[row] - lengths[row])


def read_tokens(sequences: Iterable[Any], kind: TokenKind = TokenKind.ANY, *, unordered: bool = False) -> Tokens:
    """Read lists, tuples, strings and arrays of tokens. `unordered` also takes Python sets as rows."""
    if isinstance(sequences, np.ndarray) and sequences.ndim in (2, 3) and sequences.dtype.kind in "iuf":
        tokens = _from_array(sequences, kind)
        if tokens is not None:
            return tokens
    rows = _rows(sequences, unordered)
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    kinds = set(map(type, chain.from_iterable(rows)))
    if kinds <= {int, str} and not (kinds <= {int} and kind in (TokenKind.VECTORS, TokenKind.NAMES)):
        return _from_names(lengths, rows, kinds)
    return _from_flat(lengths, list(chain.from_iterable(rows)), kind)


def _from_names(lengths: Index, rows: list[Any], kinds: set[type]) -> Tokens:
    """Texts and whole numbers, most of all data: iterated twice, so that no list of all tokens is built."""
    count = int(lengths.sum())
    if kinds <= {int}:
        try:
            return _from_ints(lengths, np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=count))
        except OverflowError:
            pass
    symbols, number = numbered(set(chain.from_iterable(rows)))
    ids = np.fromiter(map(number.__getitem__, chain.from_iterable(rows)), dtype=np.int64, count=count)
    return Tokens(lengths, ids, symbols, None)


def _from_array(array: np.ndarray[Any, Any], kind: TokenKind) -> Tokens | None:
    """The fast way in for numeric arrays; None where 64 bits do not hold them exactly."""
    lengths = np.full(array.shape[0], array.shape[1], dtype=np.int64)
    if kind is TokenKind.NAMES:
        return None
    if array.ndim == 2 and array.dtype.kind in "iu" and kind is not TokenKind.VECTORS:
        if array.size and int(array.max()) >= 1 << 63:
            return None
        return _from_ints(lengths, array.astype(np.int64, copy=False).reshape(-1))
    if array.ndim == 2 and kind is TokenKind.SYMBOLS:
        return None
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
    """All rows of anything that can be gone through, but of no table, whose elements are its columns."""
    if isinstance(sequences, Mapping) or any(hasattr(type(sequences), name) for name in ("columns", "column_names")):
        raise DataError(
            f"sequences is a table ({type(sequences).__name__}), which goes through its columns; give its rows as "
            "lists of tokens, for a data frame frame.to_numpy().tolist()"
        )
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
        return listed(row)
    if isinstance(row, (set, frozenset, dict, np.ndarray)) or not hasattr(row, "__iter__"):
        raise DataError(
            f"row {number} is {quote(row)} ({type(row).__name__}), not a sequence of tokens; "
            "give each row as a list, a string or an array"
        )
    return list(row)


def _from_flat(lengths: Index, flat: list[Any], kind: TokenKind) -> Tokens:
    kinds = set(map(type, flat))
    if not kinds <= {int, str, float, bool, type(None), list, tuple}:
        flat = [_plain(token, number, lengths) for number, token in enumerate(flat)]
        kinds = set(map(type, flat))
    if kinds & {list, tuple}:
        return _from_vectors(lengths, flat)
    numbers = kinds <= {int, float, Dyadic, Fraction}
    if numbers and (kind is TokenKind.VECTORS or (kind is TokenKind.ANY and not kinds <= {int})):
        return _from_coordinates(lengths, flat, 1)
    if (
        kinds <= {int, float}
        and kind is TokenKind.NAMES
        and all(type(x) is float or abs(x) <= _EXACT_IN_FLOAT for x in flat)
    ):
        return _as_names(_from_coordinates(lengths, flat, 1))
    return _from_symbols(lengths, flat, kinds)


def _as_names(tokens: Tokens) -> Tokens:
    """Lone numbers that floats hold as symbols: equal ones are one symbol, however they are written."""
    assert tokens.vectors is not None
    names = (float(Fraction(int(x), tokens.vectors.denominator)) for x in tokens.vectors.numerators[:, 0])
    return replace(tokens, symbols=tuple(names), vectors=None)


def _from_symbols(lengths: Index, flat: list[Any], kinds: set[type]) -> Tokens:
    if kinds & {Dyadic, Fraction}:
        kind = Dyadic if Dyadic in kinds else Fraction
        _refuse_mixture(lengths, flat, kind, "an exact number among texts")
    if float in kinds:
        for number, token in enumerate(flat):
            if type(token) is float:
                _exact(token, number, 1, lengths)  # NaN and infinity are refused here as everywhere
    symbols, ids = distinct(flat)
    return Tokens(lengths, np.array(ids, dtype=np.int64), symbols, None)


def _plain(token: Any, number: int, lengths: Index) -> Any:
    """`token` as one of the plain types; NumPy scalars and subclasses such as IntEnum lose their wrapping."""
    token = plain(token)
    if isinstance(token, np.ndarray) and token.ndim == 1:
        return listed(token)
    if token is None or isinstance(token, (bool, list, tuple, Dyadic, Fraction)):
        return token
    for kind in (int, str, float):
        if isinstance(token, kind) and not isinstance(token, np.generic):
            return kind(token)
    row, position = place(lengths, number)
    remedy = "a token is a text, a number, a truth value or a vector of numbers"
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
        whole = np.fromiter((type(x) is int for x in coordinates), dtype=bool, count=len(coordinates))
        floats = np.array(coordinates, dtype=np.float64).reshape(-1, width)
        return _from_floats(lengths, floats, whole.reshape(-1, width) if 0 < whole.sum() < whole.size else None)
    exact = [_exact(x, number, width, lengths) for number, x in enumerate(coordinates)]
    vectors, ids = distinct_numbers([tuple(exact[i : i + width]) for i in range(0, len(exact), width)])
    return Tokens(lengths, ids, None, vectors)


def _from_floats(lengths: Index, floats: Floats, whole: npt.NDArray[np.bool_] | None = None) -> Tokens:
    """`whole`: which coordinates were written as ints, where some were and some were not."""
    bad = np.flatnonzero(~np.isfinite(floats).all(axis=1))
    if bad.size:
        width = floats.shape[1]
        coordinate = int(np.flatnonzero(~np.isfinite(floats[bad[0]]))[0])
        _exact(float(floats[bad[0], coordinate]), int(bad[0]) * width + coordinate, width, lengths)
    vectors, ids = distinct_floats(floats)
    return Tokens(lengths, ids, None, vectors, _spellings(floats, whole, vectors.count))


def _spellings(floats: Floats, whole: npt.NDArray[np.bool_] | None, count: int) -> Index | None:
    """A number for each way in which a vector is written; None where every vector is written in one way."""
    if whole is None and not (np.signbit(floats) & (floats == 0)).any():
        return None
    written = np.ascontiguousarray(floats).view(np.uint64)
    if whole is not None:
        written = np.concatenate([written, whole.astype(np.uint64)], axis=1)
    first, which = distinct_rows(written)
    return which if len(first) > count else None


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
