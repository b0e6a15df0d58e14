"""Residual blocks on a stream of one number, as plain integers: the parts of the label memory.

>>> fold = StreamBlock(((1, -8, -2),))          # h <- h - 2 relu(h - 8): reflects values above 8
>>> [fold(h) for h in (3, 8, 11)]
[3, 8, 5]

The number after the last block is read as C logits or as the label itself (`Reading`):

>>> Reading.logits([(0, 0), (-2, -1)]).label(-5), Reading.value(-1, 4).label(3)
(1, 1)

`interpolate` fits a line through every point in one block, the smallest memory for very few ids and the shallowest for
any:

>>> blocks = interpolate([4, 7, 9], [2, 0, 1])
>>> [run_blocks(blocks, x) for x in (4, 7, 9)]
[5, 1, 3]

Folds also hash: random tents pull ids apart that are too close together, or too regularly. Folding h around 2^p plus
a random offset keeps the low bits of h or reflects and shifts them; which of the two depends on bit p. So every bit
above the window adds its own random amount (with alternating signs) to the rest, and close values become twice
as far apart, relative to the rest of the range.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from byheart.exact import Number, bit_length
from byheart.ir.layers import Affine, Matrix, Residual
from byheart.ir.network import Decode
from byheart.paper import Ref, implements

Unit = tuple[Number, Number, Number]  # (w, b, out)


@dataclass(frozen=True)
class StreamBlock:
    """h <- h + sum of out·relu(w·h + b) over its units + shift.

    Attributes:
        units: (w, b, out) of every unit.
        shift: What is added besides.
    """

    units: tuple[Unit, ...]
    shift: Number = 0

    def __call__(self, h: Number) -> Number:
        total = h + self.shift
        for w, b, out in self.units:
            active = w * h + b
            if active > 0:
                total = total + out * active
        return total

    @property
    def parameters(self) -> int:
        return 3 * len(self.units) + 1

    @property
    def total_bits(self) -> int:
        return sum(bit_length(v) for unit in self.units for v in unit) + bit_length(self.shift)

    def layer(self) -> Residual:
        """The same block as a layer of a network."""
        return Residual(
            weight1=Matrix.of([{0: w} for w, _, _ in self.units], columns=1),
            bias1=tuple(b for _, b, _ in self.units),
            weight2=Matrix.of([{j: out for j, (_, _, out) in enumerate(self.units)}], columns=len(self.units)),
            bias2=(self.shift,),
        )


def run_blocks(blocks: Iterable[StreamBlock], h: Number) -> Number:
    """Evaluate blocks one after the other in exact arithmetic, slowly and obviously.

    Args:
        blocks: The blocks.
        h: The stream before them.

    Returns:
        The stream after them.
    """
    for block in blocks:
        h = block(h)
    return h


@dataclass(frozen=True)
class Reading:
    """Rows (w, b) of the output layer; one row is the label itself, more are logits."""

    rows: tuple[tuple[Number, Number], ...]
    decode: Decode

    @staticmethod
    def logits(rows: Sequence[tuple[Number, Number]]) -> Reading:
        return Reading(tuple(rows), Decode.ARGMAX)

    @staticmethod
    def value(weight: Number, bias: Number) -> Reading:
        return Reading(((weight, bias),), Decode.VALUE)

    @property
    def parameters(self) -> int:
        return 2 * len(self.rows)

    def label(self, h: Number) -> Number | None:
        """Return the readout at h: the index of the largest logit (None for a tie), or the value."""
        scores = [w * h + b for w, b in self.rows]
        if self.decode is Decode.VALUE:
            return scores[0]
        top = max(scores)
        return scores.index(top) if scores.count(top) == 1 else None

    def layer(self) -> Affine:
        """The output layer."""
        return Affine(Matrix.of([{0: w} if w else {} for w, _ in self.rows], 1), tuple(b for _, b in self.rows))


def interpolate(ids: Sequence[int], labels: Sequence[int]) -> tuple[StreamBlock, ...]:
    """A block with h = x -> 2·label + 1 for ascending ids >= 0; at most one unit per id.

    Lines of slope 2S, -2S, 2S, … go through one point each, S the largest label difference; two neighbouring lines
    meet between their points, at a multiple of 1/(4S), so that the kink is a unit with integer weights. Points with
    equal labels next to each other share a level line.
    """
    pieces = _pieces(ids, labels)
    slopes, intercepts = _lines(pieces)
    units: list[Unit] = []
    first = slopes[0] - 1
    if first:
        units.append((1, 0, first))
    for before, after, cut, rest in zip(slopes, slopes[1:], intercepts, intercepts[1:], strict=False):
        change = after - before
        if change:
            sign = 1 if change > 0 else -1
            units.append((abs(change), sign * (rest - cut), sign))
    return (StreamBlock(tuple(units), intercepts[0]),)


def _pieces(ids: Sequence[int], labels: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first id, last id, label) of every run of equal labels."""
    pieces: list[tuple[int, int, int]] = []
    for x, y in zip(ids, labels, strict=True):
        if pieces and pieces[-1][2] == y:
            pieces[-1] = (pieces[-1][0], x, y)
        else:
            pieces.append((x, x, y))
    return pieces


