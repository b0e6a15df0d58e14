"""Sweeping a cloud of points along a line, for a pair that is closer than the best one known.

Where few pairs lie within reach of each other along the line, they are compared one lag at a time. Where many do,
strips across the line are sorted along a second one, and blocks of points are compared by matrix products: that of
(x, |x|², 1) and (-2y, 1, |y|²) is |x - y|², off by a bound that counts every rounding. The points are first turned so
that the leading coordinates hold most of their spread; distances in those alone are lower bounds, and mostly large
enough to rule a pair out at a fraction of the work. What floats cannot rule out is computed in integers.

The invariant of both ways: every pair whose heights along the first line differ by at most `reach` is looked at or
ruled out by a lower bound of its distance. `reach` shrinks with `best`, so each improvement makes the rest cheaper. One
lag at a time costs a vector operation per lag; strips cost a matrix product per pair of blocks within reach, in single
precision while that resolves `best`, then in double.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index
from byheart.data.dataset.vectors import Floats
from byheart.data.separation.cloud import Cloud

_NARROW = 64  # mean number of neighbours within reach up to which they are compared one lag at a time
_LONGEST = 4096  # the largest such number
_STRIP = 2048  # points
_ROWS = 256
_PARALLEL = 0.7
_SAMPLE = 1 << 14  # pairs
_PER_PAIR, _PER_COORDINATE, _PER_SURVIVOR = 0.4, 0.06, 60.0  # nanoseconds, roughly
_ORTHOGONAL = 2.0**-40
_FAR = 1e30  # a squared distance beyond all others; infinity would meet zeros inside the library
_TILE, _TILE_COLUMNS = 1 << 18, 512  # multiplications, and columns if there are enough


@dataclass(frozen=True, eq=False)
class Line:
    """A cloud sorted by its points' heights along a direction no longer than 1."""

    cloud: Cloud
    direction: Floats  # (d,)
    heights: Floats  # (P,) of each point
    order: Index  # (P,) points by ascending height

    @staticmethod
    def along(cloud: Cloud, direction: Floats) -> Line:
        heights = cloud.shadow @ direction
        return Line(cloud, direction, heights, np.argsort(heights, kind="stable"))

    def reach(self, best: int) -> float:
        """Points whose heights differ by more than this are not closer than `best`."""
        return (self.cloud.reach(best) + 2 * self.cloud.blur) * (1 + 2.0**-40)

    def windows(self, best: int) -> Index:
        """For each place in the order, how many of the places after it may be closer than `best`."""
        ascending = self.heights[self.order]
        stops = np.searchsorted(ascending, ascending + self.reach(best), side="right")
        return np.asarray(stops - np.arange(1, len(self.order) + 1), dtype=np.int64)

    def pieces(self, best: int) -> list[tuple[int, int]]:
        """The stretches of two or more places between gaps that no pair closer than `best` straddles."""
        places = np.arange(len(self.order))
        stops = np.flatnonzero(np.maximum.accumulate(self.windows(best) + places) == places) + 1
        starts = np.concatenate([[0], stops[:-1]])
        return [(int(a), int(b)) for a, b in zip(starts, stops, strict=True) if b - a > 1]


def sweep(lines: Sequence[Line], best: int) -> int:
    """The smaller of `best` and the smallest squared distance in the cloud. The lines are given best first."""
    windows = lines[0].windows(best)
    if int(windows.sum()) > _NARROW * len(windows) or int(windows.max()) > _LONGEST:
        products = Products.of(lines[0].cloud, best)
        if products.resolves(best):
            return _sweep_strips(lines, products, best)
    for lag in range(1, int(windows.max()) + 1):
        near = np.flatnonzero(windows >= lag)
        best = lines[0].cloud.improve(lines[0].order[near], lines[0].order[near + lag], best)
    return best


def _sweep_strips(lines: Sequence[Line], products: Products, best: int) -> int:
    """Strips across the first line, each sorted along a second one: both leave out what is beyond reach."""
    first = lines[0]
    oblique = (line for line in lines if abs(float(line.direction @ first.direction)) < _PARALLEL)
    second = next(oblique, first)
    cuts = range(0, len(first.order), _STRIP)
    strips = [first.order[start : start + _STRIP] for start in cuts]
    lows = [float(first.heights[strip[0]]) for strip in strips]
    highs = [float(first.heights[strip[-1]]) for strip in strips]
    strips = [strip[np.argsort(second.heights[strip], kind="stable")] for strip in strips]
    heights = [second.heights[strip] for strip in strips]
    for one, strip in enumerate(strips):
        for two in range(one, len(strips)):
            if lows[two] - highs[one] > first.reach(best):  # the strips that follow are farther still
                break
            for start in range(0, len(strip), _ROWS):
                rows, reach = slice(start, start + _ROWS), second.reach(best)
                edges = (heights[one][rows][0] - reach, heights[one][rows][-1] + reach)
                left, right = map(int, np.searchsorted(heights[two], edges))
                skipped = start - left if one == two else None
                # Inside one strip each pair would come twice, and each point with itself: only later places count.
                best = products.improve(strip[rows], strips[two][left:right], skipped, best)
                products = products if products.resolves(best) else products.doubled()
    return best


