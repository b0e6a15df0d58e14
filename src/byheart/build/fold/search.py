"""Groups of neighbouring ids, each on a separate line; neighbouring lines meet in the gap between their groups.

The selector is one block with one unit per group: lines f_j = S_j·x + c_j are joined by eps·relu(w·x - b), w = |S_j -
S_{j-1}|, iff they cross in the gap, w·last <= b <= w·first (docs/compact.md, Lemma 3). Slopes alternate
in sign, so every line runs once through the range. A group's digits are found by a method's beam search (traps, walk);
a line is taken only after the method's own folds, in exact integers, gave every id of the group its label.

Segments of the ids are solved independently of each other, and joined by groups that meet lines on both sides. What
is done depends on data, method, beam and seed only, never on the executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Protocol

import numpy as np
import numpy.typing as npt

from byheart.build.fold._kernel import LIMB_BITS, WIDTH_BITS, W
from byheart.build.fold.block import StreamBlock, Unit
from byheart.errors import BuildError

LIMB = int(LIMB_BITS)
WIDE = float(W)
STRETCH = 4  # bits that a group's coordinates have more than its ids
LEAST_BITS = 14  # of coordinates
STARTS = 8  # per candidate of the beam
SMALL_GROUP = 48  # ids up to which a group that was found is tried with more
JOINT_DRAWS = 60  # times as many for a line that must meet two others
SLACK = 4 + float(int(W) >> 24)  # bound on the error of floats and truncated bits
FAR = 1 << 200  # leading words farther away than this are as good as there
STEEP = 1e200  # a slope that is as good as upright, whose products are still floats
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Found:
    """Which start, and the digits after it."""

    start: int
    digits: tuple[int, ...]


@dataclass(frozen=True)
class Line:
    """value = slope·x + constant for the `count` ids from first to last."""

    slope: int
    constant: int
    first: int
    last: int
    count: int

    def at(self, x: int) -> int:
        return self.slope * x + self.constant


@dataclass(frozen=True)
class Placed:
    """Coordinates of a group: ((x - middle)·times) >> shift, between -W and W."""

    middle: int
    times: int
    shift: int

    def __call__(self, x: int) -> int:
        return ((x - self.middle) * self.times) >> self.shift


@dataclass(frozen=True)
class Frame:
    """How ids become words: the widest group half, and as many fractions of 44 bits as its ids need."""

    limbs: int
    shift: int  # the largest shift of a group
    pad: int  # zeros at the end of all coordinates
    widest: int
    tail: int | None = None  # bits of the walk's last digits: coordinates are whole multiples of W·2^-tail

    @property
    def width(self) -> int:
        return 1 << (WIDTH_BITS + LIMB * self.limbs)

    @staticmethod
    def stretched(half: int, precision: int) -> Frame:
        """Any scale will do, and `precision` bits are enough: for traps. `half`: of the widest group to expect."""
        wanted = min(half.bit_length() + STRETCH, precision)
        limbs = max(0, -(-(wanted - WIDTH_BITS) // LIMB))
        room = WIDTH_BITS + LIMB * limbs
        shift = max(0, half.bit_length() + STRETCH - room)
        pad = 0 if limbs else max(0, min(room - half.bit_length() - STRETCH, WIDTH_BITS - LEAST_BITS))
        return Frame(limbs, shift, pad, half << 1)

    @staticmethod
    def whole(tail: int, zeros: int) -> Frame:
        """Whole numbers of `tail` bits, twice the distance from the middle: for the walk."""
        limbs = max(0, -(-(tail - WIDTH_BITS) // LIMB))
        pad = WIDTH_BITS + LIMB * limbs - tail
        return Frame(limbs, zeros, pad, 1 << (tail - 1), tail)

    def place(self, ids: Sequence[int]) -> Placed | None:
        """Coordinates of a group, None if it is too wide."""
        first, last = ids[0], ids[-1]
        if self.tail is None:
            middle = (first + last) >> 1
            half = max(last - middle, middle - first, 1)
            if half > self.widest:
                return None
            room = WIDTH_BITS + LIMB * self.limbs
            shift = min(self.shift, max(0, half.bit_length() + STRETCH - room))
            times = (1 << (room + shift - self.pad)) // half << self.pad
            return Placed(middle, times, shift) if times else None
        zeros = min(self.shift, common_zeros(ids))
        middle = first + ((last - first) >> (zeros + 1) << zeros)
        half = max((last - middle) >> zeros, (middle - first) >> zeros, 1)
        if half > self.widest:
            return None
        return Placed(middle, 2 * ((1 << self.tail) // (2 * half)) << self.pad, zeros)

    @property
    def grain(self) -> int:
        """Return the common divisor of a start's constants, in leading words."""
        if self.limbs:
            return 1
        return 1 << (self.pad + (self.tail is not None))


