"""The exact closest pair against all pairs, on kind and on hostile clouds."""

from __future__ import annotations

import importlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.data.dataset.sequences import distinct_floats
from byheart.data.separation import Separation, make_cloud, separation
from byheart.errors import DataError
from byheart.exact.number import Values


def naive(points: Values) -> Separation:
    rows = [points.row(i) for i in range(points.count)]
    squares = [sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for i, x in enumerate(rows) for y in rows[:i]]
    return Separation(max(sum((a * a for a in x), Fraction(0)) for x in rows), min(squares, default=None))


def of_floats(floats: object) -> Values:
    return distinct_floats(np.asarray(floats, dtype=np.float64))[0]


coordinate = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e300, 1e300 * (1 + 2**-52), 1e-300, 5e-324, -1e-310, 0.1, 0.1 + 2**-56]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 4).flatmap(lambda d: st.lists(st.lists(coordinate, min_size=d, max_size=d), min_size=1, max_size=70))
)
def test_agrees_with_all_pairs(rows: list[list[float]]) -> None:
    points = of_floats(rows)
    assert separation(points) == naive(points)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_agrees_beyond_floats(data: st.DataObject) -> None:
    base = st.sampled_from([0, 10**400, -(7**500), 2**1100])
    rows = data.draw(
        st.lists(
            st.tuples(st.builds(int.__add__, base, st.integers(-9, 9)), st.integers(-(10**30), 10**30)),
            min_size=1,
            max_size=90,
        )
    )
    points = Values.of(sorted(set(rows)), denominator=1 << 40)
    assert separation(points) == naive(points)


CLOUDS = {
    "normal": lambda rng: rng.normal(size=(400, 16)),
    "normal, single precision": lambda rng: rng.normal(size=(400, 5)).astype(np.float32),
    "far from the origin": lambda rng: rng.normal(size=(400, 3)) + 1e9,
    "lattice with many ties": lambda rng: rng.integers(0, 6, size=(400, 4)) * 3,
    "grid with near ties": lambda rng: np.stack(np.meshgrid(np.arange(20) * 0.1, np.arange(20) * 0.1), -1).reshape(
        -1, 2
    ),
    "numbers with positions": lambda rng: np.column_stack([rng.uniform(size=400), rng.integers(0, 4, size=400)]),
    "two scales": lambda rng: np.concatenate([rng.normal(size=(200, 3)) * 1e-300, rng.normal(size=(200, 3)) * 1e300]),
    "all scales": lambda rng: rng.normal(size=(400, 3)) * 2.0 ** rng.integers(-900, 900, size=(400, 1)),
    "one line in space": lambda rng: rng.normal(size=(400, 1)) * np.ones((1, 6)),
    "heaps": lambda rng: rng.normal(size=(400, 4)) * 1e-12 + rng.integers(0, 3, size=(400, 1)),
}


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("narrow", [64, 0], ids=["lags", "products"])
def test_every_way_to_sweep(name: str, narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("byheart.data.separation")  # the package has a function of that name
    monkeypatch.setattr(module, "_NARROW", narrow)
    monkeypatch.setattr(module, "_STRIP", 64)
    monkeypatch.setattr(module, "_ROWS", 16)
    monkeypatch.setattr(module, "_FEW", 8)
    points = of_floats(CLOUDS[name](np.random.default_rng(5)))
    exact = Values.of([[int(x) for x in row] for row in points.numerators], points.denominator)
    numerators = exact.numerators
    best = min(int(((numerators[i + 1 :] - numerators[i]) ** 2).sum(axis=1).min()) for i in range(len(numerators) - 1))
    assert separation(points).delta_squared == Fraction(best, points.denominator**2)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(coordinate, coordinate), min_size=2, max_size=12), st.integers(1, 100))
def test_floats_rule_out_no_closer_pair(rows: list[tuple[float, float]], share: int) -> None:
    """The bounds themselves: a pair whose square is under `below` is within every limit for `below`."""
    points = of_floats(rows)
    if points.count < 2:
        return
    cloud = make_cloud(points.numerators)
    for i in range(1, points.count):
        square = cloud.smallest(np.array([0]), np.array([i]))
        gap = cloud.shadow[0] - cloud.shadow[i]
        below = square + 1 + square * share // 100
        assert float(gap @ gap) <= cloud.direct_limit(below)
        assert abs(gap[0]) <= cloud.reach(below) + 2 * cloud.blur
        assert Fraction(cloud.reach(below)) ** 2 * 4**cloud.exponent >= below - 1


def test_one_point_has_no_distance() -> None:
    assert separation(Values.of([[3, 4]])) == Separation(Fraction(25), None)


def test_no_point() -> None:
    with pytest.raises(DataError, match="no points"):
        separation(Values(np.empty((0, 2), dtype=object)))


@pytest.mark.slow
def test_many_points_in_high_dimension() -> None:
    points = of_floats(np.random.default_rng(0).normal(size=(100_000, 16)))
    found = separation(points).delta_squared
    assert found is not None and math.isclose(float(found), 0.873808**2, rel_tol=1e-5)
