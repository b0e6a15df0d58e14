"""How well the points of a data set are separated, exactly, without comparing all pairs.

KS25 calls tokens (r, δ)-separated when every norm is at most r and every two distinct ones are at least δ apart.

r is a maximum; δ takes the closest pair. The idea: along any direction no longer than 1, two points are at least as far
apart as their shadows, so after sorting by the shadow only pairs within the best distance found so far can be closer.
Floats rule pairs out and integers decide (`cloud`); of several directions the one that leaves the fewest pairs is swept
(`sweep`). The invariant is that `best` is always the squared distance of some pair, in integers, and that no pair is
ever dropped unless it is proved not to be closer. When `best` is tiny against the cloud, floats would run out of
digits: the cloud is then cut at every gap that no closer pair can straddle, and its pieces are searched on their own
scale. Most clouds cost a few sorts; the worst take all pairs, as blocked matrix products.

    >>> separation(Values.of([[0, 0], [3, 4], [3, 3]], denominator=2))
    Separation(r_squared=Fraction(25, 4), delta_squared=Fraction(1, 4))
    >>> closest_squared(np.array([[0, 0], [10**40, 1], [10**40, 3]], dtype=object))
    4
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.vectors import Floats
from byheart.data.separation.cloud import Cloud, make_cloud
from byheart.data.separation.sweep import Line, sweep
from byheart.errors import DataError
from byheart.exact.number import Values

_ROWS = 1 << 12  # whose norms are computed at once
_CHUNK = 1 << 8  # points whose differences are computed at once
_FEW = 48  # points whose pairs are all computed
_AXES = 12  # coordinate directions tried
_OBLIQUE = 3  # random directions tried
_TINY = 2.0**-20  # a best distance, against the cloud's size, that calls for cutting the cloud


@dataclass(frozen=True)
class Separation:
    """r²: the largest squared norm of a point; δ²: the smallest squared distance of two, None when there is one."""

    r_squared: Fraction
    delta_squared: Fraction | None


def separation(points: Values) -> Separation:
    """r² and δ² of distinct points."""
    if not points.count:
        raise DataError("there are no points; give at least one")
    scale = points.denominator**2
    parts = (points.numerators[start : start + _ROWS] for start in range(0, points.count, _ROWS))
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
    for start in range(0, len(points), _CHUNK):
        divisor = math.gcd(divisor, *(points[start : start + _CHUNK] - points[0]).flat)
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
        lines: list[Line] = []
        for direction in _directions(cloud):
            lines.append(Line.along(cloud, direction))
            for lag in (1, 2):
                best = cloud.probe(lines[-1].order[:-lag], lines[-1].order[lag:], best)
            if _halves(lines[-1], best):  # small pieces are cheaper to know than more lines
                lines = lines[-1:]
                break
        lines.sort(key=lambda line: int(line.windows(best).sum()))
        pieces = lines[0].pieces(best)
        if cloud.reach(best) < _TINY and pieces != [(0, cloud.count)]:
            pending.extend(part[lines[0].order[start:stop]] for start, stop in pieces)
        else:
            best = sweep(lines, best)
    return best


def _halves(line: Line, best: int) -> bool:
    """Whether the best distance is tiny and the line cuts the cloud into pieces of at most half its size."""
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
