"""Dyadic numbers against fractions, and the doors that keep floats out."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.errors import InexactError
from byheart.exact import as_fraction, bit_length, check_number, dyadic, from_float, from_fraction

numbers = st.builds(dyadic, st.integers(-(2**80), 2**80), st.integers(-90, 20))


@given(numbers, numbers)
def test_arithmetic_equals_fractions(a, b):
    fa, fb = as_fraction(a), as_fraction(b)
    assert as_fraction(a + b) == fa + fb
    assert as_fraction(a - b) == fa - fb
    assert as_fraction(a * b) == fa * fb
    assert (a < b, a <= b, a == b) == (fa < fb, fa <= fb, fa == fb)
    assert from_fraction(fa) == a and hash(from_fraction(fa)) == hash(a)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_enter_without_loss(x):
    assert as_fraction(from_float(x)) == Fraction(x)


@given(numbers)
def test_bit_length_counts_fixed_point_digits(a):
    value = abs(as_fraction(a))
    places = value.denominator.bit_length() - 1
    assert bit_length(a) == (value.numerator >> places).bit_length() + places


@pytest.mark.parametrize("value", [0.5, True, "1", None, Fraction(1, 3)])
def test_inexact_things_are_type_errors(value):
    with pytest.raises(InexactError):
        check_number(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_floats_that_are_no_numbers(value):
    with pytest.raises(InexactError):
        from_float(value)


def test_a_third_is_not_dyadic():
    with pytest.raises(InexactError):
        from_fraction(Fraction(1, 3))
