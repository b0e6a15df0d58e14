"""Squared distances of blocks of points as matrix products, with a bound on what they are off by.

The points are turned so that the first few coordinates hold most of their spread; distances in those alone are lower
bounds, and mostly large enough to rule a pair out at a fraction of the work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index
from byheart.data.dataset.vectors import Floats
from byheart.data.separation.cloud import Cloud

_SAMPLE = 1 << 14  # pairs
_PER_PAIR, _PER_COORDINATE, _PER_SURVIVOR = 0.4, 0.06, 60.0  # nanoseconds, roughly
_ORTHOGONAL = 2.0**-40
_FAR = 1e30  # a squared distance beyond all others; infinity would meet zeros inside the library
_TILE, _TILE_COLUMNS = 1 << 18, 512  # multiplications, and columns if there are enough


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
