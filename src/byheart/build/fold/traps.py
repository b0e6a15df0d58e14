"""Traps: a fold whose threshold is a little low throws the top of the range below zero, where no later block acts.

    v  <-  v - relu(2v - T),   T = (1 - share)·R:     [0, T/2] stays, (T/2, T] is reflected, (T, R] is trapped below 0.

A key is decided at one level, for good. Two classes: trapped is one label, not trapped the other, read by the sign.
More classes: one phase per label but one; between phases the range is turned over, so that the bands of the phases stay
apart in order (docs/compact.md, Lemma 5). The widths of the traps give every level the same share of the information
in the labels, whose frequencies therefore count: a skewed label costs its entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.build.fold._kernel import WIDTH_BITS, W
from byheart.build.fold._trap_beam import trap_beam
from byheart.build.fold.block import Reading, StreamBlock, run_blocks
from byheart.build.fold.search import Found
from byheart.exact import reflections
from byheart.exact.reference import Block as Fold

EXTRA = 12  # steps after the last level that only settle on which side of 0 a key is
FINE = WIDTH_BITS - 1  # a table has a column per W/2
# Far below every value that can still be trapped.
LOW = -10 * int(W)
WINDOW = 1.15  # reach of the digits to come, in W
LOG_UNIT = 600.0  # tables hold logarithms times this
# The logarithm of a share that is treated as 0.
DEAD = -32000
LEAST_TRAP = 2.0  # in W: a key beside a kink is surely inside or outside of the next trap
FIRST_TRAP = 8.0  # in W: of a later phase; it contains every key beside an edge when the range turned
MOST_CLASSES = 64  # beyond 16 only long ids make them worth their reading
MOST_WARM = 5  # folds without traps before several phases
MANY_FOLDS = 20_000  # of single values, from which they are worth compiling

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Traps:
    """The parameters of the folds besides the data: `levels` of them, the shares of the labels, the width of the range.

    `order` are the labels as they are trapped, phase by phase; the last one is the rest.
    """

    levels: int
    shares: tuple[float, ...]  # of the labels in `order`
    order: tuple[int, ...]
    range_bits: int  # the range before level 0 is W·2^range_bits
    warm: int = 0  # preceding folds without traps, which pull close ids apart
    pad: int = 0  # zeros at the end of thresholds

    @property
    def steps(self) -> int:
        return self.levels + EXTRA

    @property
    def classes(self) -> int:
        return len(self.shares)

    @property
    def parameters(self) -> int:
        """Of folds and reading, without the groups."""
        reading = 4 if self.classes == 2 else 3 * (self.classes - 2) + 1 + 2 * self.classes
        return 4 * self.levels + reading

    def search(self, delta: Any, labels: Any, starts: Any, beam: int) -> Found | int:
        """Digits of a line that gives every key its label, or the level at which none was left."""
        folds = _folds(self)
        n, limbs = delta.shape[1], delta.shape[0]
        wide = max(starts.shape[1], 4 * beam)
        place = np.empty(self.classes, np.int64)
        place[list(self.order)] = np.arange(self.classes) * folds.size
        trace = np.zeros((self.steps + 1, 2, beam), np.int32)
        by_label = np.argsort(labels, kind="stable")  # one label's table after the other: they fit the nearest cache
        k, c = trap_beam(self.classes > 2, limbs > 1)(
            np.ascontiguousarray(delta[:, by_label]),
            place[labels[by_label]],
            starts,
            folds.levels,
            folds.table,
            FINE,
            LOW,
            folds.size,
            self.classes * folds.size,
            beam,
            np.zeros((2, beam, limbs, n), np.int64),
            np.zeros((2, beam, 2, n), np.int32),
            np.zeros((2, beam), np.int64),
            np.zeros(wide, np.int64),
            np.zeros(wide, np.int64),
            trace,
        )
        if c < 0:
            return int(k)
        digits: list[int] = []
        for j in range(k - 1, 0, -1):
            digits.append(int(trace[j, 0, c]))
            c = int(trace[j + 1, 1, c])
        start = int(trace[0, 1, trace[1, 1, c]])
        return Found(start, tuple(digits[::-1]))

    def line(self, slope: int, constant: int, digits: tuple[int, ...], width: int) -> tuple[int, int]:
        """Slope and constant after all steps, the missing digits being zero."""
        for d in digits:
            slope = 2 * slope + 1 - (d & 2)
            constant = 2 * constant + (width if d & 1 == 0 else -width)
        left = self.steps - 1 - len(digits)
        return slope << left, constant << left

    @property
    def doublings(self) -> int:
        """After all steps a value is this many times doubled."""
        return self.steps - 1

    def checks(self, values: list[int], labels: list[int], unit: int) -> bool:
        """Whether the folds themselves, in exact integers, send these values to their labels."""
        chain = _exact_chain(self, unit)
        if min(values) < 0 or max(values) > chain.top:
            return False
        ends = chain.ends(values)
        if self.classes == 2:
            trapped = self.order[0]
            return all((v < 0) == (y == trapped) for v, y in zip(ends, labels, strict=True))
        (last,) = chain.blocks[self.levels :]
        return all(chain.reading.label(last(v)) == y for v, y in zip(ends, labels, strict=True))

    def folds(self, unit: int, head: str, zeros: int = 0, times: int = 1) -> tuple[tuple[StreamBlock, ...], Reading]:
        """The folds and how they are read; `unit` is 1 at level 0, all numbers end in `zeros` that are removed."""
        blocks, reading = self._blocks(_folds(self), unit, zeros, times)
        if head == "value":
            more, reading = zero_or_one(self.order[0])
            return (*blocks, *more), reading
        return blocks, reading

    def _blocks(
        self, folds: _Folds, unit: int, zeros: int = 0, times: int = 1
    ) -> tuple[tuple[StreamBlock, ...], Reading]:
        blocks: list[StreamBlock] = []
        up, base = True, 0  # the range is base + v, or base - v
        bands: list[int] = []
        for k in range(self.levels):
            span, edge, _, turn = (int(t) for t in folds.levels[k])
            if k == self.warm or folds.levels[k - 1, 3] >= 0:
                bands.append(((span - edge) * unit >> (k + zeros)) * times)
            threshold = (edge * unit >> (k + zeros)) * times
            blocks.append(StreamBlock(((2 if up else -2, 2 * base - threshold, -1 if up else 1),)))
            if turn >= 0:
                base = threshold // 2 - base
                up = not up
        if self.classes == 2:
            sign = -1 if up else 1  # depth below 0 is sign·z - base, at least 1 when trapped
            rows = {self.order[0]: (2 * sign, -2 * base - 1), self.order[1]: (0, 0)}
            return tuple(blocks), Reading.logits([rows[y] for y in range(2)])
        more, reading = _read_bands(
            bands, base, up, self.order, (8 * (int(W) << self.range_bits) * unit >> zeros) * times
        )
        return (*blocks, more), reading


@dataclass(frozen=True, eq=False)
class _ExactChain:
    """The folds of all groups as exact integers, for values from 0 to `top`."""

    folds: tuple[StreamBlock, ...]
    blocks: tuple[StreamBlock, ...]  # the folds, and the blocks that read bands
    reading: Reading
    top: int

    @cached_property
    def compiled(self) -> reflections.Chain:
        steps = [Fold((((0, w),),), (b,), (((0, out),),), (0,)) for ((w, b, out),) in (f.units for f in self.folds)]
        return reflections.Chain.of(steps, denominator=1, largest=self.top)

    def ends(self, values: list[int]) -> list[int]:
        """Where the folds send the values; compiled where there are enough of them."""
        if len(values) * len(self.folds) < MANY_FOLDS:
            return [int(run_blocks(self.folds, v)) for v in values]  # type: ignore[arg-type]
        return self.compiled(values)


@lru_cache(maxsize=4)
def _exact_chain(traps: Traps, unit: int) -> _ExactChain:
    blocks, reading = traps._blocks(_folds(traps), unit)
    return _ExactChain(blocks[: traps.levels], blocks, reading, (int(W) << traps.range_bits) * unit)


def zero_or_one(trapped: int) -> tuple[tuple[StreamBlock, ...], Reading]:
    """1 below zero and 0 above, for whole numbers: relu(-v) - relu(-v - 1), with v itself taken away."""
    block = StreamBlock(((1, 0, -1), (-1, 0, 2), (-1, -1, -1)))
    return (block,), Reading.value(1, 0) if trapped == 1 else Reading.value(-1, 1)


def _read_bands(bands: list[int], base: int, up: bool, order: tuple[int, ...], big: int) -> tuple[StreamBlock, Reading]:
    """One block and C logits. The depth below 0 encodes the phase: values above 0, then the last phase's band, …

    Between the edges of a band the block has slope D/width, so that its value is about D·(number of the band), and
    the logits D·g·(2h/D - g) are largest at the nearest number g.
    """
    sign = -1 if up else 1  # depth = sign·z - base
    widths = bands[::-1]
    classes = len(order)
    D = 1 << (2 * max(widths).bit_length() + 12)
    slopes = [D // w for w in widths[: classes - 2]]
    first = 2 * sign * slopes[0] - 1
    units: list[tuple[int, int, int]] = [(1, big, first)]
    edge = 0
    for y in range(1, classes - 2):
        edge += widths[y - 1]
        units.append((2 * sign, -2 * base - (2 * edge + 1), slopes[y] - slopes[y - 1]))
    shift = D - slopes[0] * (2 * base + 1) - first * big
    rows = [(0, 0)] * classes
    for g, y in enumerate(order[::-1]):
        rows[y] = (g, -D * g * g)
    return StreamBlock(tuple(units), shift), Reading.logits(rows)


@dataclass(frozen=True, eq=False)
class _Folds:
    levels: npt.NDArray[np.int64]  # (L + 1, 4): range, threshold, row of the trapped label, row of the next or -1
    table: npt.NDArray[np.int16]  # (L + 1, rows·size)
    size: int


@lru_cache(maxsize=4)
def _folds(traps: Traps) -> _Folds:
    levels = _schedule(traps)
    size = int((levels[0, 0] - 2 * LOW) >> FINE) + 2
    levels[:, 2:] = np.where(levels[:, 2:] >= 0, levels[:, 2:] * size, -1)
    return _Folds(levels, _tables(traps, levels, size), size)


def _schedule(traps: Traps) -> npt.NDArray[np.int64]:
    """Ranges and thresholds in units of their level (R after level k is T of level k), phases as indices into `order`.

    With s of all values not yet trapped and r of them still to be trapped in this phase, trapping a share ds costs
    ds·log2(s/r) bits; levels split this sum into equal parts.
    """
    fine = 4000
    done, left, ends = [0.0], [1.0], [0]
    s = 1.0
    for share in traps.shares[:-1]:
        d = share / fine
        r = share - d * (np.arange(fine) + 0.5)
        cost = d * np.log2((s - d * (np.arange(fine) + 0.5)) / r)
        done.extend(done[-1] + np.cumsum(cost))
        left.extend(s - d * (np.arange(fine) + 1))
        s -= share
        ends.append(len(done) - 1)
    cum, remaining = np.array(done), np.array(left)
    phases = traps.classes - 1
    free = traps.levels - traps.warm
    cuts = [traps.warm] + [traps.warm + max(1, round(free * cum[e] / cum[-1])) for e in ends[1:]]
    for j in range(1, phases + 1):
        cuts[j] = min(max(cuts[j], cuts[j - 1] + 1), traps.levels - (phases - j))
    cuts[-1] = traps.levels
    span = int(W) << traps.range_bits
    rows = [(span, span, 0, -1)] * traps.warm
    for j in range(phases):
        a, b = cuts[j], cuts[j + 1]
        grid = np.interp(np.linspace(cum[ends[j]], cum[ends[j + 1]], b - a + 1), cum, remaining)
        for k in range(a, b):
            least = FIRST_TRAP if j and k == a else LEAST_TRAP
            cut = max(1 - grid[k - a + 1] / grid[k - a], least * int(W) / span)
            edge = int(span * (1 - cut)) >> (traps.pad + 1) << (traps.pad + 1)
            rows.append((span, edge, j, j + 1 if k == b - 1 and j < phases - 1 else -1))
            span = edge
    rows.append((span, 0, phases - 1, -1))
    return np.array(rows, np.int64)


def _tables(traps: Traps, levels: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int16]:
    """Logarithm of the share of each label (in `order`) among the values within reach of a position, for every level.

    From the last level to the first: `below[y, i]` is the measure of label y among the values below position i of the
    range; one fold turns the measure after it into the one before it. Two more rows, where there are phases: the share
    of values below and above 0, for keys that only have to end on one side.
    """
    classes, last = traps.classes, traps.levels
    grid = np.linspace(0, 1, (4 << traps.range_bits) + 1)
    below = np.zeros((classes, len(grid)))
    below[classes - 1] = grid * float(levels[last, 0])
    rows = classes + (2 if classes > 2 else 0)
    table = np.empty((last + 1, rows, size), np.int16)
    places = LOW + (np.arange(size) + 0.5) * (1 << FINE)
    reach = WINDOW * float(W)
    if classes > 2:
        under = np.clip((reach - places) / (2 * reach), 0, 1)
        table[:, classes], table[:, classes + 1] = _logarithm(under), _logarithm(1 - under)
    for k in range(last, -1, -1):
        span = float(levels[k, 0])
        if k < last:
            below = _in_front(below, grid, span, float(levels[k, 1]), levels[k, 2] // size, levels[k, 3] >= 0)
        mirrored = k > 0 and (levels[k - 1, 3] >= 0 or levels[k - 1, 1] == levels[k - 1, 0])
        trapped = levels[max(k - 1, 0), 2] // size
        for y in range(classes):
            inside = -1.0 if mirrored else 1.0 if y == trapped else 0.0
            top = _measure(below[y], grid, span, places + reach, inside)
            share = (top - _measure(below[y], grid, span, places - reach, inside)) / (2 * reach)
            table[k, y] = _logarithm(share)
    return table.reshape(last + 1, -1)


def _measure(below: Floats, grid: Floats, span: float, v: Any, inside: float) -> Any:
    """The measure below v, outside of the range too: above, the last fold is undone; below 0 is the trap or a turn."""
    found = np.interp(v / span, grid, below)
    found = np.where(v > span, 2 * below[-1] - np.interp(2 - v / span, grid, below), found)
    under = -np.interp(-v / span, grid, below) if inside < 0 else v * inside
    return np.where(v < 0, under, found)


def _in_front(below: Floats, grid: Floats, span: float, edge: float, trapped: int, turned: bool) -> Floats:
    """The measures before a fold from those after it, where the range is [0, edge] in the finer unit."""
    if turned:
        below = below[:, -1:] - below[:, ::-1]
    v = grid * span
    out = np.empty_like(below)
    for y in range(len(below)):
        low = np.interp(np.minimum(2 * v, edge) / edge, grid, below[y]) / 2
        high = below[y, -1] - np.interp(np.clip(2 * (edge - v), 0, edge) / edge, grid, below[y]) / 2
        out[y] = np.where(2 * v <= edge, low, high)
        if y == trapped:
            out[y] += np.maximum(v - edge, 0)
    return out


def _logarithm(share: Floats) -> npt.NDArray[np.int16]:
    """In units of 1/600; small shares are punished, impossible ones killed."""
    found = LOG_UNIT * np.log(np.clip(share, 2e-3, 1.0)) - 0.5
    found = np.where(share < 2e-3, LOG_UNIT * np.log(2e-3) - 4000, found)
    return np.where(share < 1e-7, DEAD, found).astype(np.int16)


def range_bits(group: float, classes: int) -> int:
    """How wide the range must be for lines to meet in the gaps of groups of this size, and for a trap per phase."""
    return ceil(log2(max(group, 16, classes / 2)) + 3 + (classes > 2))