def common_zeros(ids: Sequence[int]) -> int:
    """Zeros at the end of all differences; 0 for a single id."""
    common = 0
    for x in ids:
        common |= x - ids[0]
    return max(0, (common & -common).bit_length() - 1)


class Method(Protocol):
    """The problem of a group: the folds that all groups share."""

    @property
    def range_bits(self) -> int: ...
    @property
    def doublings(self) -> int: ...
    def search(self, delta: Ints, labels: Ints, starts: Ints, beam: int) -> Found | int: ...
    def line(self, slope: int, constant: int, digits: tuple[int, ...], width: int) -> tuple[int, int]: ...
    def checks(self, values: list[int], labels: list[int], unit: int) -> bool: ...


@dataclass(frozen=True, eq=False)
class Segment:
    """Ascending ids with their labels, and how they are to be solved; plain data that travels to any worker."""

    ids: Sequence[int]
    labels: Ints
    method: Method
    frame: Frame
    beam: int
    size: int  # guess of the ids in a group
    seed: tuple[int, ...]
    joined: bool = False  # another segment follows: leave the last groups to the joint
    before: Line | None = None
    after: Line | None = None
    odd: bool = False  # after an odd number of lines

    @property
    def unit(self) -> int:
        """1 at level 0, as a value of a line."""
        return 1 << (self.method.doublings + LIMB * self.frame.limbs + self.frame.shift)


@dataclass(frozen=True)
class Solved:
    """Lines of a segment; how many tries found none, and how many lines the exact check refused."""

    lines: tuple[Line, ...]
    failed: int = 0
    refused: int = 0


def solve_segment(segment: Segment) -> Solved:
    """Lines from left to right; the last two groups or so are dropped from a segment that will be joined."""
    return _Search(segment).run()


