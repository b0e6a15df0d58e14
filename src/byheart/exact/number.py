"""Exact numbers: Python integers, and dyadic rationals m·2^e for other numbers.

An integer is always a plain `int`; a `Dyadic` always has a fractional part, so every number has one form
and `==` is exact. A float enters by one door, `from_float`, without loss; anywhere else it is a TypeError.

    >>> half = dyadic(1, -1)
    >>> half + half, half * 6, half < 1
    (1, 3, True)
    >>> dyadic(12, -2)
    3

`Values` are batches of exact vectors: integers over one common denominator.

>>> v = Values.of([[1, 2], [3, 4]], denominator=2)
>>> v.row(1)
(Fraction(3, 2), Fraction(2, 1))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from byheart.errors import InexactError


@dataclass(frozen=True, slots=True, order=False)
class Dyadic:
    """mantissa · 2^exponent with an odd mantissa and a negative exponent. Make one with `dyadic`.

    Attributes:
        mantissa: An odd integer.
        exponent: A negative integer.
    """

    mantissa: int
    exponent: int

    def __post_init__(self) -> None:
        if self.exponent >= 0 or not self.mantissa & 1:
            raise InexactError(f"not in lowest terms: {self.mantissa}*2^{self.exponent}; use dyadic()")

    def __add__(self, other: Number) -> Number:
        if isinstance(other, int):
            return dyadic(self.mantissa + (other << -self.exponent), self.exponent)
        if not isinstance(other, Dyadic):
            return NotImplemented
        low = min(self.exponent, other.exponent)
        mantissa = (self.mantissa << (self.exponent - low)) + (other.mantissa << (other.exponent - low))
        return dyadic(mantissa, low)

    def __mul__(self, other: Number) -> Number:
        if isinstance(other, int):
            return dyadic(self.mantissa * other, self.exponent)
        if not isinstance(other, Dyadic):
            return NotImplemented
        return dyadic(self.mantissa * other.mantissa, self.exponent + other.exponent)

    def __sub__(self, other: Number) -> Number:
        return self + (-other)

    def __rsub__(self, other: Number) -> Number:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Dyadic:
        return Dyadic(-self.mantissa, self.exponent)

    def __abs__(self) -> Dyadic:
        return Dyadic(abs(self.mantissa), self.exponent)

    def __lt__(self, other: Number) -> bool:
        return as_fraction(self) < as_fraction(other)

    def __le__(self, other: Number) -> bool:
        return as_fraction(self) <= as_fraction(other)

    def __gt__(self, other: Number) -> bool:
        return as_fraction(self) > as_fraction(other)

    def __ge__(self, other: Number) -> bool:
        return as_fraction(self) >= as_fraction(other)

    def __float__(self) -> float:
        return float(as_fraction(self))

    def __str__(self) -> str:
        return f"{self.mantissa}*2^{self.exponent}"


Number: TypeAlias = int | Dyadic


def dyadic(mantissa: int, exponent: int) -> Number:
    """Return mantissa · 2^exponent in its one form.

    Args:
        mantissa: An integer.
        exponent: An integer.
    """
    if exponent >= 0:
        return mantissa << exponent
    if mantissa == 0:
        return 0
    zeros = (mantissa & -mantissa).bit_length() - 1
    if zeros >= -exponent:
        return mantissa >> -exponent
    return Dyadic(mantissa >> zeros, exponent + zeros)


def parts(number: Number) -> tuple[int, int]:
    """(mantissa, exponent) with number = mantissa · 2^exponent; the exponent of an integer is 0."""
    return (number, 0) if isinstance(number, int) else (number.mantissa, number.exponent)


def as_fraction(number: Number) -> Fraction:
    """The same number as a standard Fraction."""
    mantissa, exponent = parts(number)
    return Fraction(mantissa, 1 << -exponent)


def from_fraction(value: Fraction) -> Number:
    """The dyadic number equal to `value`; an InexactError when its denominator is not a power of two."""
    denominator = value.denominator
    if denominator & (denominator - 1):
        raise InexactError(f"{value} is not a dyadic rational; multiply it by its denominator first")
    return dyadic(value.numerator, 1 - denominator.bit_length())


def from_float(value: float) -> Number:
    """The one door for floats: the exact value of a finite float.

    >>> from_float(0.375)
    Dyadic(mantissa=3, exponent=-3)
    """
    if not math.isfinite(value):
        raise InexactError(f"{value} is not a finite number; remove or replace it")
    numerator, denominator = value.as_integer_ratio()
    return dyadic(numerator, 1 - denominator.bit_length())


def check_number(value: object) -> Number:
    """`value` itself when it is exact; a TypeError for floats, bools and everything else."""
    if isinstance(value, Dyadic) or type(value) is int:
        return value
    raise InexactError(f"{value!r} ({type(value).__name__}) is not an exact number; use int, dyadic() or from_float()")


def bit_length(number: Number) -> int:
    """Binary digits of |number|, whole and fractional part together (KS25's bit complexity); 0 for 0.

    >>> bit_length(5), bit_length(dyadic(5, -1)), bit_length(dyadic(1, -4)), bit_length(0)
    (3, 3, 4, 0)
    """
    mantissa, exponent = parts(number)
    return (abs(mantissa) >> -exponent).bit_length() - exponent


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
