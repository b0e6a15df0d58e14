"""A continuous function on a box, approximated by memorizing its values on a grid, with a bound that holds everywhere.

The box is divided into cells. Every cell is a row of d tokens, the places of the cell along each axis, and its label
is the level nearest to the function's value at the cell's centre. The memory of these rows is proved like any other;
so the error at any point of the box is at most

    λ·(h/2 + o) (the point is at most half a cell from the centre, in every coordinate) + η/2 (the level) + noise

where λ is a Lipschitz constant of the function for the largest coordinate difference, h the cell's side, η the
distance of levels, and o how far centres are rounded to the floats at which the function is evaluated. λ is the
caller's to provide: nothing about values between the centres follows from the values at them. What the centres do show
is checked: neighbours, diagonal ones included, whose values differ by more than λ·(h + 2o) + 2·noise refute λ.
Neighbours are enough: two cells that are k cells apart, in the coordinate where they are farthest apart, are joined by
k steps between neighbours (every step moves all coordinates that still differ by one cell), so where no step changes
the value by more than λ·h, the two values differ by no more than k·λ·h, which is what λ allows them. With o or noise
above zero, which every step may use again, cells far apart are allowed somewhat more than λ allows.

A point is rounded to its cell before the network sees it: no ReLU network rounds, because it is continuous. This is the
step that universal approximation theorems (Yun et al. 2020) pay for with a small set on which nothing is guaranteed.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from byheart.data.wording import one_line, quote, short
from byheart.errors import DataError, OptionError
from byheart.memory.memorize import memorize
from byheart.memory.memory import Memory
from byheart.paper import Ref, implements
from byheart.theory.problem import positive

Real = int | float | Fraction
# Of the grid.
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
    offset: Fraction  # o: of the points at which the function was evaluated from the centres
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
    statement="a Lipschitz function on a box is approximated by memorizing a grid of as many cells as its error needs, "
    "at most 200,000: sup error at most λ·h/2 + η/2 (and rounding), for a memory after rounding to cells (the "
    "rounding is not part of the network)",
    test="tests/memory/test_approximate.py",
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
    """Store a function on a grid so that the result is within `error` of it everywhere on a box.

    At most half of the error is spent on cells, the rest on levels. Values at cell centres that refute `lipschitz` are
    an error, in all directions between neighbours.

    Args:
        function: Called with `dimension` numbers; returns a number.
        lipschitz: A constant with |f(x) − f(y)| ≤ lipschitz · max |x_j − y_j| on the box; x + y has 2, not 1.
        error: The largest distance from the function that is allowed.
        dimension: The number of coordinates.
        low: The lower end of every coordinate.
        high: The upper end of every coordinate.
        noise: How far returned values may be from those of such a function (rounding in its evaluation).
        construction: The name of a construction.
        seed: Equal seeds give equal weights.
        progress: Whether to show progress.
        **options: Options of the construction.

    Returns:
        An `Approximation`: callable, with its proved `bound` and its `memory`.

    Raises:
        OptionError: If the grid has more than 200,000 cells; it has ⌈lipschitz·(high − low)/error⌉ along each axis.
        DataError: If the function's values refute the Lipschitz constant.

    >>> found = approximate(lambda x, y: x * y, lipschitz=2, error=0.5, dimension=2)
    >>> found.cells, found.bound, found.memory.certificate.verdict.value
    (4, Fraction(1, 2), 'proved')
    >>> abs(found(0.9, 0.8) - 0.72) <= found.bound
    True
    """
    tolerance, left, right = positive("error", _exact(error)), _exact(low), _exact(high)
    slope, slack = _exact(lipschitz), _exact(noise)
    if slope < 0 or slack < 0 or not left < right or type(dimension) is not int or dimension < 1:
        raise OptionError(
            f"lipschitz={lipschitz}, noise={noise}, low={low}, high={high}, dimension={dimension}: lipschitz "
            "and noise must not be negative, low must be below high, and dimension must be at least 1"
        )
    _check_callable(function, dimension)
    cells = max(1, math.ceil(slope * (right - left) / tolerance))
    if dimension * math.log2(cells) > math.log2(MOST_CELLS):
        raise OptionError(
            f"{cells} cells along each of {dimension} axes are more than {MOST_CELLS:,}; allow more error"
        )
    side = (right - left) / cells
    centres = [left + side * (2 * k + 1) / 2 for k in range(cells)]
    rows = list(itertools.product(range(cells), repeat=dimension))
    queried = [float(centre) for centre in centres]
    offset = max(abs(Fraction(x) - centre) for x, centre in zip(queried, centres, strict=True))
    step = 2 * (tolerance - slope * (side / 2 + offset))
    if step <= 0:
        raise OptionError(f"error={error} is below what floats between {low} and {high} can distinguish")
    found = [_value(function, [queried[k] for k in row]) for row in rows]
    _check_slope(found, _Allowed(slope, slack, slope * (side + 2 * offset) + 2 * slack), queried, dimension)
    levels = [round(value / step) for value in found]
    memory = memorize(
        [list(row) for row in rows], levels, construction=construction, positions=True, seed=seed, progress=progress,
        **options,
    )  # fmt: skip
    return Approximation(memory, dimension, left, right, cells, step, offset, slope, slack)


def _fraction(value: Any) -> Fraction:
    """The number that a number is: floats of any length at their exact value. A text is not a number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, str | bytes):
        raise TypeError(value)
    return Fraction(*value.as_integer_ratio()) if isinstance(value, np.floating) else Fraction(value)


