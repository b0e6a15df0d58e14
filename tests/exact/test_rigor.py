"""Balls are rounded outwards when they leave for floats."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from byheart.errors import InexactError
from byheart.exact.rigor import ball, flint, lower_float, magnitude, precision, upper_float

pytest.importorskip("flint", reason="needs byheart[rigor]")


@pytest.mark.parametrize(("a", "b"), [(1, 3), (-1, 3), (2, 7), (-(10**30), 7), (1, 10**300)])
def test_floats_enclose_the_exact_quotient(a, b):
    with precision(200):
        found = ball(a) / ball(b)
    exact = Fraction(a, b)
    assert Fraction(lower_float(found)) < exact < Fraction(upper_float(found))
    assert Fraction(magnitude(found)) > abs(exact)


def test_precision_holds_inside_the_block_alone():
    before = flint().ctx.prec
    with precision(333):
        assert flint().ctx.prec == 333
    assert flint().ctx.prec == before


def test_a_ball_that_contains_everything_has_infinite_bounds():
    wide = ball(1.0) / (ball(1.0) - ball(1.0))
    assert (lower_float(wide), upper_float(wide), magnitude(wide)) == (-math.inf, math.inf, math.inf)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_finite_floats_become_balls(value):
    with pytest.raises(InexactError, match="not a number that a ball can enclose"):
        ball(value)
