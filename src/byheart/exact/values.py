"""Batches of exact vectors: integers over one common denominator.

>>> v = Values.of([[1, 2], [3, 4]], denominator=2)
>>> v.row(1)
(Fraction(3, 2), Fraction(2, 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from byheart.errors import InexactError
from byheart.exact.number import Number, parts

Integers = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Values:
    """`numerators` (count, width) of Python ints; the value is numerator / denominator."""

    numerators: Integers
    denominator: int = 1

    def __post_init__(self) -> None:
        if self.numerators.dtype != object or self.numerators.ndim != 2 or self.denominator < 1:
            raise InexactError("Values needs a two-dimensional object array of ints and a positive denominator")

    @staticmethod
    def of(rows: Sequence[Sequence[int]], denominator: int = 1) -> Values:
        array = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
        for i, row in enumerate(rows):
            array[i, :] = [int(x) for x in row]
        return Values(array, denominator)

    @staticmethod
    def of_numbers(rows: Sequence[Sequence[Number]]) -> Values:
        """From ints and dyadics; the denominator is the smallest power of two that serves all of them."""
        split = [[parts(x) for x in row] for row in rows]
        low = -min((e for row in split for _, e in row), default=0)
        return Values.of([[m << (low + e) for m, e in row] for row in split], 1 << low)

    @property
    def count(self) -> int:
        return int(self.numerators.shape[0])

    @property
    def width(self) -> int:
        return int(self.numerators.shape[1])

    def row(self, index: int) -> tuple[Fraction, ...]:
        return tuple(Fraction(x, self.denominator) for x in self.numerators[index])

    def take(self, index: npt.NDArray[np.int64]) -> Values:
        return Values(self.numerators[index], self.denominator)