def _exact(value: Any) -> Fraction:
    """An argument, floats at their exact value."""
    try:
        return _fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"{value!r} is not a finite number") from None


def _check_callable(function: Any, dimension: int) -> None:
    """An OptionError where the function cannot be called with as many numbers as the box has dimensions."""
    if not callable(function):
        raise OptionError(f"function is {quote(function)} ({type(function).__name__}), which cannot be called")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # code without a signature: calling it will show
        return
    try:
        signature.bind(*[0.0] * dimension)
    except TypeError as error:
        numbers = f"{dimension} number{'' if dimension == 1 else 's'}"
        raise OptionError(
            f"the function cannot be called with {numbers} (dimension={dimension}): {error}; give another dimension"
        ) from None


def _value(function: Callable[..., Real], point: Sequence[float]) -> Fraction:
    try:
        value = function(*point)
    except Exception as error:  # the caller's own function: whatever it raises
        why = one_line(error) or "no message"
        raise DataError(f"the function fails at {list(point)}: {type(error).__name__}: {why}") from error
    try:
        return _fraction(value)
    except (TypeError, ValueError, OverflowError):
        kind = type(value).__name__
        raise DataError(
            f"the function does not give a finite number at {list(point)} but {quote(value)} ({kind})"
        ) from None


@dataclass(frozen=True)
class _Allowed:
    """The user's statements about the function, and how much its value may change from a cell to a neighbour."""

    lipschitz: Fraction
    noise: Fraction
    change: Fraction


def _check_slope(found: Sequence[Fraction], allowed: _Allowed, centres: Sequence[float], dimension: int) -> None:
    """A DataError where neighbouring cells, diagonal ones included, differ by more than is allowed.

    A cell has 3^d − 1 neighbours, but the largest value among them is found axis by axis: the largest of three along
    the first axis, then of these along the second, and so on. Values are integers over one denominator.
    """
    cells = len(centres)
    if cells == 1:
        return
    denominator = math.lcm(*{value.denominator for value in found})
    values = np.array([int(value * denominator) for value in found], dtype=object).reshape((cells,) * dimension)
    rise = _largest_nearby(values) - values
    low = np.unravel_index(int(np.argmax(rise)), values.shape)
    change = Fraction(int(rise[low]), denominator)
    if change <= allowed.change:
        return
    start = [max(0, int(k) - 1) for k in low]
    window = values[tuple(slice(first, int(k) + 2) for first, k in zip(start, low, strict=True))]
    high = np.add(start, np.unravel_index(int(np.argmax(window)), window.shape))
    places, more = [[centres[int(k)] for k in cell] for cell in (low, high)], change - allowed.change
    raise DataError(
        f"the function changes by {short(change)} between {places[0]} and {places[1]}, {short(more)} "
        f"more than the {short(allowed.change)} that lipschitz={short(allowed.lipschitz)} and noise="
        f"{short(allowed.noise)} allow; give a larger constant, or as noise how far values are rounded"
    )


def _largest_nearby(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For every cell the largest value among itself and its neighbours in all directions."""
    for axis in range(values.ndim):
        along = np.moveaxis(values, axis, 0)
        largest = along.copy()
        largest[1:] = np.maximum(largest[1:], along[:-1])
        largest[:-1] = np.maximum(largest[:-1], along[1:])
        values = np.moveaxis(largest, 0, axis)
    return values
