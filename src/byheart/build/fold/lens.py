"""A lens: each line maps two tight clusters to positions where the folds are fine; two classes only.

Clusters of ids that are far closer together than clusters are to each other cost ordinary folds 4 parameters for every
bit between the two distances, or a line (3 parameters) for every cluster. A line has two free numbers, though, so it
can map two clusters to two chosen positions exactly, however far apart they are. So all lines share a chain of folds
that is fine at a few positions only, and all other values are trapped:

    v <- v - relu(2v - T):    T = R, R/2, …  lays the range over itself,    then T falls by many bits at once.

After the fall only values near 0 are left, everything above it is below 0 for good. So a cluster of the trapped label
fits anywhere, two others of a group are mapped to two of the fine positions, and there each has a separate offset,
found by trying all intervals between edges. Without the fall, the positions are single edges that are spread over the
range: for pairs, of which half have both labels and need an edge, and the other half has to fall on the correct side by
chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from math import sqrt
from statistics import median

import numpy as np
import numpy.typing as npt

from byheart.build.fold.block import Reading, StreamBlock, run_blocks
from byheart.build.fold.search import Line, crosses, selector
from byheart.paper import Ref, implements

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
BAND = 4  # bits between gaps inside of clusters and those between them
MOST_BANDS = 3  # ways to split ids into clusters that are tried
LONGEST = 400  # bits of ids: heights of lines are floats until they are checked
LARGEST = 14  # ids of a cluster, on average: more are worth a separate line
FINE = 1 << 40  # the range after the fall
MARGIN = FINE >> 22  # of an offset's interval, at least: the largest shift by rounding
AHEAD = 40  # clusters that a line is tried on
TRIED = 400  # lines whose offsets are looked for, per group
STEEPNESS = tuple(2.0 ** (k / 3) for k in range(-12, 10))  # of a line for one cluster alone
AGAIN = 8  # other lines that are tried instead of the last one, where no two clusters can follow it
MANY = 40  # clusters from which more folds pay
RETREATS = 30  # in all, before a chain is given up


@dataclass(frozen=True, eq=False)
class Cluster:
    """Neighbouring ids, from `first` on, and their labels."""

    ids: tuple[int, ...]
    labels: Ints

    @property
    def first(self) -> int:
        return self.ids[0]

    @cached_property
    def offsets(self) -> Floats:
        return np.array([float(x - self.ids[0]) for x in self.ids])

    @cached_property
    def label(self) -> int | None:
        """The label of all its ids, or None."""
        return int(self.labels[0]) if (self.labels == self.labels[0]).all() else None


@dataclass(frozen=True, eq=False)
class FinePlace:
    """A part of the range where labels change: edges around a position, and whether values left of them are trapped."""

    position: int
    edges: Floats
    trapped_left: bool

    def trapped(self, values: Floats) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (np.searchsorted(self.edges, values, side="right") % 2 == 0) == self.trapped_left
        return found

    def offset(self, offsets: Floats, trapped: npt.NDArray[np.bool_], slope: float) -> float | None:
        """Where the first id must be sent, from the position on, so that all ids of a cluster get their labels.

        Labels change only where an id meets an edge: one try between any two of these is enough. The widest interval.
        """
        heights = slope * offsets
        meetings = np.sort((self.edges[:, None] - heights[None]).ravel())
        starts = np.flatnonzero(np.diff(meetings) > MARGIN)
        for height, wanted in zip(heights, trapped, strict=True):
            middle = (meetings[starts] + meetings[starts + 1]) / 2
            starts = starts[self.trapped(middle + height) == wanted]
        if not len(starts):
            return None
        k = starts[np.argmax(meetings[starts + 1] - meetings[starts])]
        return float(meetings[k] + meetings[k + 1]) / 2


@dataclass(frozen=True)
class FoldChain:
    """Folds with these thresholds; `trapped` is the label of values that end below 0."""

    thresholds: tuple[int, ...]
    trapped: int
    spread: bool  # positions all over the range, each a single edge

    @cached_property
    def edges(self) -> list[int]:
        """Values at which the label changes: a fold copies all of them, mirrored; two at the same position cancel."""
        found = {0}
        for threshold in reversed(self.thresholds):
            found ^= {threshold - e for e in found}
        return sorted(found)

    @cached_property
    def places(self) -> list[FinePlace]:
        edges, cuts = self.edges, [0]
        least = 0 if self.spread else 4 * FINE
        cuts += [k + 1 for k, (a, b) in enumerate(pairwise(edges)) if b - a > least]
        found = []
        for a, b in zip(cuts, [*cuts[1:], len(edges)], strict=True):
            middle = (edges[a] + edges[b - 1]) // 2
            found.append(FinePlace(middle, np.array([float(e - middle) for e in edges[a:b]]), a % 2 == 0))
        return found

    @cached_property
    def whole(self) -> FinePlace:
        return FinePlace(0, np.array(self.edges, dtype=np.float64), True)

    @property
    def unit(self) -> float:
        """About as wide as a cluster must become to have several edges inside of it."""
        return self.thresholds[0] / sqrt(len(self.edges)) if self.spread else float(FINE)

    @property
    def parameters(self) -> int:
        return 4 * len(self.thresholds) + 4

    def blocks(self, scale: int) -> tuple[StreamBlock, ...]:
        return tuple(StreamBlock(((2, -t * scale, -1),)) for t in self.thresholds)

    @property
    def reading(self) -> Reading:
        rows = [(0, 0), (-2, -1)] if self.trapped == 1 else [(-2, -1), (0, 0)]
        return Reading.logits(rows)


def falling(levels: int, share: float, top: int) -> list[int]:
    """Thresholds from `top` on whose traps leave this share of the range, each with as much to decide as the others."""
    fine = 2000
    d = (1 - share) / fine
    middle = d * (np.arange(fine) + 0.5)
    told = np.concatenate([[0.0], np.cumsum(d * np.log2((1 - middle) / (1 - share - middle)))])
    left = np.interp(np.linspace(0, told[-1], levels + 1), told, 1 - d * np.arange(fine + 1))
    found = []
    for before, after in pairwise(left):
        threshold = 2 * (int(after / before * (1 << 50)) * top >> 51)
        found.append(threshold)
        top = threshold // 2
    return found


def spread_chain(levels: int, share: float, trapped: int, steep: float) -> FoldChain:
    """Edges all over a range that is so wide that clusters stay wide, too."""
    return FoldChain(tuple(falling(levels, share, int(FINE * max(64.0, steep)))), trapped, True)


def fine_chain(copies: int, levels: int, share: float, trapped: int, steep: float) -> FoldChain:
    """Return 2^(copies - 1) + 1 positions, as far apart as a line has to rise for its clusters to be `FINE` wide."""
    distance = int(FINE * max(64.0, steep))
    overlay = [distance << k for k in reversed(range(copies))]
    return FoldChain((*overlay, *falling(levels, share, FINE)), trapped, False)


def clusters(ids: Sequence[int], labels: Ints) -> Iterator[list[Cluster]]:
    """Ways to split ascending ids where gaps are longer by `BAND` bits than all gaps inside; the widest band first."""
    gaps = [(b - a).bit_length() for a, b in pairwise(ids)]
    lengths = sorted(set(gaps))
    bands = sorted(((b - a, a) for a, b in pairwise(lengths) if b - a >= BAND), reverse=True)
    for _, inner in bands[:MOST_BANDS]:
        cuts = [0, *(k + 1 for k, gap in enumerate(gaps) if gap > inner), len(ids)]
        yield [Cluster(tuple(ids[a:b]), labels[a:b]) for a, b in pairwise(cuts)]


@dataclass(frozen=True)
class Focused:
    """Lines and the chain after them."""

    chain: FoldChain
    lines: tuple[Line, ...]
    scale: int

    @property
    def parameters(self) -> int:
        return 3 * len(self.lines) + 1 + self.chain.parameters

    @property
    def blocks(self) -> tuple[StreamBlock, ...]:
        return (selector(self.lines), *self.chain.blocks(self.scale))


@implements(
    Ref("byheart", "lens"),
    statement="tight clusters of two labels anywhere are memorized two to a line, by folds that are fine at few points",
    test="tests/build/fold/test_lens.py",
)
def focus(ids: Sequence[int], labels: Ints, most: float, work: float) -> Focused | None:
    """The smallest memory of ascending ids with fewer than `most` parameters, or None; `work`: meetings looked at."""
    best: Focused | None = None
    if (ids[-1] - ids[0]).bit_length() > LONGEST:
        return None
    for parts in clusters(ids, labels):
        need = ClusterNeed.of(parts)
        if len(ids) <= LARGEST * len(parts) and need is not None:
            best = _Focus(parts, need, best, most, work).run()
            most = most if best is None else best.parameters
    return best


@dataclass(frozen=True)
class ClusterNeed:
    """Requirements of clusters on a chain: the trapped label, shares and sizes of those to distinguish."""

    trapped: int
    share: float  # of the other label, among clusters that are not of the trapped label alone
    size: float  # ids of these clusters
    steep: float  # their distance, in widths
    mixed: float  # how many of them have both labels

    @staticmethod
    def of(parts: Sequence[Cluster]) -> ClusterNeed | None:
        """None where nothing is to be distinguished inside of clusters."""
        pure = [part.label for part in parts if part.label is not None]
        trapped = int(2 * sum(pure) >= len(pure))
        held = [part for part in parts if part.label != trapped]
        mixed = sum(part.label is None for part in parts)
        if len(held) < 2 or not mixed:
            return None
        labels = np.concatenate([part.labels for part in held])
        share = min(0.6, max(0.2, float((labels != trapped).mean()) - 0.1))
        distance = float(median(b.first - a.first for a, b in pairwise(held)))
        width = float(median(max(1.0, part.offsets[-1]) for part in held))
        return ClusterNeed(trapped, share, len(labels) / len(held), distance / width, mixed / len(held))


class _Focus:
    """The search for the best chain: from a likely one to its neighbours, as long as one of them is smaller."""

    def __init__(
        self, parts: Sequence[Cluster], need: ClusterNeed, best: Focused | None, most: float, work: float
    ) -> None:
        self.parts, self.need, self.best, self.most, self.left = parts, need, best, most, work

    def run(self) -> Focused | None:
        if self.need.mixed < 0.8:
            for levels in (5, 6, 4, 7):
                self._try(spread_chain(levels, 0.5, self.need.trapped, self.need.steep))
        many = len(self.parts) > MANY
        here = (2 + many, max(2, round(0.75 * self.need.size)) + many, 1)  # copies, levels, steepness
        seen = {here}
        self._fine(*here)
        while self.left > 0:
            copies, levels, steep = here
            near = [(copies, levels + 1, steep), (copies + 1, levels, steep), (copies, levels, steep + 1)]
            near += [(copies, levels, steep - 1), (copies - 1, levels, steep), (copies, levels - 1, steep)]
            for there in near:
                if there not in seen and there[0] > 0 and there[1] > 1:
                    seen.add(there)
                    if self._fine(*there):
                        here = there
                        break
            else:
                break
        return self.best

    def _fine(self, copies: int, levels: int, steep: int) -> bool:
        times = 0.1 * 2**steep * self.need.steep
        return self._try(fine_chain(copies, levels, self.need.share, self.need.trapped, times))

    def _try(self, chain: FoldChain) -> bool:
        """Whether this chain makes a smaller memory than all before."""
        if self.left <= 0 or chain.parameters > self.most:
            return False
        self.left -= len(self.parts) * len(chain.places) * len(chain.edges) * self.need.size
        search = _Lines(self.parts, chain, int((self.most - chain.parameters - 2) // 3))
        if not search.run():
            return False
        self.best = Focused(chain, tuple(search.lines), search.scale)
        self.most = self.best.parameters
        return True


class _Lines:
    """Return lines from left to right, each over as many clusters as it can fit."""

    def __init__(self, parts: Sequence[Cluster], chain: FoldChain, most: int) -> None:
        self.parts, self.chain, self.most = parts, chain, most
        self.places = chain.places
        self.positions = np.array([float(place.position) for place in self.places])
        span = parts[-1].ids[-1] - parts[0].first
        self.scale = 1 << (span.bit_length() + 4)
        self.steps = chain.blocks(self.scale)
        self.lines: list[Line] = []
        self.possible: set[int] = set()  # clusters that a separate line could fit, if it met the previous one
        self.limit: dict[int, int] = {}  # how many clusters the line from here on may hold, where more led nowhere

    def run(self) -> bool:
        """Whether there are lines for all clusters."""
        place, retreats = 0, 0
        counts: list[int] = []
        others: Iterator[tuple[Line, int]] = iter(())  # alternatives for the last line
        while place < len(self.parts):
            if len(self.lines) >= self.most:
                return False
            pairs = self._two(place)
            found = next(pairs, None)
            if found is None and counts:
                found, pairs = self._behind_another(place, counts[-1], others)
            found = found or self._one(place)
            others = pairs
            if found is not None:
                self.lines.append(found[0])
                counts.append(found[1])
                place += found[1]
                continue
            retreats += 1  # no line meets the one before: that one leaves its last cluster to its successor
            if not counts or retreats > RETREATS or not self.possible & {place, *self._held(place)[:1]}:
                return False
            self.lines.pop()
            place -= counts[-1]
            self.limit[place] = counts.pop() - 1
        return True

    def _behind_another(
        self, place: int, count: int, others: Iterator[tuple[Line, int]]
    ) -> tuple[tuple[Line, int] | None, Iterator[tuple[Line, int]]]:
        """Two clusters from here on, after another line for as many clusters as the last one fits."""
        last = self.lines.pop()
        for line, held in islice(others, AGAIN):
            if held != count:
                continue
            self.lines.append(line)
            pairs = self._two(place)
            found = next(pairs, None)
            if found is not None:
                return found, pairs
            self.lines.pop()
        self.lines.append(last)
        return None, iter(())

    def _held(self, place: int) -> list[int]:
        """Return the clusters from here on that need a separate position: the first three."""
        found = []
        for k in range(place, min(place + AHEAD, len(self.parts))):
            label = self.parts[k].label
            if label is None or (label != self.chain.trapped and not self.chain.spread):
                found.append(k)
            if len(found) == 3:
                break
        return found

    def _reach(self, place: int, held: list[int], anchor: int, height: Floats, slope: Floats) -> Ints:
        """Count the clusters that each line fits, those in `held` taken for granted, up to the next one held."""
        end = min([place + AHEAD, len(self.parts), *self._held(place)[len(held) : len(held) + 1]])
        end = min(end, place + self.limit.get(place, AHEAD))
        good = np.full(len(slope), end - place, np.int64)
        for k in range(end - 1, place - 1, -1):
            if k in held:
                continue
            part = self.parts[k]
            at = height + slope * float(part.first - self.parts[anchor].first)
            good[self.chain.whole.trapped(at) != (part.label == self.chain.trapped)] = k - place
        return good

    def _two(self, place: int) -> Iterator[tuple[Line, int]]:
        """Return lines that map two clusters to two positions and meet the last one."""
        held = self._held(place)[:2]
        if len(held) < 2:
            return
        a, b = (self.parts[k] for k in held)
        first, second = np.nonzero(~np.eye(len(self.places), dtype=bool))
        slope = (self.positions[second] - self.positions[first]) / float(b.first - a.first)
        reach = self._reach(place, held, held[0], self.positions[first], slope)
        chosen = np.flatnonzero(
            (reach > held[1] - place) & self._turned(a, first, slope) & self._turned(b, second, slope)
        )
        chosen = chosen[np.argsort(-reach[chosen], kind="stable")][:TRIED]
        for k in chosen:
            p, q, s = self.places[first[k]], self.places[second[k]], float(slope[k])
            left = p.offset(a.offsets, a.labels == self.chain.trapped, s)
            right = None if left is None else q.offset(b.offsets, b.labels == self.chain.trapped, s)
            if left is None or right is None:
                continue
            start, rise = p.position + int(left), q.position + int(right) - p.position - int(left)
            line = self._line(place, int(reach[k]), a.first, start, rise, b.first - a.first)
            if line is not None:
                yield line, int(reach[k])

    def _turned(self, part: Cluster, places: Ints, slope: Floats) -> npt.NDArray[np.bool_]:
        """Whether the labels can change in the required direction, where a position is a single edge."""
        if not self.chain.spread:
            return np.ones(len(slope), np.bool_)
        begins, ends = part.labels[0] == self.chain.trapped, part.labels[-1] == self.chain.trapped
        left = np.array([place.trapped_left for place in self.places])[places]
        turned: npt.NDArray[np.bool_] = (np.where(slope > 0, begins, ends) == left) & (begins != ends)
        return turned

    def _one(self, place: int) -> tuple[Line, int] | None:
        """A line for one cluster, as steep as necessary, and for those around it that fit by chance."""
        for held in ([*self._held(place)[:1]], [place]):
            found = self._alone(place, held) if held else None
            if found is not None:
                return found
        return None

    def _alone(self, place: int, held: list[int]) -> tuple[Line, int] | None:
        part = self.parts[held[0]]
        width = max(1.0, float(part.offsets[-1]))
        up = not self.lines or self.lines[-1].slope < 0
        best: tuple[Line, int] | None = None
        for steep in STEEPNESS:
            for sign in (1, -1) if up else (-1, 1):
                slope = sign * steep * self.chain.unit / width
                for where in [self.chain.whole] if self.chain.spread else self.places:
                    offset = where.offset(part.offsets, part.labels == self.chain.trapped, slope)
                    if offset is None:
                        continue
                    self.possible.add(held[0])
                    start = where.position + int(offset)
                    reach = int(self._reach(place, held, held[0], np.array([float(start)]), np.array([slope]))[0])
                    if reach <= held[0] - place or (best is not None and reach <= best[1]):
                        continue
                    line = self._line(place, reach, part.first, start, int(slope * width), int(width))
                    best = best if line is None else (line, reach)
        return best

    def _line(self, place: int, count: int, at: int, start: int, rise: int, run: int) -> Line | None:
        """The line through (at, start) that rises by `rise` over `run`, if it is correct in exact integers."""
        ids = [x for part in self.parts[place : place + count] for x in part.ids]
        labels = [int(y) for part in self.parts[place : place + count] for y in part.labels]
        slope = self.scale * rise // run
        line = Line(slope, start * self.scale - slope * at, ids[0], ids[-1], len(ids))
        if self.lines and not crosses(self.lines[-1], line):
            return None
        for x, y in zip(ids, labels, strict=True):
            if (run_blocks(self.steps, line.at(x)) < 0) != (y == self.chain.trapped):
                return None
        return line
