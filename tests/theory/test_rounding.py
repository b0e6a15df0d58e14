"""Directed arithmetic never crosses the value it encloses."""

from __future__ import annotations

from fractions import Fraction
from math import e, isqrt, log2, pi

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.theory.rounding import (
    E_DOWN,
    E_UP,
    PI_DOWN,
    PI_UP,
    log2_down,
    log2_up,
    power_at_least,
    root_down,
    sqrt_up,
)

positive = st.fractions(min_value=Fraction(1, 10**9), max_value=10**30)


@given(positive)
@settings(max_examples=150, deadline=None)
def test_log2_is_enclosed(value: Fraction) -> None:
    low, high = log2_down(value), log2_up(value)
    assert low <= high <= low + Fraction(1, 2**60)
    # 2^(64·low) ≤ value^64 ≤ 2^(64·high), in whole exponents
    assert Fraction(2) ** (low * 64 // 1) <= value**64
    assert value**64 <= Fraction(2) ** -(-high * 64 // 1)
    assert float(low) == pytest.approx(log2(value), abs=1e-9)


@given(st.integers(min_value=-200, max_value=200))
def test_log2_of_powers_of_two_is_exact(exponent: int) -> None:
    assert log2_down(Fraction(2) ** exponent) == exponent == log2_up(Fraction(2) ** exponent)


@given(positive)
def test_square_roots(value: Fraction) -> None:
    k = sqrt_up(value)
    assert k * k >= value and (k == 0 or (k - 1) ** 2 < value)
    root = root_down(value)
    assert root**2 <= value < (root + Fraction(1, 2**40)) ** 2


def test_constants_are_enclosed() -> None:
    assert PI_DOWN <= Fraction(pi) <= PI_UP and E_DOWN <= Fraction(e) <= E_UP
    # π = 3.14159265358979323846…, e = 2.71828182845904523536…
    assert Fraction("3.14159265358979323846") < PI_UP and Fraction("3.14159265358979323846") > PI_DOWN
    assert Fraction("2.71828182845904523536") < E_UP and Fraction("2.71828182845904523536") > E_DOWN


@pytest.mark.parametrize(("base", "exponent"), [(3, 100), (10, 1), (7, 1000), (2, 64), (1, 5), (10**9, 17)])
def test_power_at_least_is_the_smallest(base: int, exponent: int) -> None:
    bits = power_at_least(base, exponent)
    assert 2**bits >= base**exponent and (bits == 0 or 2 ** (bits - 1) < base**exponent)


def test_log2_of_what_has_none() -> None:
    with pytest.raises(ValueError, match="not positive"):
        log2_up(0)


def test_root_of_zero() -> None:
    assert sqrt_up(0) == 0 == root_down(0) == isqrt(0)


@given(positive)
@settings(max_examples=100, deadline=None)
def test_a_short_log2_is_enclosed_to_its_last_digit(value: Fraction) -> None:
    """Six binary places: 64 of its units are whole exponents, so that both sides can be compared exactly."""
    low, high = log2_down(value, 6), log2_up(value, 6)
    assert Fraction(2) ** int(64 * low) <= value**64 <= Fraction(2) ** int(64 * high)