@dataclass(frozen=True, eq=False)
class Products:
    """Extended vectors (x, |x|², 1) and (-2y, 1, |y|²), whose products are squared distances, off by `error`."""

    cloud: Cloud
    turned: Floats  # (P, m)
    rows: npt.NDArray[Any]  # (P + 1, m + 2); the last is a point far away
    columns: npt.NDArray[Any]  # (P + 1, m + 2)
    error: float

    @staticmethod
    def of(cloud: Cloud, best: int) -> Products:
        """In single precision where that resolves `best`, else in double."""
        turned = _turn(cloud)
        turned = turned[:, : _choose_width(turned, cloud.reach(best) ** 2)]
        single = _extend(cloud, turned, np.float32)
        return single if single.resolves(best) else single.doubled()

    def doubled(self) -> Products:
        return self if self.rows.dtype == np.float64 else _extend(self.cloud, self.turned, np.float64)

    def resolves(self, best: int) -> bool:
        return self.error < self.cloud.reach(best) ** 2 / 16

    def limit(self, best: int) -> float:
        """A product beyond this belongs to no pair closer than `best`."""
        slack = 2 * self.cloud.blur * math.sqrt(self.turned.shape[1])
        return ((self.cloud.reach(best) + slack) ** 2 + self.error) * (1 + 2.0**-20)

    def improve(self, one: Index, two: Index, skipped: int | None, best: int) -> int:
        """`best` after the pairs of a point in `one` with a point in `two`.

        With `skipped`, both are stretches of one order, and only pairs in this order are meant: place i of `one`
        with places beyond i + skipped of `two`.
        """
        if not len(two):
            return best
        tiles, i, j = self._tiles(one, two)
        if skipped is not None:
            tiles[i + skipped >= j] = _FAR
        least = np.array([tiles.argmin()])
        if tiles.flat[least[0]] > self.limit(best):
            return best

        def compare(found: Index, best: int) -> int:
            a, b, c, d = np.unravel_index(found, tiles.shape)
            return self.cloud.improve(one[i[a, 0, c, 0]], two[j[0, b, 0, d]], best)

        best = compare(least, best)  # first, as it may rule the others out
        return compare(np.flatnonzero(tiles <= self.limit(best)), best)

    def _tiles(self, one: Index, two: Index) -> tuple[npt.NDArray[Any], Index, Index]:
        """All products, and the places in `one` and `two` that they belong to, in tiles.

        A tile is small enough for the linear algebra library to stay in one thread: with many small products its
        threads would spend their time waiting for each other. The last tiles are filled up with points far away.
        """
        width = self.rows.shape[1]
        high = max(1, min(len(one), _TILE // (_TILE_COLUMNS * width)))
        wide = min(len(two), max(1, _TILE // (high * width)))
        i = np.arange(-(-len(one) // high) * high).reshape(-1, 1, high, 1)
        j = np.arange(-(-len(two) // wide) * wide).reshape(1, -1, 1, wide)
        nowhere = len(self.rows) - 1
        rows = np.append(one, np.full(i.size - len(one), nowhere))[i[..., 0]]
        columns = np.append(two, np.full(j.size - len(two), nowhere))[j[:, :, 0, :]]
        return self.rows[rows] @ self.columns[columns].swapaxes(-1, -2), i, j


def _turn(cloud: Cloud) -> Floats:
    """The centred shadow along its principal directions, widest first; no distance grows."""
    centred = cloud.shadow - cloud.shadow.mean(axis=0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1]
    if np.abs(axes.T @ axes - np.eye(cloud.width)).max() * cloud.width > _ORTHOGONAL:
        axes = np.eye(cloud.width)
    return np.asarray(centred @ (axes * (1 - _ORTHOGONAL)))


def _choose_width(turned: Floats, square: float) -> int:
    """How many coordinates to multiply: few, while a sample of pairs shows that few pairs survive them."""
    pairs = np.random.default_rng(0).integers(0, len(turned), size=(2, _SAMPLE))
    partial = np.cumsum((turned[pairs[0]] - turned[pairs[1]]) ** 2, axis=1)
    surviving = (partial <= square).mean(axis=0)
    costs = _PER_PAIR + _PER_COORDINATE * np.arange(1, turned.shape[1] + 1) + _PER_SURVIVOR * surviving
    return int(costs.argmin()) + 1


def _extend(cloud: Cloud, turned: Floats, dtype: Any) -> Products:
    squares = np.einsum("ij,ij->i", turned, turned)
    ones = np.ones(len(turned))
    # m + 2 products and sums in any order, of inputs rounded once or twice, whose terms sum up to 4 r²
    error = (turned.shape[1] + 16) * float(np.finfo(dtype).eps) * 4 * float(squares.max()) * 1.01
    nowhere = np.zeros((1, turned.shape[1]))
    rows = np.block([[turned, squares[:, None], ones[:, None]], [nowhere, _FAR, 1.0]])
    columns = np.block([[-2 * turned, ones[:, None], squares[:, None]], [nowhere, 1.0, _FAR]])
    return Products(cloud, turned, rows.astype(dtype), columns.astype(dtype), error)
