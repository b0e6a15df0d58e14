"""Interpolation in integers, and the feed-forward rows vardi22 and nilsson65."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from byheart.build.table1.nilsson65 import Interpolant, interpolate
from byheart.errors import BuildError
from byheart.exact import Number, as_fraction, dyadic
from byheart.memory import memorize
from tests.build.table1.grid import THIN, letters, proved


def value_at(function: Interpolant, x: Number) -> Number:
    total: Number = function.first
    for unit in function.units:
        if as_fraction(unit.start) < as_fraction(x):
            total = total + unit.weight * (x - unit.start)
    return total


@given(
    st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(-9, 9)), min_size=1, unique_by=lambda p: p[0]),
    st.integers(0, 6),
)
@example([(0, 0), (1, 9), (2, -9), (3, 9)], 0)
def test_the_interpolant_meets_every_point(points, fraction):
    points = sorted(points)
    xs, ys = [x for x, _ in points], [y for _, y in points]
    found = interpolate(xs, ys, denominator=1 << fraction)
    assert len(found.units) <= len(xs) - 1
    assert [value_at(found, dyadic(x, -fraction)) for x in xs] == ys
    for unit in found.units:
        assert abs(unit.weight).bit_count() == 1  # powers of two only


def test_interpolation_wants_ascending_points():
    with pytest.raises(BuildError):
        interpolate([1, 1], [0, 1])


@pytest.mark.parametrize("name", ["vardi22", "nilsson65"])
@pytest.mark.parametrize(("N", "n", "d", "C"), THIN)
def test_rows_are_memorized(name, N, n, d, C):
    proved(name, N, n, d, C)


@pytest.mark.parametrize("form", ["plain", "residual"])
@pytest.mark.parametrize("constants", ["paper", "measured"])
def test_vardi22_keeps_its_guarantee_in_both_forms(form, constants):
    memory = proved("vardi22", 30, 3, 2, 3, form=form, constants=constants)
    assert memory.claim.bounds["width"] == (12 if form == "plain" else 14)


def test_nilsson65_has_one_hidden_layer_of_at_most_N_minus_1_units():
    size = proved("nilsson65", 50, 2, 3, 4).size
    assert size.depth == 1 and size.width <= 49 and size.parameters <= 49 * (2 * 3 + 2) + 1


@pytest.mark.parametrize("name", ["vardi22", "nilsson65", "park21", "baum88"])
def test_letters_with_positions(name):
    rows, labels = letters(60)
    memory = memorize(rows, labels, construction=name, progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(rows) == labels


def test_the_row_costs_a_column_per_number():
    short, long = (proved("vardi22", 40, n, 4, 2).network.layers[1].weight.columns for n in (2, 8))
    assert (short, long) == (8, 32)
