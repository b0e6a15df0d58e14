"""Pinned lines: each meets two changes of the label exactly, and fits the others by chance; two classes only.

A chain of a few folds changes its answer at some dozen edges, spread over its range. Ids in ascending order change
their label between neighbours now and then, and a line has two free numbers: it can send two such gaps to any two
edges of the required direction, however narrow the gaps are and however far apart. That is exact and costs no fold. All
other ids of the group must fit by chance; enough lines are tried that a few ids do:

    edges E_0 < E_1 < …, trapped below E_0, then in turns;     line through (gap a, E_i) and (gap b, E_j), all i, j.

The gaps that are pinned are the narrowest of those that the line has to change its label in: wide ones are met by
chance, narrow ones never are. A line must also meet the one before in the gap between their ids (Lemma 3), so some are
laid through a point of that one instead, with a single pin. Lines are chosen from left to right by a beam: of those
with equally many groups, the states that have come farthest survive, at most a few for the same id.

So ids whose distances span hundreds of bits (pairs at powers of sixteen, gaps of all sizes, sets within sets) cost no
more than 1.5 parameters for every change of the label and a short chain, where folds would pay 4 for every bit. For up
to some 100 ids it is the smallest memory of random ids, too: chance is generous to short groups.

Heights are floats while lines are sought (as shares of the way between the pins, which are divided exactly); whether a
line is correct, and whether it meets the previous one, is decided in integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import median_low

import numpy as np
import numpy.typing as npt

from byheart.build.fold.block import run_blocks
from byheart.build.fold.lens import Floats, Focused, FoldChain, falling
from byheart.build.fold.search import Ints, Line, crosses
from byheart.paper import Ref, implements

TOP = 1 << 50  # the range of a chain: edges are whole numbers, farther apart than the last digit of floats
PRECISION = 30  # bits of the distance between two edges that lines need not have
AHEAD = 40  # ids that a line may hold, about
NARROWEST = 3  # gaps among which two are pinned
JOINTS = (16, 12)  # points of the line before that lines are laid through: steps of the gap, and of its halves
KEPT = 600  # lines of a group that are looked at in integers, farthest first
WORSE = 2  # ids that a line may hold less than the farthest of its group
SHORTER = 4  # last ids of a line that may be left to the next one, whose gap may then be wider
HOPELESS = 1.25  # times the allowed lines: the most that a chain may need, extrapolated from its lines so far


@dataclass(frozen=True)
class PinBeam:
    """How much is looked at: states that live on, lines that each of them is continued by, folds around the likely."""

    states: int
    lines: int
    folds: int

    @property
    def narrower(self) -> PinBeam:
        return PinBeam(max(3, self.states // 2), max(8, self.lines // 2), self.folds)


@implements(
    Ref("byheart", "pinned lines"),
    statement="two labels: each line meets two changes of the label at edges of a short chain, at any distances",
    test="tests/build/fold/test_pins.py",
)
def pin(ids: Sequence[int], labels: Ints, most: float, beam: PinBeam) -> Focused | None:
    """The smallest memory of ascending ids with fewer than `most` parameters, or None."""
    best: Focused | None = None
    likely = max(2, round(0.75 * np.log2(len(ids))))
    trapped = int(2 * labels.sum() >= len(labels))
    for folds in sorted(range(max(1, likely - beam.folds), likely + beam.folds + 1), key=lambda f: abs(f - likely)):
        for label in (trapped, 1 - trapped):
            chain = FoldChain(tuple(falling(folds, 0.5, TOP)), label, True)
            lines = int((most - chain.parameters - 2) // 3)
            found = PinnedLines(ids, labels == label, chain, beam).run(lines) if lines > 0 else None
            if found is not None:
                best, most = found, found.parameters
    return best


@dataclass(frozen=True)
class PinState:
    """Lines for all ids before `place`, the last one first."""

    place: int
    line: Line | None = None
    before: PinState | None = None

    def lines(self) -> Iterator[Line]:
        if self.line is not None and self.before is not None:
            yield from self.before.lines()
            yield self.line


@dataclass(frozen=True, eq=False)
class PinCandidates:
    """Lines through (twice the position, height) pairs, as arrays: which pair of positions, and the two heights.

    The second height is an edge, by its number; so is the first, unless its number is -1.
    """

    points: list[tuple[int, int]]
    pair: Ints
    height: Floats
    first: Ints
    second: Ints

    @staticmethod
    def joined(parts: Sequence[PinCandidates]) -> PinCandidates:
        before = np.cumsum([0, *(len(part.points) for part in parts)])
        return PinCandidates(
            [pair for part in parts for pair in part.points],
            np.concatenate([part.pair + k for part, k in zip(parts, before, strict=False)]),
            np.concatenate([part.height for part in parts]),
            np.concatenate([part.first for part in parts]),
            np.concatenate([part.second for part in parts]),
        )

    def chosen(self, which: Ints) -> PinCandidates:
        return PinCandidates(self.points, self.pair[which], self.height[which], self.first[which], self.second[which])


class PinnedLines:
    """Lines from left to right over one chain."""

    def __init__(self, ids: Sequence[int], trapped: npt.NDArray[np.bool_], chain: FoldChain, beam: PinBeam) -> None:
        self.ids, self.trapped, self.chain, self.beam = ids, trapped, chain, beam
        self.edges = np.array(chain.edges, dtype=np.float64)
        self.near = float(np.diff(self.edges).min(initial=TOP)) / 4
        self.scale = 1 << max(8, 2 * (ids[-1] - ids[0]).bit_length() - PRECISION)
        self.steps = chain.blocks(self.scale)
        self.gaps = [b - a for a, b in pairwise(ids)]
        self.changes = np.flatnonzero(trapped[1:] != trapped[:-1])
        self.known: dict[int, tuple[PinCandidates, Ints]] = {}

    def run(self, most: int) -> Focused | None:
        """At most so many lines for all ids, or None."""
        states = [PinState(0)]
        for count in range(1, most + 1):
            found = [after for state in states for after in self._after(state)]
            done = next((state for state in found if state.place == len(self.ids)), None)
            if done is not None:
                return Focused(self.chain, tuple(done.lines()), self.scale)
            states = self._best(found)
            if not states or (count >= 8 and len(self.ids) * count > HOPELESS * most * states[0].place):
                return None
        return None

    def _best(self, found: list[PinState]) -> list[PinState]:
        """The farthest, where a gap that is wide for its surroundings counts as ids: the next line meets this one
        there. Not too many at one id."""
        kept: list[PinState] = []
        at: dict[int, int] = {}
        for state in sorted(found, key=lambda state: -state.place - self._room(state.place)):
            at[state.place] = at.get(state.place, 0) + 1
            if at[state.place] <= max(2, self.beam.states // 3):
                kept.append(state)
        return kept[: self.beam.states]

    def _room(self, place: int) -> float:
        around = [gap.bit_length() for gap in self.gaps[max(0, place - 6) : place + 6]]
        return max(0, self.gaps[place - 1].bit_length() - median_low(around)) / 4

    def _after(self, state: PinState) -> Iterator[PinState]:
        """Return the continuations of a state's lines."""
        place = state.place
        farthest = found = 0
        for options, k, reach in self._options(place, state.line):
            if found == self.beam.lines or reach < farthest - WORSE:
                break
            line = self._line(place, reach, options, k, state.line)
            if line is None:
                continue
            farthest, found = max(farthest, line.count), found + 1
            yield PinState(place + line.count, line, state)
            if place + line.count < len(self.ids):
                fewer = range(max(1, line.count - SHORTER), line.count)
                for count in sorted(fewer, key=lambda count: -self.gaps[place + count - 1])[:2]:
                    short = replace(line, last=self.ids[place + count - 1], count=count)
                    yield PinState(place + count, short, state)

    def _options(self, place: int, before: Line | None) -> Iterator[tuple[PinCandidates, int, int]]:
        """Lines that start here, as numbers in arrays of them, and how many ids they hold; the farthest first."""
        if place not in self.known:
            pinned = self._pinned(place)
            self.known[place] = pinned, self._reach(place, pinned)
        parts = [self.known[place]]
        if before is not None:
            through = self._through(place, before)
            parts = [self._meeting(place, before, *parts[0]), (through, self._reach(place, through))]
        reaches = np.concatenate([reach for _, reach in parts])
        for k in np.argsort(-reaches, kind="stable")[:KEPT].tolist():
            if not reaches[k]:
                return
            first = len(parts[0][1])
            options = parts[0][0] if k < first else parts[1][0]
            yield options, k if k < first else k - first, int(reaches[k])

    @np.errstate(over="ignore", invalid="ignore")
    def _meeting(self, place: int, before: Line, lines: PinCandidates, reach: Ints) -> tuple[PinCandidates, Ints]:
        """Return those that may meet the previous line in the gap: on its other side there, up to float rounding."""
        rises = self.edges[lines.second] - lines.height
        apart = []
        for x in (before.last, self.ids[place]):
            share = np.array([_share(2 * x - a, b - a) for a, b in lines.points])[lines.pair]
            apart.append(lines.height + rises * share - _share(before.at(x), self.scale))
        low, high = np.minimum(*apart), np.maximum(*apart)
        which = np.flatnonzero((low <= self.near) & (high >= -self.near) & (reach > 0))
        return lines.chosen(which), reach[which]

    def _ahead(self, place: int) -> list[int]:
        """Changes of the label within reach: between id k and the next."""
        first, last = np.searchsorted(self.changes, (place, min(place + AHEAD, len(self.ids)) - 1))
        return [int(k) for k in self.changes[first:last]]

    def _middle(self, change: int) -> int:
        return self.ids[change] + self.ids[change + 1]

    def _pinned(self, place: int) -> PinCandidates:
        """Lines through two of the narrowest gaps in which the label changes, for every number of changes ahead."""
        ahead = self._ahead(place)
        pairs: dict[tuple[int, int], None] = {}
        narrow: list[int] = []
        for change in ahead:
            narrow = sorted([*narrow, change], key=self.gaps.__getitem__)[:NARROWEST]
            pairs.update({(a, b): None for a in narrow for b in narrow if a < b})
        found = [
            self._between(self._middle(a), self._middle(b), bool(self.trapped[a]), bool(self.trapped[b]))
            for a, b in pairs
        ]
        if not pairs:  # one change or none is left within reach: the rest of the line may end anywhere
            end = min(place + AHEAD, len(self.ids)) - 1
            far = 2 * self.ids[end] + 2 * self.gaps[max(0, end - 1)]
            at = (self._middle(ahead[0]), bool(self.trapped[ahead[0]])) if ahead else (2 * self.ids[place] - 1, None)
            found = [self._between(at[0], far, at[1], None)]
        return PinCandidates.joined(found)

    def _between(self, a: int, b: int, left: bool | None, right: bool | None) -> PinCandidates:
        """All lines through two positions at edges where the label changes as it should (None: either way)."""
        first, second = self._turns[left, right]
        return PinCandidates([(a, b)], np.zeros(len(first), np.int64), self.edges[first], first, second)

    @cached_property
    def _turns(self) -> dict[tuple[bool | None, bool | None], tuple[Ints, Ints]]:
        """Return pairs of edges by the label trapped before them: below an edge of even number, if the line rises."""
        first, second = np.nonzero(~np.eye(len(self.edges), dtype=bool))
        found = {}
        for left in (True, False, None):
            for right in (True, False, None):
                good = np.ones(len(first), np.bool_)
                for edge, wanted in ((first, left), (second, right)):
                    if wanted is not None:
                        good &= self._trapped_before(edge, second > first) == wanted
                found[left, right] = (first[good], second[good])
        return found

    @staticmethod
    def _trapped_before(edge: Ints, rising: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (edge % 2 == 0) == rising
        return found

    def _through(self, place: int, before: Line) -> PinCandidates:
        """Lines through a point of the line before, in the gap, with one pin."""
        gap, steps, halves = self.ids[place] - before.last, *JOINTS
        at = {before.last + gap * k // steps for k in range(steps + 1)}
        at |= {x for k in range(1, halves) for x in (before.last + (gap >> k), self.ids[place] - (gap >> k))}
        narrow: list[int] = []
        pinned: dict[int, None] = {}
        for change in self._ahead(place)[: NARROWEST * 4]:
            narrow = sorted([*narrow, change], key=self.gaps.__getitem__)[:2]
            pinned.update(dict.fromkeys(narrow))
        points = [(2 * x, self._middle(change)) for change in pinned for x in sorted(at)]
        heights = np.array([_share(before.at(x), self.scale) for _ in pinned for x in sorted(at)])
        left = np.array([bool(self.trapped[change]) for change in pinned for _ in at], np.bool_)
        pair = np.repeat(np.arange(len(points)), len(self.edges))
        second = np.tile(np.arange(len(self.edges)), len(points))
        height = heights[pair] if len(points) else np.empty(0)
        rise = self.edges[second] - height
        good = (rise != 0) & (self._trapped_before(second, rise > 0) == left[pair])
        return PinCandidates(points, pair[good], height[good], np.full(int(good.sum()), -1), second[good])

    @np.errstate(over="ignore", invalid="ignore")  # ids beyond floats: lines that leave their range are trapped
    def _reach(self, place: int, lines: PinCandidates) -> Ints:
        """Count the ids from here on that each line fits, in floats."""
        count = np.zeros(len(lines.pair), np.int64)
        live = np.arange(len(lines.pair))
        rises = self.edges[lines.second] - lines.height
        for k in range(place, min(place + 2 * AHEAD, len(self.ids))):
            twice = 2 * self.ids[k]
            from_first = np.array([_share(twice - a, b - a) for a, b in lines.points])[lines.pair[live]]
            from_second = np.array([_share(twice - b, b - a) for a, b in lines.points])[lines.pair[live]]
            rise, first, second = rises[live], lines.first[live], lines.second[live]
            below = np.searchsorted(self.edges, lines.height[live] + rise * from_first, side="right")
            for share, edge in ((from_first, first), (from_second, second)):
                past = rise * share  # beside a pin only the side counts, which the sum may have rounded away
                below = np.where((edge >= 0) & (np.abs(past) < self.near), edge + (past > 0), below)
            live = live[(below % 2 == 0) == self.trapped[k]]
            if not len(live):
                break
            count[live] += 1
        return count

    def _line(self, place: int, count: int, lines: PinCandidates, k: int, before: Line | None) -> Line | None:
        """The line in integers, over as many of these ids as it fits, if it meets the previous one."""
        a, b = lines.points[lines.pair[k]]
        end = self.chain.edges[lines.second[k]] * self.scale
        if lines.first[k] >= 0:
            start = self.chain.edges[lines.first[k]] * self.scale
        else:
            assert before is not None
            start = before.at(a // 2)
        slope = 2 * (end - start) // (b - a)
        line = Line(slope, end - slope * b // 2, self.ids[place], self.ids[place], 1)
        if before is not None and not crosses(before, line):
            return None
        right = 0
        while right < count:
            if (run_blocks(self.steps, line.at(self.ids[place + right])) < 0) != self.trapped[place + right]:
                break
            right += 1
        return replace(line, last=self.ids[place + right - 1], count=right) if right else None


def _share(part: int, whole: int) -> float:
    """part / whole, rounded once, however long both are."""
    try:
        return part / whole
    except OverflowError:
        return inf if (part > 0) == (whole > 0) else -inf
