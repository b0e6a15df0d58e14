"""The walk: folds with marks leave a weighted sum of all digits of z = S·x + U on the stream; the label is its cell.

    Z = D·z + d0;   block j:  Z  <-  Z - relu(2Z - (2^(Q-j)·D + e_j))

After all folds the stream is d0 + sum of e_j·(b_{j-1} - b_j) over the binary digits b_0, b_1, … of z, if that sum
never leaves (e, D/2 - e), e the largest mark (docs/compact.md, Lemma 6). The marks alternate in sign and fall slowly,
from a third of the range to a part of a cell, so that every free digit of S and U buys the same part of every label,
whatever the number of classes. Cells are equally wide; where logits read them, frequent labels get the cells in the
middle, where a walk ends most often, and cost less. A memory that abstains leaves most cells unused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, erf, floor, log2, sqrt

import numpy as np
import numpy.typing as npt

from byheart.build.fold._kernel import WIDTH_BITS
from byheart.build.fold._walk_beam import BELOW, COLUMNS, ROWS, walk_beam
from byheart.build.fold.block import Reading, StreamBlock
from byheart.build.fold.search import Found, Ints

LOOK = 6  # folds that a table follows exactly
PLACES = 96  # per row of a table, from which columns are averaged
# Logarithms are whole numbers in this unit, so that the search is the same on every machine.
LOG_UNIT = 600.0
START_BITS = 4.0  # that a choice among the starts is worth
LEAVE = 4.5  # deviations from the edges at which a key is as good as decided
FAR = 5.2  # deviations that a walk may go

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Walk:
    """The parameters of the folds besides the data.

    `both` digits of slope and constant, then `tail` digits of the constant only; `shares` of the labels, by cell;
    `width` of a cell in deviations of the whole walk; `spare` cells: closed on both sides, most of them unused.
    """

    both: int
    tail: int
    range_bits: int  # the range before the first fold is W·2^range_bits
    shares: tuple[float, ...]
    closed: bool
    cell: float
    cell_bits: int  # a cell is 2^cell_bits marks wide

    @property
    def classes(self) -> int:
        return len(self.shares)

    @property
    def doublings(self) -> int:
        return self.both + self.tail

    @property
    def before(self) -> int:
        """Folds before the first digit."""
        return self.range_bits - BELOW

    @property
    def folds(self) -> int:
        return self.before + self.both + self.tail + BELOW - 1

    @cached_property
    def sigma(self) -> Floats:
        """Return the deviation of the walk from fold j on: every free digit buys the same number of label bits."""
        ratios, cost = _costs(self.shares, self.closed, self.cell)
        free = np.zeros(self.folds)
        head = self.before + BELOW
        free[:head] = START_BITS / head
        free[head : head + self.both] = 2
        free[head + self.both :] = 1
        left = np.maximum(1 - np.concatenate([[0], np.cumsum(free)]) / free.sum(), 0)
        ratio = np.interp(left * cost[-1], np.concatenate([[0], cost]), np.concatenate([[0], ratios]))
        ratio[left < 1e-12] = 0
        found: Floats = np.sqrt(ratio) * (1 << self.cell_bits) / self.cell
        return found

    @cached_property
    def marks(self) -> Ints:
        sigma = self.sigma
        size = np.sqrt(np.maximum(sigma[:-1] ** 2 - sigma[1:] ** 2, 0))
        return np.array([round(t) * (1 if j % 2 else -1) for j, t in enumerate(size)], np.int64)

    @property
    def lattice(self) -> int:
        """Return D: a whole unit on the stream."""
        cell = 1 << self.cell_bits
        return 4 * int(max(FAR * cell / self.cell, self.classes * cell / 2) + 2 * cell)

    def search(self, delta: Ints, labels: Ints, starts: Ints, beam: int) -> Found | int:
        """Digits of a line that gives every key its label, or the step at which none was left."""
        tables = _tables(self)
        n, limbs, steps = delta.shape[1], delta.shape[0], self.both + self.tail
        half = 1 << (self.cell_bits - 1)
        goals = np.zeros((2, n), np.int64)
        goals[0] = -(2 * labels - (self.classes - 1)) * half
        if not self.closed:
            goals[1] = (labels == 0).astype(np.int64) - (labels == self.classes - 1)
        wide = max(starts.shape[1], 4 * beam)
        trace = np.zeros((steps + 1, 2, beam), np.int32)
        c = walk_beam(limbs > 1)(
            delta,
            goals,
            starts,
            self.marks,
            tables.forms,
            tables.logs,
            self.both,
            half,
            beam,
            np.zeros((2, beam, limbs, n), np.int64),
            np.zeros((2, beam, 4, n), np.int64 if self.lattice >= 1 << 30 else np.int32),
            np.zeros((2, beam), np.int64),
            np.zeros(wide, np.int64),
            np.zeros(wide, np.int64),
            trace,
        )
        if c < 0:
            return steps
        digits: list[int] = []
        for t in range(steps - 1, -1, -1):
            digits.append(int(trace[t, 0, c]))
            c = int(trace[t + 1, 1, c])
        return Found(int(trace[0, 1, c]), tuple(digits[::-1]))

    def line(self, slope: int, constant: int, digits: tuple[int, ...], width: int) -> tuple[int, int]:
        """Slope and constant after all steps."""
        for t, d in enumerate(digits):
            slope = 2 * slope + (1 - (d & 2) if t < self.both else 0)
            constant = 2 * constant + (width if d & 1 == 0 else -width)
        return slope, constant

    def numbers(self, values: list[int], unit: int) -> list[int]:
        """The whole numbers z whose digits are walked along; after all steps a value is 2z + 1 times W."""
        one = self.one(unit)
        return [(v - one) // (2 * one) for v in values]

    def one(self, unit: int) -> int:
        """W after all steps."""
        return (unit << WIDTH_BITS) >> self.doublings

    def checks(self, values: list[int], labels: list[int], unit: int) -> bool:
        """Whether the walks of these values, in exact integers, end in the cells of their labels and never leave."""
        one = self.one(unit)
        if any(v % (2 * one) != one for v in values):
            return False
        z = self.numbers(values, unit)
        if min(z) < 0 or max(z) >> self.folds:
            return False
        walked = walks(z, self.marks)
        room = self.lattice // 4 - int(np.abs(self.marks).max())
        if np.abs(walked).max() >= room:
            return False
        width, classes = 1 << self.cell_bits, self.classes
        place = walked[:, -1] + classes * width // 2
        if ((place % width == 0) & (self.closed | (place > 0) & (place < classes * width))).any():
            return False  # on an edge
        cell = place // width
        if self.closed and ((cell < 0) | (cell >= classes)).any():
            return False
        return bool((np.clip(cell, 0, classes - 1) == labels).all())

    @property
    def digits_of_cell(self) -> int:
        """Bits of the number of a cell, all cells that a walk may end in counted."""
        return (self.cells - 1).bit_length()

    @property
    def cells(self) -> int:
        """Cells that fit into the stream, of which the classes are those in the middle."""
        cells = (self.lattice // 2) >> self.cell_bits
        cells -= (cells - self.classes) % 2
        return cells if self.spare else self.classes

    @property
    def spare(self) -> bool:
        """Whether a walk off the data often ends outside of the cells of the classes."""
        return self.closed and self.cell * self.classes < 1.2

    @property
    def parameters(self) -> int:
        """Of the folds, without groups and head."""
        return 4 * (self.folds + 1)

    def scale(self, head: str) -> int:
        """E: marks are multiples of it, so that a copy of the label fits below."""
        return 1 if head == "logits" else 1 << (self.digits_of_cell + 2)

    def blocks(self, head: str, times: int) -> tuple[tuple[StreamBlock, ...], Reading]:
        """Folds and reading for a stream D·z + D/4 (in units of E·times; + E/2 for the value)."""
        D, E, width = self.lattice, self.scale(head), 1 << self.cell_bits
        odd = 0 if head == "logits" else 1
        thresholds = [((D << (self.folds - j)) + int(mark) + odd) * E for j, mark in enumerate(self.marks)]
        blocks = [_fold(t * times) for t in thresholds]
        if head == "logits":
            blocks.append(_fold(D * times))
            off = (D // 4 - (self.classes - 1) * (width // 2)) * times
            rows = [(2 * g, -2 * g * off - width * times * g * g) for g in range(self.classes)]
            return tuple(blocks), Reading.logits(rows)
        cells, c = self.cells, self.digits_of_cell
        blocks.append(_fold(E * (D + 1) * times, -E * (D // 4 - cells * width // 2) * times))
        for i in range(c + self.cell_bits):
            copied = (1 << (c - i)) - 1 if i < c else 0
            blocks.append(_fold(E * (width << c >> i) * times - copied))
        blocks.append(_fold(E * times))
        return tuple(blocks), Reading.value(-1, E * times // 2 - (cells - self.classes) // 2)


def _fold(threshold: int, shift: int = 0) -> StreamBlock:
    return StreamBlock(((2, -threshold, -1),), shift)


def walks(z: list[int], marks: Ints) -> Ints:
    """(len(z), folds): the sum of marks after every fold, from the binary digits of z."""
    folds = len(marks)
    size = (folds + 7) // 8
    raw = np.frombuffer(b"".join(t.to_bytes(size, "big") for t in z), np.uint8).reshape(len(z), size)
    bits = np.unpackbits(raw, axis=1)[:, 8 * size - folds :].astype(np.int64)
    found: Ints = np.cumsum(np.diff(bits, axis=1, prepend=0) * -marks, axis=1)
    return found


_GRID = np.linspace(-8, 8, 16001)
_NORMAL = 0.5 * (1 + np.array([erf(t / sqrt(2)) for t in _GRID]))


def normal(x: Floats) -> Floats:
    """The normal distribution function."""
    found: Floats = np.interp(x, _GRID, _NORMAL)
    return found


@lru_cache(maxsize=256)
def cells_of(shares: tuple[float, ...], closed: bool) -> tuple[float, float]:
    """(mean cost of a label in bits, width of a cell in deviations): the width that makes labels cheapest."""
    C = len(shares)
    frequencies = np.array(shares)
    best = (float("inf"), 1.0)
    for width in np.geomspace(0.8, 40, 120) / C:
        p = normal((np.arange(C + 1) - C / 2) * width)
        if not closed:
            p[0], p[-1] = 0.0, 1.0
        cost = float((-np.log2(np.maximum(np.diff(p), 1e-30)) * frequencies).sum())
        best = min(best, (cost, float(width)))
    return best


@lru_cache(maxsize=64)
def _costs(shares: tuple[float, ...], closed: bool, width: float) -> tuple[Floats, Floats]:
    """(shares of the walk's variance that are still to come, mean cost of a correct label in bits at each)."""
    points, samples = 40, 1500
    C = len(shares)
    rng = np.random.default_rng(1)
    y = np.minimum(np.searchsorted(np.cumsum(shares), (np.arange(samples) + 0.5) / samples), C - 1)
    low = np.full(samples, True) if closed else y > 0
    top = np.full(samples, True) if closed else y < C - 1
    lo, hi = np.where(low, (y - C / 2) * width, -8.0), np.where(top, (y + 1 - C / 2) * width, 8.0)
    q = normal(lo)
    q = q + (normal(hi) - q) * ((np.arange(samples) * 0.6180339887) % 1)
    x, noise = np.interp(q, _NORMAL, _GRID), rng.normal(size=samples)
    # A memory that abstains has cells far narrower than the walk: the grid goes down to where a cell is nearly sure.
    least = min(1e-9, (width / 30) ** 2)
    few = round(points * np.log10(1e-2 / least) / 7)
    ratios = np.concatenate([np.geomspace(least, 1e-2, few), np.linspace(0.012, 1, points)])
    cost = []
    for r in ratios:
        at, s = x * (1 - r) + sqrt(r * (1 - r)) * noise, sqrt(r)
        p = np.where(top, normal((hi - at) / s), 1.0) - np.where(low, normal((lo - at) / s), 0.0)
        cost.append(-np.log2(np.maximum(p, min(1e-9, width * 1e-4))).mean())
    return ratios, np.maximum.accumulate(np.array(cost))


@dataclass(frozen=True, eq=False)
class _Tables:
    forms: Ints  # (steps + 1, 4): by edges?, bits of a row by middle and by edge, distance at which keys leave
    logs: npt.NDArray[np.int16]  # (steps + 1, 3·ROWS·COLUMNS), the first for the starts


@lru_cache(maxsize=4)
def _tables(walk: Walk) -> _Tables:
    steps, sigma, cell = walk.both + walk.tail, walk.sigma, float(1 << walk.cell_bits)
    forms = np.zeros((steps + 1, 4), np.int64)
    logs = np.empty((steps + 1, 3 * ROWS * COLUMNS), np.int16)
    for t in range(steps + 1):
        j = walk.before + t
        near, rest = max(float(sigma[j]), 1.0), float(sigma[min(j + LOOK, walk.folds)])
        middle = max(0, floor(log2(sqrt(near**2 + (cell / 3.5) ** 2) / 3.5)))
        edge = max(0, floor(log2(near / 3.5)))
        leave = int(LEAVE * sigma[j + 1] + 3 * abs(int(walk.marks[j]))) + 2 if j < walk.folds else 0
        forms[t] = near < cell / 8, middle, edge, leave
        if t == 0:
            logs[0] = _logs(walk.marks, j, rest, cell, middle, edge, wide=2.0)
        if t < steps:
            logs[t + 1] = _logs(walk.marks, j, rest, cell, middle, edge, wide=1.0)
    return _Tables(forms, logs)


def _logs(marks: Ints, j: int, sigma: float, cell: float, middle: int, edge: int, wide: float) -> npt.NDArray[np.int16]:
    """Logarithms of the chance that a value near a column, whose walk is at a row, ends in its cell.

    Rows: deviation from the middle of the cell, from its upper edge, from its lower edge. The next folds are followed
    exactly at `PLACES` positions of the range, the rest of the walk is normal with deviation `sigma`.
    """
    drift = _drifts(marks, j)
    a = np.clip(((np.arange(COLUMNS) + 0.5) * 2)[None] + wide * (np.arange(-1, 2)[:, None] * 4 / 3 - 4) + 0.5, 0, None)
    b = np.clip(
        ((np.arange(COLUMNS) + 0.5) * 2)[None] + wide * (np.arange(-1, 2)[:, None] * 4 / 3 + 4) + 0.5, 0, PLACES
    )
    a, b = a.astype(np.int64), b.astype(np.int64)
    out = np.empty((3, ROWS, COLUMNS))
    scale = max(sigma, 0.3)
    for kind in range(3):
        step = 2.0 ** (middle if kind == 0 else edge)
        at = ((np.arange(ROWS) - ROWS // 2 + 0.5) * step)[:, None] + drift[None]  # (ROWS, PLACES)
        if kind == 0:
            p = normal((at + cell / 2) / scale) - normal((at - cell / 2) / scale)
        else:
            p = normal(-at / scale) if kind == 1 else normal(at / scale)
        total = np.concatenate([np.zeros((ROWS, 1)), np.cumsum(p, axis=1)], axis=1)
        mean = (total[:, b] - total[:, a]) / np.maximum(b - a, 1)  # (ROWS, 3, COLUMNS)
        out[kind] = mean.mean(axis=1)
    logs = np.where(out > 3e-14, LOG_UNIT * np.log(np.clip(out, 3e-14, 1.0)) - 0.5, LOG_UNIT * -30)
    return logs.astype(np.int16).ravel()


def _drifts(marks: Ints, j: int) -> Floats:
    """Return the next folds' steps of a value at each position, from -4W to 20W before fold j (range 16W)."""
    v = (np.arange(PLACES) + 0.5) / PLACES * 24 - 4
    sign, m = np.ones(PLACES), np.zeros(PLACES)
    low, high = v < 0, v > 16
    if j >= 2:  # the fold before the last one is undone
        m[low] = 2.0 * marks[j - 1] - marks[j - 2]
        sign[low] = -1
    if j >= 1:  # the last fold is undone
        m[high] = marks[j - 1]
        sign[high] = -1
    v = np.where(low, -v, np.where(high, 32 - v, v))
    span = 16.0
    for fold in range(j, min(j + LOOK, len(marks))):
        folded = 2 * v > span
        v = np.where(folded, span - v, v)
        m = np.where(folded, marks[fold] - m, m)
        sign = np.where(folded, -sign, sign)
        span /= 2
    found: Floats = sign * m
    return found


def range_bits(group: float) -> int:
    """How wide the range must be for lines to meet in the gaps of groups of this size."""
    return ceil(log2(max(group, 8)) + 4)
