"""Universal approximation by memorizing a grid: the bound is exact, holds at every evaluated point, and is refused
where the Lipschitz constant is wrong."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import byheart
from byheart.errors import DataError, OptionError
from byheart.memory.approximate import _Allowed, _check_slope


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
    with pytest.raises(DataError, match=r"0.9 more than the 0.1 that lipschitz=1 and noise=0 allow"):
        byheart.approximate(lambda x: 10 * x, lipschitz=1, error=0.1)


def test_a_constant_of_another_norm_is_refuted() -> None:
    """λ is for the largest difference of a coordinate. x + y + z has 3; 1 was taken, with a bound of 0.25 and an error
    of 0.5, because neighbours along the axes alone were compared."""
    with pytest.raises(DataError, match=r"changes by 0.75 between .*, 0.5 more than the 0.25 that lipschitz=1"):
        byheart.approximate(lambda x, y, z: x + y + z, lipschitz=1, error=0.25, dimension=3)
    with pytest.raises(DataError, match=r"lipschitz=2\.9"):
        byheart.approximate(lambda x, y, z: x + y + z, lipschitz=2.9, error=0.5, dimension=3)
    found = byheart.approximate(lambda x, y, z: x + y + z, lipschitz=3, error=0.5, dimension=3)
    corners = [[float(a), float(b), float(c)] for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    assert all(
        abs(value - Fraction(sum(p))) <= found.bound for p, value in zip(corners, found.values(corners), strict=True)
    )
    with pytest.raises(DataError, match="lipschitz=1 "):  # one falling diagonal
        byheart.approximate(lambda x, y: x - y, lipschitz=1, error=0.25, dimension=2)


@pytest.mark.parametrize(("cells", "dimension"), [(7, 1), (5, 2), (3, 3), (2, 5)])
def test_neighbours_say_all_that_the_centres_can(cells: int, dimension: int) -> None:
    """The steepest pair of all cells, by the largest coordinate difference, is as steep as the steepest neighbours."""
    rng, grid = np.random.default_rng(cells), list(itertools.product(range(cells), repeat=dimension))
    for _ in range(20):
        values = {cell: Fraction(int(rng.integers(-50, 50)), 7) for cell in grid}
        steepest = max(
            abs(values[a] - values[b]) / max(abs(p - q) for p, q in zip(a, b, strict=True))
            for a, b in itertools.combinations(grid, 2)
        )
        centres, found = [float(k) for k in range(cells)], list(values.values())
        _check_slope(found, _Allowed(steepest, Fraction(0), steepest), centres, dimension)
        less = steepest - Fraction(1, 1000)
        with pytest.raises(DataError, match="changes by"):
            _check_slope(found, _Allowed(less, Fraction(0), less), centres, dimension)


def test_many_dimensions_are_compared_in_seconds() -> None:
    """3^16 directions of 65,536 cells: axis by axis, not one by one."""
    values = [Fraction(sum(cell)) for cell in itertools.product(range(2), repeat=16)]
    with pytest.raises(DataError, match="changes by 16"):
        _check_slope(values, _Allowed(Fraction(15), Fraction(0), Fraction(15)), [0.0, 1.0], 16)


def test_rounding_is_told_with_enough_digits_and_its_remedy() -> None:
    """ "changes by 0.2, more than the 0.2": by 5.6e-17 more, which noise is for."""
    with pytest.raises(DataError, match=r"e-1\d more than the 0.\d+ that lipschitz=1 and noise=0 allow; .*noise"):
        byheart.approximate(lambda x: x * (1 + 1e-16) + x * 2.0**-52, lipschitz=1, error=0.2)
    byheart.approximate(lambda x: x * (1 + 1e-16) + x * 2.0**-52, lipschitz=1, error=0.2, noise=1e-15)


def test_values_of_any_number_type_are_taken_exactly() -> None:
    for kind in (np.float32, np.float16, np.float64, np.longdouble, lambda x: Fraction(x), lambda x: np.array(x)):
        found = byheart.approximate(lambda x, kind=kind: kind(x), lipschitz=1, error=0.5, noise=0.001)
        assert abs(found(np.float32(0.25)) - Fraction(1, 4)) <= found.bound
    with pytest.raises(DataError, match=r"does not give a finite number at \[0.5\] but '0.5' \(str\)"):
        byheart.approximate(lambda x: "0.5", lipschitz=1, error=1)
    with pytest.raises(DataError, match=r"but None \(NoneType\)"):
        byheart.approximate(lambda x: None, lipschitz=1, error=1)


def test_a_function_that_fails_is_named_with_its_point() -> None:
    def broken(x: float) -> float:
        return 1 / (x - 0.5)

    with pytest.raises(DataError, match=r"the function fails at \[0.5\]: ZeroDivisionError") as found:
        byheart.approximate(broken, lipschitz=1, error=1)
    assert isinstance(found.value.__cause__, ZeroDivisionError)
    with pytest.raises(DataError, match=r"fails at \[0.5\]: TypeError: unsupported operand"):
        byheart.approximate(lambda x: x + None, lipschitz=1, error=1)
    with pytest.raises(OptionError, match=r"cannot be called with 2 numbers \(dimension=2\): too many"):
        byheart.approximate(lambda x: x, lipschitz=1, error=1, dimension=2)
    with pytest.raises(OptionError, match=r"cannot be called with 1 number .* 'y'"):
        byheart.approximate(lambda x, y: x, lipschitz=1, error=1)
    with pytest.raises(OptionError, match=r"function is 3 \(int\), which cannot be called"):
        byheart.approximate(3, lipschitz=1, error=1)  # type: ignore[arg-type]


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
