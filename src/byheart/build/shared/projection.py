"""Putting points of R^d on a line, so far apart that their floors are keys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from byheart.errors import BuildError
from byheart.exact import Number, as_fraction, bit_length, dyadic, from_fraction
from byheart.exact.number import Integers, Values
from byheart.paper import Ref, implements

# Random directions that are tried (Lemma G.1 shows that one exists). Tuned by hand.
DRAWS = 400


class Constants(StrEnum):
    """Where the numbers of a construction come from."""

    PAPER = "paper"  # as the theorem states them
    MEASURED = "measured"  # as the data requires


@dataclass(frozen=True)
class KeyLine:
    """x -> weight·x + bias, and where the points land: key i is numerators[i] / denominator."""

    weight: tuple[Number, ...]
    bias: int
    numerators: tuple[int, ...]
    denominator: int

    @property
    def floors(self) -> tuple[int, ...]:
        return tuple(value // self.denominator for value in self.numerators)

    @property
    def top(self) -> int:
        return max(self.numerators) // self.denominator

    @property
    def gap(self) -> Fraction:
        """The smallest distance between two points on the line (2 if there is only one)."""
        ordered = sorted(self.numerators)
        steps = (b - a for a, b in pairwise(ordered))
        return Fraction(min(steps, default=2 * self.denominator), self.denominator)

    @property
    def bits(self) -> int:
        """Bits of the longest weight."""
        return max(bit_length(w) for w in (*self.weight, self.bias))


@implements(
    Ref("KS25", "Lemma G.1"),
    statement="Some unit vector keeps V points of R^d apart: no difference shrinks below V^-2·sqrt(8/(pi·d)) of it.",
    test="tests/build/shared/test_projection.py",
)
@implements(
    Ref("KS25", "Lemma C.2"),
    statement="V points of norm at most r and distance at least delta go to a line by one unit: at least 2 apart, and "
    "between 0 and R/2, here shifted to lie between 2 and R = 20·r·V^2·sqrt(pi·d)/delta, as Lemma C.1 does.",
    test="tests/build/shared/test_projection.py",
)
def project(points: Values, separation: Fraction, constants: Constants, seed: int = 0) -> KeyLine:
    """A line on which the points (all different) are at least 2 apart, from 2 on; checked exactly.

    Notation: V = points.count, d = points.width, 0 < separation <= delta^2.
    PAPER samples unit vectors until V^2·sqrt(pi·d)/delta times one of them, rounded, keeps the points apart; one draw
    succeeds with probability over 1/3. MEASURED tries many directions, mixed radices among them, and keeps the one
    with the smallest range for a gap of 2: about 10 bits fewer.

    >>> line = project(Values.of([[0, 0], [0, 1], [1, 0]]), Fraction(1), Constants.MEASURED)
    >>> line.weight, line.bias, line.numerators
    ((2, 4), 2, (2, 6, 4))
    """
    rng = np.random.default_rng(seed)
    if points.count == 1:
        return _line(points, (0,) * points.width)
    paper = _paper_line(points, separation, rng)
    if constants is Constants.PAPER:
        return paper
    # no longer weights than the paper's, or than any memorizer of such keys has anyway
    found = [line for line in _measured_lines(points, rng) if line.bits <= max(paper.bits, 2 * line.top.bit_length())]
    found = [line for line in found if line.gap >= 2]
    return min([*found, paper], key=lambda line: (line.top, line.bits))


def _line(points: Values, weight: Sequence[Number]) -> KeyLine:
    """Where exact weights put the points, shifted by an integer so that the smallest is at least 2."""
    low = max((w.denominator for w in map(as_fraction, weight)), default=1)
    scaled = np.array([int(as_fraction(w) * low) for w in weight], dtype=object)
    landed: Integers = points.numerators.dot(scaled)
    denominator = low * points.denominator
    bias = 2 - int(min(landed)) // denominator
    common = math.gcd(denominator, *landed.tolist())
    numerators = tuple(int(v) // common + bias * (denominator // common) for v in landed)
    return KeyLine(tuple(weight), bias, numerators, denominator // common)


def _paper_line(points: Values, separation: Fraction, rng: np.random.Generator) -> KeyLine:
    """s = V^2·sqrt(pi·d)/delta, rounded to the grid 2^⌊log2(1.656/(delta·sqrt(d)))⌋: gaps stay at least 2."""
    count, d = points.count, points.width
    exponent = (separation.numerator.bit_length() - separation.denominator.bit_length()) // 2
    delta = math.sqrt(separation / Fraction(4) ** exponent)  # delta of the points is this times 2^exponent
    scale = count**2 * math.sqrt(math.pi * d) / delta
    grid = math.floor(math.log2(1.656 / (delta * math.sqrt(d))))
    for _ in range(DRAWS):
        direction = rng.normal(size=d) if d > 1 else np.ones(1)
        direction /= np.linalg.norm(direction)
        line = _line(points, [dyadic(round(math.ldexp(scale * u, -grid)), grid - exponent) for u in direction])
        if line.gap >= 2:
            return line
    raise BuildError(
        f"{DRAWS} random directions all put two of {count} points closer than 2; "
        f"are they really {math.sqrt(separation)} apart? Another seed may help"
    )


def _measured_lines(points: Values, rng: np.random.Generator) -> Iterator[KeyLine]:
    """The most guaranteeing directions, scaled so that the smallest gap is about 2."""
    offsets = points.numerators - points.numerators.min(axis=0)  # exact, so far-away points keep their differences
    yield from _mixed_radix_lines(points)
    if offsets.max() >> 1023 >= points.denominator:
        return  # differences beyond the floats of this search: the paper's line will do
    table = np.array([[n / points.denominator for n in row] for row in offsets], dtype=np.float64)
    spread = np.ptp(table, axis=0)
    spread[spread == 0] = 1.0
    draws = max(8, min(DRAWS, 2_000_000 // points.count))
    directions = rng.normal(size=(draws, points.width))
    directions[draws // 2 :] /= spread  # half of them treat all coordinates alike, half weigh them by their size
    with np.errstate(all="ignore"):  # only a search: its result is checked exactly
        ratios = np.array([_range_and_gap(table @ u) for u in directions])
        best = np.argsort(ratios[:, 0] / ratios[:, 1])[:3]
        scaled = [directions[place] * (2.0 / ratios[place, 1]) for place in best]
    for direction in scaled:
        if np.isfinite(direction).all():
            yield _scaled(points, direction, spread)


def _range_and_gap(landed: npt.NDArray[np.float64]) -> tuple[float, float]:
    landed = np.sort(landed)
    return float(landed[-1] - landed[0]), float(np.diff(landed).min())


def _scaled(points: Values, direction: npt.NDArray[np.float64], spread: npt.NDArray[np.float64]) -> KeyLine:
    """`direction` on a grid so fine that rounding moves differences by at most 1/16, and a little longer for that."""
    weight = []
    for u, width in zip(direction * (1 + 1 / 24), spread, strict=True):
        grid = math.floor(-math.log2(16 * len(direction)) - math.log2(width))  # a product could overflow
        weight.append(_rounded(float(u), grid))
    return _line(points, weight)


def _rounded(value: float, exponent: int) -> Number:
    """The multiple of 2^exponent nearest to `value`, however far apart the two are.

    >>> _rounded(5.3, -2), _rounded(1e300, -2000) == from_fraction(Fraction(1e300))
    (Dyadic(mantissa=21, exponent=-2), True)
    """
    return dyadic(round(Fraction(value) / Fraction(2) ** exponent), exponent)


def _mixed_radix_lines(points: Values) -> Iterator[KeyLine]:
    """For points on a grid: coordinate by coordinate, like the digits of a number; narrow coordinates first or last."""
    offsets = points.numerators - points.numerators.min(axis=0)
    common = math.gcd(*offsets.ravel().tolist())
    unit = common & -common  # the power of two in it, so that weights stay dyadic
    sizes = [int(high) // unit + 1 for high in offsets.max(axis=0)]
    if math.prod(sizes).bit_length() > 60:
        return
    narrow_first = sorted(range(points.width), key=sizes.__getitem__)
    for order in (narrow_first, narrow_first[::-1]):
        weight: list[Number] = [0] * points.width
        radix = 1
        for j in order:
            weight[j] = from_fraction(Fraction(2 * radix * points.denominator, unit)) if sizes[j] > 1 else 0
            radix *= sizes[j]
        yield _line(points, weight)
