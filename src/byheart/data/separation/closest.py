"""The closest pair of exact points without comparing all pairs.

Points are sorted along a direction; only pairs whose shadows lie within the best distance so far along it can be
closer. Of several directions the one that leaves the fewest pairs is swept: neighbour by neighbour where few are
left, by blocked matrix products where many are. When the best distance is tiny against the cloud, the cloud is
cut at every gap that no closer pair can straddle, and its pieces are searched on their own scale, so that floats
never run out of digits.

    >>> closest_squared(np.array([[0, 0], [10**40, 1], [10**40, 3]], dtype=object))
    4
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.vectors import Floats
from byheart.data.separation.cloud import Cloud, make_cloud
from byheart.data.separation.sweep import Line, sweep

_CHUNK = 1 << 8
_FEW = 48  # points whose pairs are all computed
_AXES = 12  # coordinate directions tried
_OBLIQUE = 3  # random directions tried
_TINY = 2.0**-20  # a best distance, against the cloud's size, that calls for cutting the cloud


def closest_squared(points: npt.NDArray[Any]) -> int:
    """The smallest squared distance between two of these distinct points with integer coordinates.  # (P, d), P ≥ 2"""
    divisor = _common_divisor(points)  # in lowest terms the best possible square is 1
    lattice = (points - points[0]) // divisor if divisor > 1 else points
    varying = lattice[:, [any(x != column[0] for x in column) for column in lattice.T]]
    return divisor**2 * (_on_a_line(varying[:, 0]) if varying.shape[1] == 1 else _search(varying))


def _common_divisor(points: npt.NDArray[Any]) -> int:
    """Of all differences of coordinates."""
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
