"""A piecewise linear function through given points, with one ReLU per step and nothing but integers.

Between two neighbours x < x' the slope is S; one unit A·relu(x - b), with x <= b < x' and A a signed power of two,
turns the line so that it meets the next value. Taking |A| >= |S - slope to the next value| puts b inside the step, and
a power of two keeps b on the grid of the points. The usual choice b = x would make A a difference of two fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from byheart.errors import BuildError
from byheart.exact import Number, as_fraction, dyadic
from byheart.paper import Ref, implements


@dataclass(frozen=True)
class Unit:
    """weight · relu(x - start)."""

    start: Number
    weight: int


@dataclass(frozen=True)
class Interpolant:
    """first + sum of units; `steepest` is the largest slope anywhere between the points."""

    first: int
    units: tuple[Unit, ...]
    steepest: int


@implements(
    Ref("N65", "one hidden layer"),
    statement="N - 1 hidden units in one layer give N points on a line any labels",
    test="tests/build/table1/test_feed_forward.py",
)
def interpolate(points: Sequence[int], values: Sequence[int], denominator: int = 1) -> Interpolant:
    """At most len(points) - 1 units through (x / denominator, y), x ascending; the denominator is a power of two.

    A step whose line already goes through the next value needs no unit. Starts have no more fraction bits than the
    points, except after a step that is turned by more than one unit of slope.

    >>> found = interpolate([0, 3, 10], [5, 5, 6])
    >>> found.first, [(u.start, u.weight) for u in found.units]
    (5, [(9, 1)])
    """
    if not points or any(b <= a for a, b in pairwise(points)) or denominator & (denominator - 1):
        raise BuildError("interpolation needs points in ascending order over a power of two")
    slope = steepest = 0
    fraction = denominator.bit_length() - 1
    units = []
    for (x, y), (after, value) in pairwise(zip(points, values, strict=True)):
        rise, step = value - y, after - x
        missing = rise * denominator - slope * step  # what the unit must contribute at `after`, times denominator
        if missing:
            exponent = (-(-abs(missing) // step) - 1).bit_length()  # 2^exponent >= |missing| / step
            weight = (1 << exponent) * (1 if missing > 0 else -1)
            units.append(Unit(dyadic((after << exponent) - abs(missing), -exponent - fraction), weight))
            slope += weight
            steepest = max(steepest, abs(slope))
    return Interpolant(values[0], tuple(units), steepest)


def value_at(function: Interpolant, x: Number) -> Number:
    """The interpolant at x, for tests and for builders that check themselves."""
    total: Number = function.first
    for unit in function.units:
        if as_fraction(unit.start) < as_fraction(x):
            total = total + unit.weight * (x - unit.start)
    return total
