"""Real vectors as exact values: batches of floats become integers over one power of two, without loss.

>>> exact_floats(np.array([[0.5, -1.75]])).row(0)
(Fraction(1, 2), Fraction(-7, 4))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index, distinct_rows
from byheart.exact.number import Number, Values, as_fraction, dyadic, parts

Floats = npt.NDArray[np.float64]
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
