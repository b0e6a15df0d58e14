"""How well the points of a data set are separated, exactly, without comparing all pairs.

KS25 calls tokens (r, δ)-separated when every norm is at most r and every two distinct ones are at least δ apart.

r is a maximum; δ takes the closest pair. The idea: along any direction no longer than 1, two points are at least as far
apart as their shadows, so after sorting by the shadow only pairs within the best distance found so far can be closer.
Floats rule pairs out and integers decide (`Cloud`); of several directions the one that leaves the fewest pairs is swept
(`sweep`). The invariant is that `best` is always the squared distance of some pair, in integers, and that no pair is
ever dropped unless it is proved not to be closer. When `best` is tiny against the cloud, floats would run out of
digits: the cloud is then split at every gap that no closer pair can straddle, and its pieces are searched on their own
scale. Most clouds cost a few sorts; the worst take all pairs, as blocked matrix products.

    >>> separation(Values.of([[0, 0], [3, 4], [3, 3]], denominator=2))
    Separation(r_squared=Fraction(25, 4), delta_squared=Fraction(1, 4))
    >>> closest_squared(np.array([[0, 0], [10**40, 1], [10**40, 3]], dtype=object))
    4

*Cloud.* Exact points have a float shadow. The shadow of an integer point is its place, seen from near the middle, over
a power of two, rounded; its coordinates lie in [-1, 1] and are off by at most `error`. A pair is ruled out only when
its float distance exceeds the sought one by more than every rounding on the way could amount to; all other pairs are
computed in integers.

So a float may be wrong in one direction only: it may fail to rule a pair out, which costs a comparison in integers, but
it never drops a pair that is closer. `reach`, `blur` and `direct_limit` are the bounds that make this true: each adds
to the sought distance the most by which the floats compared with it can be too large.

*Sweep.* A cloud is swept along a line, for a pair that is closer than the best one known. Where few pairs lie within
reach of each other along the line, they are compared one lag at a time. Where many do, strips across the line are
sorted along a second one, and blocks of points are compared by matrix products: that of (x, |x|², 1) and (-2y, 1, |y|²)
is |x - y|², off by a bound that counts every rounding. The points are first turned so that the leading coordinates hold
most of their spread; distances in those alone are lower bounds, and mostly large enough to rule a pair out at a
fraction of the work. What floats cannot rule out is computed in integers.

The invariant of both ways: every pair whose heights along the first line differ by at most `reach` is looked at or
ruled out by a lower bound of its distance. `reach` shrinks with `best`, so each improvement makes the rest cheaper. One
lag at a time costs a vector operation per lag; strips cost a matrix product per pair of blocks within reach, in single
precision while that resolves `best`, then in double.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index
from byheart.data.dataset.sequences import Floats
from byheart.errors import DataError
from byheart.exact.number import Values

Integers = npt.NDArray[Any]  # (P, d) of Python ints, or of int64 where no squared distance overflows

# Half a unit in the last place of 1.
_UNIT = 2.0**-53
# Bits of a machine word.
_WORD = 62
# Beyond it squares overflow floats.
_LONG = 2.0**1000
_SMALLEST = 2.0**-1000  # keeps clear of floats that lose digits
_DISTANT = 4  # a middle this many times farther out than the cloud is wide is subtracted exactly
# Pairs at a time.
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


_NARROW = 64  # mean number of neighbours within reach up to which they are compared one lag at a time
_LONGEST = 4096  # the largest such number
_STRIP = 2048  # points
# Points of a strip at a time. Tuned by hand.
_ROWS = 256
# Lines closer to parallel than this cosine add nothing. Tuned by hand.
_PARALLEL = 0.7
_SAMPLE = 1 << 14  # pairs
_PER_PAIR, _PER_COORDINATE, _PER_SURVIVOR = 0.4, 0.06, 60.0  # nanoseconds, roughly
# How far a computed basis may be from orthogonal: its axes are shortened by as much.
_ORTHOGONAL = 2.0**-40
_FAR = 1e30  # a squared distance beyond all others; infinity would meet zeros inside the library
_TILE, _TILE_COLUMNS = 1 << 18, 512  # multiplications, and columns if there are enough


@dataclass(frozen=True, eq=False)
class SortedCloud:
    """A cloud sorted by its points' heights along a direction no longer than 1."""

    cloud: Cloud
    direction: Floats  # (d,)
    heights: Floats  # (P,) of each point
    order: Index  # (P,) points by ascending height

    @staticmethod
    def along(cloud: Cloud, direction: Floats) -> SortedCloud:
        heights = cloud.shadow @ direction
        return SortedCloud(cloud, direction, heights, np.argsort(heights, kind="stable"))

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


def sweep(lines: Sequence[SortedCloud], best: int) -> int:
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


