"""Directed arithmetic: a lower bound is only rounded down on its way, an upper bound only up.

Nothing here is a float. Square roots and logarithms are enclosed between two fractions, and the caller chooses the
end that keeps the inequality true. So a bound stays a theorem after it has become a number.

    >>> from fractions import Fraction
    >>> sqrt_up(Fraction(2)), sqrt_up(Fraction(4))
    (2, 2)
    >>> low, high = log2_down(3), log2_up(3)
    >>> low < high and high - low < Fraction(1, 10**15)
    True
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt

Exact = int | Fraction

# π and e lie strictly between these neighbours of their first sixteen digits.
PI_DOWN, PI_UP = Fraction(3141592653589793, 10**15), Fraction(3141592653589794, 10**15)
E_DOWN, E_UP = Fraction(2718281828459045, 10**15), Fraction(2718281828459046, 10**15)

_DIGITS = 64  # binary digits of a logarithm


def ceil(value: Exact) -> int:
    """The smallest integer that is not below `value`."""
    fraction = Fraction(value)
    return -(-fraction.numerator // fraction.denominator)


def floor(value: Exact) -> int:
    """The largest integer that is not above `value`."""
    fraction = Fraction(value)
    return fraction.numerator // fraction.denominator


def sqrt_up(value: Exact) -> int:
    """The smallest integer k >= 0 with k² >= value."""
    whole = ceil(value)
    return isqrt(whole - 1) + 1 if whole > 0 else 0


def root_down(value: Exact, places: int = 40) -> Fraction:
    """A fraction at most the square root of value >= 0, and closer to it than 2^-places."""
    fraction = Fraction(value)
    return Fraction(isqrt(floor(fraction * 4**places)), 2**places)


def log2_down(value: Exact, digits: int = _DIGITS) -> Fraction:
    """A fraction at most log2(value) and closer than 2^-digits; exact for powers of two."""
    return _log2(Fraction(value), digits, up=False)


def log2_up(value: Exact, digits: int = _DIGITS) -> Fraction:
    """A fraction at least log2(value) and closer than 2^(1-digits); exact for powers of two.

    >>> log2_up(Fraction(1, 8))
    Fraction(-3, 1)
    """
    return _log2(Fraction(value), digits, up=True)


@lru_cache(maxsize=4096)
def _log2(value: Fraction, digits: int, up: bool) -> Fraction:
    if value <= 0:
        raise ValueError(f"log2 of {value}, which is not positive")
    return Fraction(scaled_log2(value.numerator, value.denominator, digits, up), 2**digits)


def scaled_log2(numerator: int, denominator: int, digits: int, up: bool) -> int:
    """2^digits · log2(numerator/denominator) as an integer, up or down, exact for powers of two.

    Binary digits by repeated squaring of the mantissa, every rounding in one direction.

    >>> scaled_log2(8, 1, 10, up=True), scaled_log2(3, 1, 10, up=False), scaled_log2(3, 1, 10, up=True)
    (3072, 1623, 1624)
    """
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << max(-exponent, 0) < denominator << max(exponent, 0):
        exponent -= 1
    top, bottom = numerator << max(-exponent, 0), denominator << max(exponent, 0)
    if top == bottom:
        return exponent << digits
    places = 2 * digits + 16  # each squaring doubles the relative error: `digits` of them cost `digits` digits
    mantissa = -((-top << places) // bottom) if up else (top << places) // bottom
    two = 2 << places
    result = exponent
    for _ in range(digits):
        square = mantissa * mantissa
        mantissa = -(-square >> places) if up else square >> places
        result <<= 1
        if mantissa >= two:
            result |= 1
            mantissa = -(-mantissa >> 1) if up else mantissa >> 1
    return result + int(up)


def power_at_least(base: int, exponent: int) -> int:
    """The smallest B with 2^B >= base^exponent, that is ⌈exponent·log2(base)⌉, without computing the power.

    >>> power_at_least(10, 3), power_at_least(2, 10**12), power_at_least(1, 7)
    (10, 1000000000000, 0)
    """
    digits = _DIGITS + max(exponent, 1).bit_length()
    return ceil(exponent * log2_down(base, digits))
