"""A continuous function on a box, approximated by memorizing its values on a grid, with a bound that holds everywhere.

The box is cut into cells. Every cell is a row of d tokens, the places of the cell along each axis, and its label is the
level nearest to the function's value at the cell's centre. The memory of these rows is proved like any other; so the
error at any point of the box is at most

    λ·(h/2 + o) (the point is at most half a cell from the centre, in every coordinate) + η/2 (the level) + noise

where λ is a Lipschitz constant of the function for the largest coordinate difference, h the cell's side, η the
distance of levels, and o how far centres are rounded to the floats at which the function is asked. λ is the caller's
to know: nothing about values between the centres follows from the values at them. What the centres do show is
checked: neighbours whose values differ by more than λ·(h + 2o) refute λ.

A point is rounded to its cell before the network sees it: no ReLU network rounds, because it is continuous. This is the
step that universal approximation theorems (Yun et al. 2020) pay for with a small set on which nothing is promised.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from byheart.compile.memorize import memorize
from byheart.compile.memory import Memory
from byheart.errors import DataError, OptionError
from byheart.paper import Ref, implements
from byheart.theory.problem import positive

Real = int | float | Fraction
MOST_CELLS = 200_000


@dataclass(frozen=True, eq=False)
class Approximation:
    """A memory of levels on a grid of `cells` per axis, and how far it can be from the function at any point.

    `bound` holds on the whole box for every function that has the given Lipschitz constant and, at the centres, the
    values that were memorized up to `noise`; that the memory returns these levels is what its certificate proves.
    """

    memory: Memory
    dimension: int
    low: Fraction
    high: Fraction
    cells: int
    step: Fraction  # η: levels are its multiples
    offset: Fraction  # o: of the points at which the function was asked from the centres
    lipschitz: Fraction
    noise: Fraction

    @property
    def side(self) -> Fraction:
        """h, the side of a cell."""
        return (self.high - self.low) / self.cells

    @property
    def bound(self) -> Fraction:
        """λ·(h/2 + o) + η/2 + noise, exactly."""
        return self.lipschitz * (self.side / 2 + self.offset) + self.step / 2 + self.noise

    def __call__(self, *point: Real) -> Fraction:
        """The approximate value at one point."""
        return self.values([point])[0]

    def values(self, points: Sequence[Sequence[Real]]) -> list[Fraction]:
        """The approximate values at many points; each is exact, a multiple of the step."""
        rows = [self._cell(point) for point in points]
        return [int(level) * self.step for level in self.memory.predict(rows)]

    def _cell(self, point: Sequence[Real]) -> list[int]:
        if len(point) != self.dimension:
            raise DataError(f"a point has {len(point)} numbers; this function takes {self.dimension}")
        exact = [_exact(x) for x in point]
        outside = next((x for x in exact if not self.low <= x <= self.high), None)
        if outside is not None:
            raise DataError(f"{float(outside)} is not between {float(self.low)} and {float(self.high)}")
        return [min(self.cells - 1, math.floor((x - self.low) / self.side)) for x in exact]


@implements(
    Ref("Y20", "universal approximation"),
    statement="a Lipschitz function on a box is approximated to any error by memorizing a grid: sup error at most "
    "λ·h/2 + η/2 (and rounding), for a memory behind rounding to cells (the rounding is not part of the network)",
    test="tests/compile/test_approximate.py",
)
def approximate(
    function: Callable[..., Real],
    *,
    lipschitz: Real,
    error: Real,
    dimension: int = 1,
    low: Real = 0,
    high: Real = 1,
    noise: Real = 0,
    construction: str = "compact",
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> Approximation:
    """A memory that is within `error` (and `noise`) of the function everywhere on [low, high]^dimension.

    `lipschitz`: |f(x) − f(y)| ≤ lipschitz · max |x_j − y_j| on the box, for the caller to know. `noise`: how far
    the returned values may be from those of such a function (rounding in its evaluation). At most half of the error
    goes to the cells, what is left to the levels. Grids of more than 200,000 cells are refused; they have
    ⌈lipschitz·(high − low)/error⌉ cells along each axis.

    >>> found = approximate(lambda x, y: x * y, lipschitz=2, error=0.5, dimension=2)
    >>> found.cells, found.bound, found.memory.certificate.verdict.value
    (4, Fraction(1, 2), 'proved')
    >>> abs(found(0.9, 0.8) - 0.72) <= found.bound
    True
    """
    tolerance, left, right = positive("error", error), _exact(low), _exact(high)
    slope, slack = _exact(lipschitz), _exact(noise)
    if slope < 0 or slack < 0 or not left < right or type(dimension) is not int or dimension < 1:
        raise OptionError(
            f"lipschitz={lipschitz}, noise={noise}, low={low}, high={high}, dimension={dimension}: lipschitz "
            "and noise must not be negative, low must be below high, and dimension must be at least 1"
        )
    cells = max(1, math.ceil(slope * (right - left) / tolerance))
    if dimension * math.log2(cells) > math.log2(MOST_CELLS):
        raise OptionError(
            f"{cells} cells along each of {dimension} axes are more than {MOST_CELLS:,}; allow more error"
        )
    side = (right - left) / cells
    centres = [left + side * (2 * k + 1) / 2 for k in range(cells)]
    rows = list(itertools.product(range(cells), repeat=dimension))
    asked = [float(centre) for centre in centres]
    offset = max(abs(Fraction(x) - centre) for x, centre in zip(asked, centres, strict=True))
    step = 2 * (tolerance - slope * (side / 2 + offset))
    if step <= 0:
        raise OptionError(f"error={error} is below what floats between {low} and {high} can tell apart")
    found = {row: _value(function, [asked[k] for k in row]) for row in rows}
    _check_slope(found, slope * (side + 2 * offset) + 2 * slack, asked)
    levels = [round(found[row] / step) for row in rows]
    memory = memorize(
        [list(row) for row in rows], levels, construction=construction, positions=True, seed=seed, progress=progress,
        **options,
    )  # fmt: skip
    return Approximation(memory, dimension, left, right, cells, step, offset, slope, slack)


def _exact(value: Any) -> Fraction:
    """The number, floats at their exact value."""
    try:
        return Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"{value!r} is not a finite number") from None


def _value(function: Callable[..., Real], point: Sequence[float]) -> Fraction:
    try:
        return Fraction(function(*point))
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"the function does not give a finite number at {list(point)}") from None


def _check_slope(found: dict[tuple[int, ...], Fraction], most: Fraction, centres: Sequence[float]) -> None:
    """A DataError where neighbouring cells differ by more than the Lipschitz constant allows."""
    for row, value in found.items():
        for axis in range(len(row)):
            other = (*row[:axis], row[axis] + 1, *row[axis + 1 :])
            if other in found and abs(found[other] - value) > most:
                places = [[centres[k] for k in cell] for cell in (row, other)]
                raise DataError(
                    f"the function changes by {float(abs(found[other] - value)):.6g} between {places[0]} and "
                    f"{places[1]}, more than the {float(most):.6g} that its Lipschitz constant allows"
                )
