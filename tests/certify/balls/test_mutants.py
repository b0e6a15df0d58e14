"""Every term of the float64 balls is needed: without it, a sampled case leaves its enclosure.

Each mutant is the module's source with one soundness term or comparison changed; the checks compare with exact
rationals at the ends of the balls, at sizes that round, underflow and overflow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from byheart.certify.balls import floats

SOURCE = floats.__file__


def load(old: str = "", new: str = "", occurrence: int = 0) -> ModuleType:
    """The module, with the given occurrence of a piece of its source replaced."""
    with open(SOURCE, encoding="utf-8") as file:
        text = file.read()
    if old:
        pieces = text.split(old)
        assert len(pieces) > occurrence + 1, f"{old!r} is not in the source any more"
        text = old.join(pieces[: occurrence + 1]) + new + old.join(pieces[occurrence + 1 :])
    module = ModuleType("mutant_of_floats")
    sys.modules[module.__name__] = module
    exec(compile(text, SOURCE, "exec"), module.__dict__)
    return module


def balls(module: ModuleType, number: int) -> Iterator[tuple[Any, Any]]:
    """Pairs of balls: radii of all sizes, numbers that cancel, underflow and overflow."""
    rng = np.random.default_rng([25, number])
    for _ in range(60):
        mid = rng.standard_normal((2, 1)) * np.exp(rng.uniform(-3, 3, (2, 1)))
        rad = np.abs(mid) * rng.choice([0.0, 0.0, 1e-3, 0.3], (2, 1))
        yield module.FloatBalls(mid[0], rad[0]), module.FloatBalls(mid[1], rad[1])
    for a, b in ((1e-200, 1e-200), (1e308, 1.1e308), (1e200, 1e200), (1.0, -1.0)):
        yield module.FloatBalls.exact(np.array([a])), module.FloatBalls.exact(np.array([b]))
    yield module.FloatBalls.exact(np.ones(1)), module.FloatBalls(np.ones(1), np.full(1, 2.0))


def ends(ball: Any, index: Any = 0) -> tuple[Fraction, Fraction]:
    mid, rad = Fraction(float(ball.mid[index])), Fraction(float(ball.rad[index]))
    return mid - rad, mid + rad


def holds(ball: Any, exact: Fraction, index: Any = 0) -> bool:
    if math.isinf(float(ball.rad[index])):
        return True
    if not math.isfinite(float(ball.mid[index])):
        return False
    low, high = ends(ball, index)
    return low <= exact <= high


def pairwise(module: ModuleType, compute: Callable[[Any, Any], Any]) -> None:
    """`compute` works on balls and on rationals alike."""
    with np.errstate(all="ignore"):
        for one, two in balls(module, 1):
            found = compute(one, two)
            assert all(holds(found, compute(a, b)) for a, b in product(ends(one), ends(two)))


def added(module: ModuleType) -> None:
    pairwise(module, lambda a, b: a + b)


def subtracted(module: ModuleType) -> None:
    pairwise(module, lambda a, b: a - b)


def multiplied(module: ModuleType) -> None:
    pairwise(module, lambda a, b: a * b)


def divided(module: ModuleType) -> None:
    with np.errstate(all="ignore"):
        for one, two in balls(module, 2):
            found, (low, high) = one / two, ends(two)
            if low <= 0 <= high:
                assert math.isinf(found.rad[0])
                continue
            assert all(holds(found, a / b) for a, b in product(ends(one), (low, high)))


def matrices(number: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng([26, number])
    for width, scale in ((1, 0.0), (40, 0.0), (40, 1e-3), (40, 1e-12)):
        for _ in range(10):
            mid = rng.standard_normal((2, width)) * 10.0 ** rng.uniform(-3, 3, width)
            yield mid, scale * np.abs(mid), rng.standard_normal((width, 3))
    # The sum overflows, its radius does not.
    yield np.full((2, 3), 1e308), np.zeros((2, 3)), np.ones((3, 3))


def summed(module: ModuleType) -> None:
    for mid, rad, _ in matrices(1):
        with np.errstate(over="ignore"):
            found = module.FloatBalls(mid, rad).sum(axis=1)
        for row, sign in product(range(2), (-1, 1)):
            exact = sum(Fraction(float(m)) + sign * Fraction(float(r)) for m, r in zip(mid[row], rad[row], strict=True))
            assert holds(found, Fraction(exact), row)


def mapped(module: ModuleType) -> None:
    for mid, rad, matrix in matrices(2):
        found = module.FloatBalls(mid, rad).times(matrix)
        for row, column, sign in product(range(2), range(3), (-1, 1)):
            exact = Fraction(0)
            for m, r, w in zip(mid[row], rad[row], matrix[:, column], strict=True):
                exact += Fraction(float(m)) * Fraction(float(w)) + sign * Fraction(float(r)) * abs(Fraction(float(w)))
            assert holds(found, exact, (row, column))


def compared(module: ModuleType) -> None:
    """The first number is above the others only if its ball is, ends included."""
    mid = np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 2.0]])
    rad = np.array([[0.1, 0.1], [0.5, 0.5], [0.0, 1.5], [0.0, 0.0], [0.0, 0.0]])
    chosen = np.array([[True, False]] * 5)
    assert module.FloatBalls(mid, rad).above(chosen).tolist() == [True, False, False, False, False]
    one_sided = module.FloatBalls(np.array([[2.0, 1.0]]), np.array([[1.5, 0.0]]))
    assert not one_sided.above(chosen[:1])[0]


def exponential(module: ModuleType) -> None:
    rng = np.random.default_rng(27)
    x, rad = rng.uniform(-70, 0.9, 200), rng.choice([0.0, 1e-3, 2.0**-7], 200)
    found = module.FloatBalls(x, rad).exp()
    for i, sign in product(range(200), (-1, 1)):
        exact = math.exp(x[i] + sign * rad[i])
        assert abs(exact - found.mid[i]) <= found.rad[i] + 1e-15 * exact
    wide = module.FloatBalls(np.array([0.0, -3.0]), np.array([0.5, 0.3])).exp()
    assert np.isinf(wide.rad).all() or (np.abs(np.exp([0.5, -2.7]) - wide.mid) <= wide.rad).all()


# Check, piece of the source, replacement, which occurrence of the piece.
MUTANTS: tuple[tuple[Callable[[ModuleType], None], str, str, int], ...] = (
    (added, "self.rad + other.rad + UNIT * np.abs(mid)", "self.rad + other.rad", 0),
    (added, "self.rad + other.rad + UNIT", "self.rad + UNIT", 0),
    (added, "self.rad + other.rad + UNIT", "other.rad + UNIT", 0),
    (subtracted, "self.rad + other.rad + UNIT * np.abs(mid)", "self.rad + other.rad", 1),
    (subtracted, "self.rad + other.rad + UNIT", "self.rad + UNIT", 1),
    (subtracted, "self.rad + other.rad + UNIT", "other.rad + UNIT", 1),
    (multiplied, "np.abs(self.mid) * other.rad + (", "(", 0),
    (multiplied, "(np.abs(other.mid) + other.rad) * self.rad", "np.abs(other.mid) * self.rad", 0),
    (multiplied, " + (np.abs(other.mid) + other.rad) * self.rad", "", 0),
    (multiplied, "spill + UNIT * np.abs(mid)", "spill", 0),
    (multiplied, "rad * WIDER + TINY", "rad * WIDER", 0),
    (mapped, "known = np.isfinite(mid) & np.isfinite(rad)", "known = np.isfinite(rad)", 0),
    (divided, "(np.abs(mid) * other.rad + self.rad)", "(self.rad)", 0),
    (divided, "(np.abs(mid) * other.rad + self.rad)", "(np.abs(mid) * other.rad)", 0),
    (divided, "np.where(room > 0, room, 1.0)", "np.abs(safe)", 0),
    (divided, "spill + 2 * UNIT * np.abs(mid), np.inf", "spill, np.inf", 0),
    (divided, "np.where(room > 0, spill + 2 * UNIT * np.abs(mid), np.inf)", "spill + 2 * UNIT * np.abs(mid)", 0),
    (summed, "self.rad.sum(axis=axis) + gamma", "gamma", 0),
    (summed, " + gamma(count) * np.abs(self.mid).sum(axis=axis)", "", 0),
    (mapped, "gamma(len(matrix)) * np.abs(self.mid) + self.rad", "self.rad", 0),
    (mapped, "np.abs(self.mid) + self.rad", "np.abs(self.mid)", 0),
    (mapped, "spread.max(axis=-1", "spread.min(axis=-1", 0),
    (compared, "np.nextafter(self.mid - self.rad, -np.inf)", "self.mid", 0),
    (compared, "np.nextafter(self.mid + self.rad, np.inf)", "self.mid", 0),
    (compared, "np.nextafter(self.mid - self.rad, -np.inf), np.nextafter(self.mid + self.rad, np.inf)",
     "self.mid - self.rad, np.nextafter(self.mid - self.rad, -np.inf)", 0),
    (exponential, "rad = rad + self.rad * table.slopes", "rad = rad + 0 * table.slopes", 0),
    (exponential, "np.where(small, floor, np.where", "np.where(small, 0.0, np.where", 0),
)  # fmt: skip


@pytest.mark.parametrize("check", dict.fromkeys(mutant[0] for mutant in MUTANTS), ids=lambda check: check.__name__)
def test_the_balls_hold_every_case(check: Callable[[ModuleType], None]) -> None:
    check(floats)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_no_mutant_of_a_ball_survives(number: int) -> None:
    check, old, new, occurrence = MUTANTS[number]
    with pytest.raises(AssertionError):
        check(load(old, new, occurrence))