def _sweep_strips(lines: Sequence[SortedCloud], products: Products, best: int) -> int:
    """Strips across the first line, each sorted along a second one: both skip what is beyond reach."""
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


_NORMS = 1 << 12  # whose norms are computed at once
_FEW_POINTS = 1 << 8  # points whose differences are computed at once
_FEW = 48  # points whose pairs are all computed
_AXES = 12  # coordinate directions tried
_OBLIQUE = 3  # random directions tried
_TINY = 2.0**-20  # a best distance, against the cloud's size, that calls for splitting the cloud


@dataclass(frozen=True)
class Separation:
    """How large and how close together points are.

    Attributes:
        r_squared: The largest squared norm of a point.
        delta_squared: The smallest squared distance of two; None for a single point.
    """

    r_squared: Fraction
    delta_squared: Fraction | None


def separation(points: Values) -> Separation:
    """Find r² and δ² of points, exactly.

    Args:
        points: Distinct points.

    Raises:
        DataError: There are no points.
    """
    if not points.count:
        raise DataError("there are no points; give at least one")
    scale = points.denominator**2
    parts = (points.numerators[start : start + _NORMS] for start in range(0, points.count, _NORMS))
    norm = max(int((part * part).sum(axis=1).max()) for part in parts)
    delta = Fraction(closest_squared(points.numerators), scale) if points.count > 1 else None
    return Separation(Fraction(norm, scale), delta)


def closest_squared(points: npt.NDArray[Any]) -> int:
    """The smallest squared distance between two of these distinct points with integer coordinates.  # (P, d), P ≥ 2"""
    divisor = _common_divisor(points)  # in lowest terms the best possible square is 1
    lattice = (points - points[0]) // divisor if divisor > 1 else points
    varying = lattice[:, [any(x != column[0] for x in column) for column in lattice.T]]
    return divisor**2 * (_on_a_line(varying[:, 0]) if varying.shape[1] == 1 else _search(varying))


def _common_divisor(points: npt.NDArray[Any]) -> int:
    """The greatest common divisor of all differences of coordinates."""
    divisor = 0
    for start in range(0, len(points), _FEW_POINTS):
        divisor = math.gcd(divisor, *(points[start : start + _FEW_POINTS] - points[0]).flat)
        if divisor == 1:
            break
    return divisor


def _on_a_line(points: npt.NDArray[Any]) -> int:
    ordered = np.sort(points)
    return int((ordered[1:] - ordered[:-1]).min()) ** 2


def _search(points: npt.NDArray[Any]) -> int:
    best = int(((points[1] - points[0]) ** 2).sum())
    pending = [points]
    while pending and best > 1:
        part = pending.pop()
        cloud = make_cloud(part)
        if cloud.count <= _FEW:
            one, two = np.triu_indices(cloud.count, 1)
            best = min(best, cloud.smallest(one, two))
            continue
        # Neighbours along any line are candidates: a good `best` early on is what keeps the sweep short.
        lines: list[SortedCloud] = []
        for direction in _directions(cloud):
            lines.append(SortedCloud.along(cloud, direction))
            for lag in (1, 2):
                best = cloud.probe(lines[-1].order[:-lag], lines[-1].order[lag:], best)
            if _halves(lines[-1], best):  # small pieces are cheaper than more lines
                lines = lines[-1:]
                break
        lines.sort(key=lambda line: int(line.windows(best).sum()))
        pieces = lines[0].pieces(best)
        if cloud.reach(best) < _TINY and pieces != [(0, cloud.count)]:
            pending.extend(part[lines[0].order[start:stop]] for start, stop in pieces)
        else:
            best = sweep(lines, best)
    return best


def _halves(line: SortedCloud, best: int) -> bool:
    """Whether the best distance is tiny and the line splits the cloud into pieces of at most half its size."""
    if line.cloud.reach(best) >= _TINY:
        return False
    return all(stop - start <= line.cloud.count // 2 for start, stop in line.pieces(best))


def _directions(cloud: Cloud) -> list[Floats]:
    """The widest axes, two principal directions and a few oblique ones, all no longer than 1."""
    spread = cloud.shadow.max(axis=0) - cloud.shadow.min(axis=0)
    axes = [np.eye(cloud.width)[axis] for axis in np.argsort(-spread)[:_AXES]]
    deviations = cloud.shadow - cloud.shadow.mean(axis=0)
    principal = np.linalg.eigh(deviations.T @ deviations)[1][:, -2:].T
    oblique = np.random.default_rng(0).normal(size=(_OBLIQUE, cloud.width))
    slanted = [u / np.linalg.norm(u) * (1 - 2.0**-40) for u in (*principal, *oblique)]
    return [*axes, *slanted]
