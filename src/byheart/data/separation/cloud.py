"""Exact points with their float shadow: what floats may rule out, and what must be decided in integers.

The shadow of an integer point is its place, seen from near the middle, over a power of two, rounded; its coordinates
lie in [-1, 1] and are off by at most `error`. A pair is ruled out only when its float distance exceeds the sought one
by more than every rounding on the way could amount to; all other pairs are computed in integers.

So a float may be wrong in one direction only: it may fail to rule a pair out, which costs a comparison in integers, but
it never drops a pair that is closer. `reach`, `blur` and `direct_limit` are the bounds that make this true: each adds
to the sought distance the most by which the floats compared with it can be too large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index
from byheart.data.dataset.vectors import Floats

Integers = npt.NDArray[Any]  # (P, d) of Python ints, or of int64 where no squared distance overflows

_UNIT = 2.0**-53
_WORD = 62
_LONG = 2.0**1000
_SMALLEST = 2.0**-1000  # keeps clear of floats that lose digits
_DISTANT = 4  # a middle this many times farther out than the cloud is wide is subtracted exactly
_CHUNK = 1 << 15


@dataclass(frozen=True, eq=False)
class Cloud:
    """Distinct integer points and their shadow."""

    points: Integers  # (P, d)
    shadow: Floats  # (P, d), in [-1, 1]
    exponent: int
    error: float  # of a shadow's coordinate

    @property
    def count(self) -> int:
        return len(self.points)

    @property
    def width(self) -> int:
        return int(self.points.shape[1])

    @property
    def blur(self) -> float:
        """What the shadow's length along a direction no longer than 1, in floats, may be off by."""
        return (self.width + 4) * math.sqrt(self.width) * (4 * _UNIT + self.error)

    def reach(self, below: int) -> float:
        """At least the shadow's length of every distance whose square is under `below`."""
        root = math.isqrt(max(below - 1, 0)) + (below > 1)
        shift = max(root.bit_length() - _WORD, 0)
        return max(math.ldexp(((root >> shift) + (shift > 0)) * (1 + 4 * _UNIT), shift - self.exponent), _SMALLEST)

    def direct_limit(self, below: int) -> float:
        """A float squared distance beyond this belongs to no pair whose squared distance is under `below`."""
        slack = math.sqrt(self.width) * (2 * self.error + 2 * _UNIT * (self.error > 0))
        limit = (self.reach(below) + 2 * slack) ** 2 * (1 + 4 * (self.width + 8) * _UNIT)
        if self.error == 0:  # integers below 2^53: a float beyond the last integer under `below` is at least `below`
            exact = math.ldexp(float(below - 1), -2 * self.exponent) if below < 1 << 50 else limit
            limit = min(limit, exact * (1 + 4 * (self.width + 8) * _UNIT))
        return limit

    def smallest(self, one: Index, two: Index) -> int:
        """The exact smallest squared distance among these pairs."""
        best: int | None = None
        for start in range(0, len(one), _CHUNK):
            gaps = self.points[one[start : start + _CHUNK]] - self.points[two[start : start + _CHUNK]]
            found = int((gaps * gaps).sum(axis=1).min())
            best = found if best is None else min(best, found)
        if best is None:
            raise ValueError("no pairs to compare")
        return best

    def probe(self, one: Index, two: Index, best: int) -> int:
        """The smaller of `best` and the squared distance of the pair that is closest in floats."""
        gaps = self.shadow[one] - self.shadow[two]
        least = int(np.einsum("ij,ij->i", gaps, gaps).argmin())
        return min(best, self.smallest(one[least : least + 1], two[least : least + 1]))

    def improve(self, one: Index, two: Index, best: int) -> int:
        """The smaller of `best` and the smallest squared distance among these pairs, by floats where they decide."""
        for start in range(0, len(one), _CHUNK):
            a, b = one[start : start + _CHUNK], two[start : start + _CHUNK]
            gaps = self.shadow[a] - self.shadow[b]
            squares = np.einsum("ij,ij->i", gaps, gaps)
            least = int(squares.argmin())
            if squares[least] <= self.direct_limit(best):
                # The likeliest pair first: with a smaller best fewer of the others must be computed in integers.
                best = min(best, self.smallest(a[least : least + 1], b[least : least + 1]))
                left = np.flatnonzero(squares <= self.direct_limit(best))
                if left.size and best > 1:
                    best = min(best, self.smallest(a[left], b[left]))
        return best


def make_cloud(points: npt.NDArray[Any]) -> Cloud:
    """The cloud of distinct integer points (Python ints)."""
    try:
        floats = points.astype(np.float64)  # correctly rounded
    except OverflowError:
        return _make_long_cloud(points)
    if np.abs(floats).max() > _LONG:
        return _make_long_cloud(points)
    low, high = floats.min(axis=0), floats.max(axis=0)
    middle = low + (high - low) / 2
    distant = np.abs(middle) > _DISTANT * (high - low).max()
    if distant.any():  # seen from their middle these coordinates keep their digits
        points = points.copy()
        points[:, distant] -= np.array([int(x) for x in middle[distant]], dtype=object)
        floats[:, distant] = points[:, distant].astype(np.float64)
    exponent = int(np.frexp(np.abs(floats).max())[1])
    if 2 * (exponent + 1) + points.shape[1].bit_length() < 63:
        points = floats.astype(np.int64)
    return Cloud(points, np.ldexp(floats, -exponent), exponent, 0.0 if exponent <= 53 else _UNIT)


def _make_long_cloud(points: npt.NDArray[Any]) -> Cloud:
    """The same for integers that are too long for floats."""
    points = points - np.array([(min(column) + max(column)) >> 1 for column in points.T], dtype=object)
    exponent = max(abs(int(x)) for x in points.flat).bit_length()
    excess = max(exponent - _WORD, 0)
    words = (points >> excess).astype(np.int64)
    return Cloud(points, np.ldexp(words.astype(np.float64), excess - exponent), exponent, 4 * _UNIT)
