"""Universal approximation by memorizing a grid: the bound is exact, holds at every point that is asked, and is refused
where the Lipschitz constant is wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import byheart
from byheart.errors import DataError, OptionError


def test_the_bound_holds_between_the_centres() -> None:
    """Exactly, with ==-free arithmetic of fractions: a function whose value is known as a fraction everywhere."""
    found = byheart.approximate(lambda x, y: abs(x - y) / 2 + x / 4, lipschitz=Fraction(5, 4), error=0.125, dimension=2)
    assert found.offset > 0  # ten cells: centres such as 0.35 are not floats
    assert found.memory.certificate.verdict.value == "proved" and found.bound == Fraction(1, 8)
    rng = np.random.default_rng(0)
    points = [*rng.uniform(0, 1, (200, 2)).tolist(), [0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]
    edges = [[float(k * found.side), float(j * found.side)] for k, j in ((1, 3), (2, 2), (found.cells, 0))]
    for point, value in zip([*points, *edges], found.values([*points, *edges]), strict=True):
        x, y = map(Fraction, point)
        assert abs(value - (abs(x - y) / 2 + x / 4)) <= found.bound


@pytest.mark.parametrize("error", [0.5, 0.1])
def test_any_error_is_reached(error: float) -> None:
    found = byheart.approximate(math.sin, lipschitz=1, error=error, low=-3, high=3, noise=1e-15)
    assert found.bound == Fraction(error) + found.noise
    grid = np.linspace(-3, 3, 500)
    values = found.values([[x] for x in grid.tolist()])
    assert max(abs(float(v) - math.sin(x)) for v, x in zip(values, grid, strict=True)) <= error + 1e-12
    assert found.memory.size.parameters > 0 and found.cells == math.ceil(6 / error)


def test_other_constructions_and_constants() -> None:
    flat = byheart.approximate(lambda x: 7.0, lipschitz=0, error=1, construction="ks25")
    assert abs(flat(0.3) - 7) <= 1 and flat.cells == 1 and flat.bound == 1
    stepped = byheart.approximate(lambda x: x, lipschitz=1, error=0.25, construction="nilsson65")
    assert abs(stepped(0.6) - Fraction(3, 5)) <= stepped.bound


def test_a_wrong_constant_is_refuted() -> None:
    with pytest.raises(DataError, match="Lipschitz constant allows"):
        byheart.approximate(lambda x: 10 * x, lipschitz=1, error=0.1)


def test_what_is_refused() -> None:
    with pytest.raises(OptionError, match="200,000"):
        byheart.approximate(lambda *x: 0.0, lipschitz=1, error=0.01, dimension=4)
    with pytest.raises(OptionError, match="error"):
        byheart.approximate(math.sin, lipschitz=1, error=0)
    with pytest.raises(OptionError, match="low must be below high"):
        byheart.approximate(math.sin, lipschitz=1, error=1, low=2, high=1)
    with pytest.raises(DataError, match="does not give a finite number"):
        byheart.approximate(lambda x: math.nan, lipschitz=1, error=1)
    found = byheart.approximate(math.sin, lipschitz=1, error=0.5)
    with pytest.raises(DataError, match="is not between"):
        found(1.5)
    with pytest.raises(DataError, match="takes 1"):
        found(0.5, 0.5)