def _lines(pieces: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Slope and intercept of the lines, left to right; two level neighbours get a steep line between them."""
    values = [2 * y + 1 for _, _, y in pieces]
    steep = max(values) - min(values)
    slopes: list[int] = []
    intercepts: list[int] = []

    def add(slope: int, through: int, value: int) -> None:
        slopes.append(slope)
        intercepts.append(value - slope * through)

    for k, (first, last, _) in enumerate(pieces):
        if first < last or len(pieces) == 1:
            rise = values[k] - values[k - 1] if slopes else 0
            if rise * (slopes[-1] if slopes else 1) <= 0 and slopes:
                add(rise, pieces[k - 1][1], values[k - 1])  # the line before does not lead here; this one does
            add(0, first, values[k])
        else:
            up = slopes[-1] < 0 if slopes and slopes[-1] else bool(slopes) and values[k] > values[k - 1]
            add(steep if up else -steep, first, values[k])
    return slopes, intercepts


# Random offsets that are tried for a fold. Tuned by hand.
DRAWS = 6
GUARD = 4  # bits by which offsets are shorter than the rest


@implements(
    Ref("byheart", "hashing by folds"),
    statement="folds with random offsets separate ids of any structure, at 4 parameters per bit",
    test="tests/build/fold/test_block.py",
)
def stir(ids: Sequence[int], folds: int, seed: int) -> tuple[tuple[StreamBlock, ...], list[int]] | None:
    """Return blocks that fold the highest bits of ascending ids away, and the rest; None if ids collide.

    >>> blocks, left = stir([0, 1, 1 << 20, (1 << 20) + 1], folds=8, seed=1)
    >>> len(blocks), max(left).bit_length() <= 14
    (8, True)
    """
    base = ids[0]
    bits = max(1, (ids[-1] - base).bit_length())
    for draw in range(DRAWS):
        rng = random.Random(f"stir {seed} {folds} {draw}")
        spread = max(0, folds + 8 - bits) + 2 * draw  # short ids are multiplied first
        factor = rng.getrandbits(spread) | 1 | (1 << (spread - 1)) if spread else 1
        top = bits + spread
        low = top - folds
        places = [(1 << p) + rng.getrandbits(max(1, low - GUARD)) for p in range(top - 1, low - 1, -1)]
        left = [_folded((x - base) * factor, places) for x in ids]
        if len(set(left)) == len(left):
            return _hashed(base, factor, places, left)
    return None


def _hashed(
    base: int, factor: int, places: Sequence[int], left: list[int]
) -> tuple[tuple[StreamBlock, ...], list[int]]:
    """Return blocks of folds at `places` after h = (x - base)·factor, and their outputs, lifted to 0 and more."""
    lift = max(0, -min(left))
    blocks = [StreamBlock(((1, -place, -2),)) for place in places]
    if factor > 1:
        blocks.insert(0, StreamBlock(((1, 0, factor - 1),), -base * factor))
    else:
        blocks[0] = StreamBlock(((1, -places[0] - base, -2),), -base)
    blocks[-1] = replace(blocks[-1], shift=blocks[-1].shift + lift)
    return tuple(blocks), [h + lift for h in left]


BAND = 6  # bits between the gaps inside of clusters and those between them
SEEN = 120  # clusters whose distances are looked at


def overlay(ids: Sequence[int], seed: int) -> tuple[tuple[StreamBlock, ...], list[int]] | None:
    """Return folds that overlay regularly spaced clusters of ascending ids, and the rest; None if there is none.

    A fold in the middle between pairs of clusters halves their number, however far apart they are; small random offsets
    keep their ids distinct. So K clusters at equal distances cost log2 K folds, where folds that halve the range would
    cost one for every bit of the distance.

    >>> blocks, left = overlay([(c << 90) + x for c in range(16) for x in (0, 3, 4, 9)], seed=0)
    >>> len(blocks), max(left).bit_length() < 20
    (4, True)
    """
    base = ids[0]
    for spread in range(0, 24):
        for draw in range(DRAWS):
            places, left = _overlaid([x - base for x in ids], spread, random.Random(f"overlay {seed} {spread} {draw}"))
            if not places:
                return None
            if len(set(left)) == len(left):
                return _hashed(base, 1, places, left)
    return None


def _overlaid(h: list[int], spread: int, rng: random.Random) -> tuple[list[int], list[int]]:
    """Return thresholds of folds, as long as one overlays a quarter of the clusters.

    `spread`: bits of offsets beyond those of the gaps inside clusters.
    """
    places: list[int] = []
    finest = None
    while True:
        ordered = sorted(h)
        gaps = [b - a for a, b in pairwise(ordered)]
        lengths = sorted({gap.bit_length() for gap in gaps}, reverse=True)
        bands = [(high, low) for high, low in pairwise(lengths) if high - low >= BAND]
        if finest is None and bands:
            finest = bands[-1][1] + spread  # closer values than offsets form a cluster already
        if not bands or finest is None or bands[0][0] < finest + BAND:
            return places, h
        inner = max(bands[0][1], finest)
        starts = [ordered[0], *(b for b, gap in zip(ordered[1:], gaps, strict=True) if gap.bit_length() > inner)]
        seen = starts[:: max(1, len(starts) // SEEN)]
        sums = Counter((a + b) >> (inner + 2) for a, b in combinations(seen, 2))
        near, pairs = max(sums.items(), key=lambda item: (item[1], item[0]))
        if 4 * pairs < len(seen) and len(seen) > 2:
            return places, h
        middle = next(a + b for a, b in combinations(seen, 2) if (a + b) >> (inner + 2) == near) // 2
        places.append(middle + rng.getrandbits(max(1, finest)))
        h = [2 * places[-1] - x if x > places[-1] else x for x in h]


def _folded(h: int, places: Sequence[int]) -> int:
    for place in places:
        if h > place:
            h = 2 * place - h
    return h