class _Search:
    """One walk along a segment. Groups grow until they fail, and fail until they shrink."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.rng = np.random.default_rng(segment.seed)
        self.lines: list[Line] = []
        self.failed = self.refused = 0
        self.reached = 0

    def run(self) -> Solved:
        segment, ids = self.segment, self.segment.ids
        place, size, growth = 0, segment.size, 0.03
        stop = len(ids)
        while place < stop:
            rest = stop - place
            if segment.joined and rest < 2.5 * size and self.lines:
                break
            line, tries = self._group(place, self._wanted(size, rest))
            self.lines.append(line)
            place += line.count
            if tries:
                growth = 0.0
                size = max(2, size - max(2, size // 100))
            elif line.count < rest:
                size += max(1, int(growth * size))
        return Solved(tuple(self.lines), self.failed, self.refused)

    def _wanted(self, size: int, rest: int) -> int:
        """Ids of the next group; before a line that must be met, an even number of lines in all."""
        if self.segment.after is None:
            return min(size, rest)
        groups = ceil(rest / (0.94 * size))
        groups += (groups + len(self.lines) + self.segment.odd) % 2
        return min(size, ceil(rest / groups))

    def _group(self, place: int, wanted: int) -> tuple[Line, int]:
        ids, after = self.segment.ids, self.segment.after
        rest = len(ids) - place
        before = self.lines[-1] if self.lines else self.segment.before
        up = (len(self.lines) + self.segment.odd) % 2 == 0
        tries = -1
        while True:
            tries += 1
            last = after is not None and wanted >= rest and not up
            count = rest if last else self._end(place, wanted)
            line = self._try(before, up, place, count, after if last else None)
            if line is None and self.reached < self.segment.method.doublings // 3:
                line = self._try(before, up, place, count, after if last else None)
            if line is not None:
                return (line if tries or after else self._grown(line, before, up, place)), tries
            self.failed += 1
            if last and tries < 2:
                continue
            wanted = rest // 3 + 1 if last else count - max(1, wanted // 40)
            if wanted < 1:
                raise GroupError(f"no line for the id {ids[place]} alone")

    def _grown(self, line: Line, before: Line | None, up: bool, place: int) -> Line:
        """Capacities of small groups differ much: ids are added until two tries in a row fail."""
        wanted, misses = line.count, 0
        while misses < 2 and wanted < SMALL_GROUP and place + wanted < len(self.segment.ids):
            wanted += 1
            count = self._end(place, wanted)
            longer = self._try(before, up, place, count, None) if count > line.count else line
            misses = misses + 1 if longer is None else 0
            line = longer or line
        return line

    def _end(self, place: int, wanted: int) -> int:
        """How many ids up to the widest of the last gaps, one that a line of this range can turn in."""
        ids, method = self.segment.ids, self.segment.method
        if place + wanted >= len(ids):
            return len(ids) - place if self.segment.after is None else max(1, len(ids) - place - 1)
        look = min(wanted, max(2, wanted // 24))
        least = (ids[place + wanted - 1] - ids[place]) >> (method.range_bits - 2)
        while True:
            gaps = [ids[k + 1] - ids[k] for k in range(place + wanted - look, place + wanted)]
            if max(gaps) >= least or look >= wanted - 1:
                return wanted - look + 1 + gaps.index(max(gaps))
            look = min(wanted - 1, 2 * look)

    def _try(self, before: Line | None, up: bool, place: int, count: int, after: Line | None) -> Line | None:
        segment, frame, method = self.segment, self.segment.frame, self.segment.method
        ids = segment.ids[place : place + count]
        placed = frame.place(ids)
        self.reached = method.doublings
        if placed is None:
            return None
        starts = _starts(self.rng, segment, placed, ids, before, up, after)
        if starts is None:
            return None
        labels = segment.labels[place : place + count]
        found = method.search(_words([placed(x) for x in ids], frame.limbs), labels, starts, segment.beam)
        if isinstance(found, int):
            self.reached = found
            return None
        s, u = int(starts[0, found.start]), int(starts[1, found.start]) << (LIMB * frame.limbs)
        slope, constant = method.line(s, u, found.digits, frame.width)
        slope = slope * placed.times << (frame.shift - placed.shift)
        line = Line(slope, (constant << frame.shift) - slope * placed.middle, ids[0], ids[-1], count)
        right = method.checks([line.at(x) for x in ids], labels.tolist(), segment.unit)
        if not right or (before and not crosses(before, line)) or (after and not crosses(line, after)):
            self.refused += 1
            return None
        return line


class GroupError(BuildError):
    """A group of one id has no line: the ids need another range, or to be hashed first."""


def _words(values: Sequence[int], limbs: int) -> Ints:
    """(1 + limbs, n): leading word and fractions of 44 bits."""
    out = np.empty((limbs + 1, len(values)), np.int64)
    for k in range(limbs, 0, -1):
        out[k] = [v & ((1 << LIMB) - 1) for v in values]
        values = [v >> LIMB for v in values]
    out[0] = values
    return out


def crosses(before: Line, after: Line) -> bool:
    """Whether the lines meet in the gap between their groups."""
    d_last = after.at(before.last) - before.at(before.last)
    d_first = after.at(after.first) - before.at(after.first)
    return d_last <= 0 <= d_first if after.slope > before.slope else d_last >= 0 >= d_first


@np.errstate(over="ignore", invalid="ignore")  # ids beyond floats: lines that leave their range never fit
def _starts(
    rng: np.random.Generator,
    segment: Segment,
    placed: Placed,
    ids: Sequence[int],
    before: Line | None,
    up: bool,
    after: Line | None,
) -> Ints | None:
    """(2, count) slopes and constants at level 0 whose whole cell stays in the range and meets the neighbours.

    All numbers here are leading words as floats: the lines that are found are checked exactly.
    """
    count = STARTS * segment.beam * (JOINT_DRAWS if after else 1)
    top = WIDE * 2**segment.method.range_bits
    low = LIMB * segment.frame.limbs

    def word(x: int) -> float:
        return float(max(min(placed(x) >> low, FAR), -FAR))

    first, end = word(ids[0]), word(ids[-1])
    goal = rng.uniform(0.80, 0.97, count) * top if up else rng.uniform(0.03, 0.20, count) * top
    if before is None:
        s = np.floor((goal - 0.05 * top) / max(WIDE, end - first))
        u = 0.05 * top - s * first
    else:
        last, height, slope = word(before.last), before.at(before.last) / segment.unit, _slope(before, segment, placed)
        gap = first - last
        if after is not None:
            there, height_there, slope_there = word(after.first), after.at(after.first) / segment.unit, 0.0
            slope_there = _slope(after, segment, placed)
            right = there - rng.uniform(0, 1, count) * (there - end)
            left = last + rng.uniform(0, 1, count) * gap
            rise = height_there + slope_there * (right - there) - height - slope * (left - last)
            s = np.round(rise / (right - left))
        elif gap > 0.3 * WIDE:  # a wide gap: lines meet wherever they start
            begin = _beginnings(rng, up, count, top, height + slope * gap, abs(first) + WIDE + SLACK)
            s = np.round((goal - begin) / max(WIDE, end - first))
        else:
            s = np.round((goal - height) / max(WIDE / 8, end - last))
        side = 1.0 if up else -1.0
        at_last, at_first = abs(last) + WIDE + SLACK, abs(first) + WIDE + SLACK
        if after is None and gap > 0.3 * WIDE:
            u = np.round(begin - s * first)
        else:
            room = side * (s - slope) * gap - at_last - at_first
            shift = np.minimum(room, 0.1 * top)
            s, shift = s[room > 0], shift[room > 0]
            u = np.round(height - side * (at_last + shift * rng.uniform(0, 1, len(s))) - s * last)
        fits = (side * (height - s * last - u) > at_last) & (side * (s * first + u - height - slope * gap) > at_first)
        s, u = s[fits], u[fits]
        if after is not None:
            fits = (s * end + u - height_there - slope_there * (end - there) > abs(end) + WIDE + SLACK) & (
                height_there - s * there - u > abs(there) + WIDE + SLACK
            )
            s, u = s[fits], u[fits]
    begin, finish = s * first + u, s * end + u
    inside = (np.minimum(begin, finish) > 2 * WIDE) & (np.maximum(begin, finish) < top - 2 * WIDE)
    s, u = s[inside][: STARTS * segment.beam], u[inside][: STARTS * segment.beam]
    if len(s) < 4:
        return None
    grain = segment.frame.grain
    return np.stack([s.astype(np.int64), u.astype(np.int64) // grain * grain])


def _beginnings(
    rng: np.random.Generator, up: bool, count: int, top: float, old: float, margin: float
) -> npt.NDArray[np.float64]:
    """Heights at the first id: near the bottom but above the line before (going up), or near the top but below it."""
    near = rng.uniform(0, 0.17, count) * top
    return max(0.03 * top, old + margin) + near if up else min(0.97 * top, old - margin) - near


def _slope(line: Line, segment: Segment, placed: Placed) -> float:
    """Leading words of value per leading word of a coordinate; of a line that is too steep for floats, the sign."""
    value, coordinate = line.slope << placed.shift, placed.times * (segment.unit >> (LIMB * segment.frame.limbs))
    try:
        return value / coordinate  # both may be longer than a float
    except OverflowError:
        return STEEP if value > 0 else -STEEP


def selector(lines: Sequence[Line], times: int = 1, shift: int = 0) -> StreamBlock:
    """One unit per line: x -> times·(its line) + shift on the ids of each."""
    first = lines[0]
    units: list[Unit] = [(1, 0, first.slope * times - 1)]
    for before, after in pairwise(lines):
        if not crosses(before, after):
            raise BuildError("two lines of the label memory do not meet between their groups")
        change = (after.slope - before.slope) * times
        sign = 1 if change > 0 else -1
        units.append((abs(change), sign * (after.constant - before.constant) * times, sign))
    return StreamBlock(tuple(units), first.constant * times + shift)
