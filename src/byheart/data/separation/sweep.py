"""Sweeping a cloud of points along a line, for a pair that is closer than the best one known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byheart.data.dataset.distinct import Index
from byheart.data.dataset.vectors import Floats
from byheart.data.separation.cloud import Cloud
from byheart.data.separation.products import Products

_NARROW = 64  # mean number of neighbours within reach up to which they are compared one lag at a time
_LONGEST = 4096  # the largest such number
_STRIP = 2048  # points
_ROWS = 256
_PARALLEL = 0.7


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
            if lows[two] - highs[one] > first.reach(best):
                break
            for start in range(0, len(strip), _ROWS):
                rows, reach = slice(start, start + _ROWS), second.reach(best)
                edges = (heights[one][rows][0] - reach, heights[one][rows][-1] + reach)
                left, right = map(int, np.searchsorted(heights[two], edges))
                skipped = start - left if one == two else None
                best = products.improve(strip[rows], strips[two][left:right], skipped, best)
                products = products if products.resolves(best) else products.doubled()
    return best
