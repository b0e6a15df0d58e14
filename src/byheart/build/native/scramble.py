"""Vectors to table-like numbers: a random linear map, then folds at random thresholds.

A linear map alone would keep sums: t1 + t4 = t2 + t3 makes equal multisets of the images. Folding at random thresholds,
z ← z − 2·relu(z − θ) with θ a little above half of z's range, breaks every such relation with probability 1/2 or more
per fold, and after as many folds as y has bits the number depends on all of them. A random offset is added first: folds
leave 0 where it is, and a chain that starts at 0 has no hash bits, so the lowest vector could have no label but 0.

Coordinates that lie farther from 0 than from each other are moved to 0 first, in a separate block: times a weight,
1 + k·2^-20 would need more digits than a float32 has, k·2^-20 does not.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from byheart.build.native.hashing import Ints
from byheart.build.native.layout import FLOAT64, Unit, residual
from byheart.errors import BuildError, TokenRoomError
from byheart.exact import Number, as_fraction, from_fraction
from byheart.exact.number import Values
from byheart.ir.layers import Affine, Matrix, Residual


@dataclass(frozen=True)
class Box:
    """Where a coordinate lies: low + unit·k, k = 0 … steps, unit a power of two."""

    low: Fraction
    unit: Fraction
    steps: int

    @property
    def far(self) -> bool:
        """Whether 0 is farther away than the box is wide."""
        return abs(self.low) > self.steps * self.unit


@dataclass(frozen=True)
class Scramble:
    """One chain's map from vectors to [0, bound): offset and weights per step of each coordinate, thresholds of folds.

    z = y·2^scale; after every `scale` folds z is multiplied by 2^scale, after the last fold by `last`/2.
    """

    boxes: tuple[Box, ...]
    weights: tuple[int, ...]
    offset: int
    thresholds: tuple[int, ...]
    scale: int
    bound: int

    def rescale(self, fold: int) -> bool:
        return (fold + 1) % self.scale == 0


def boxes_of(points: Values, extra: Sequence[Sequence[Number]] = ()) -> tuple[Box, ...]:
    """The boxes of the given points, and of `extra` ones."""
    found = []
    for i in range(points.width):
        numbers = [Fraction(int(x), points.denominator) for x in points.numerators[:, i]]
        numbers += [as_fraction(row[i]) for row in extra]
        low, high = min(numbers), max(numbers)
        units = [power_of_two_divisor(x) for x in numbers if x]
        unit = min(units, default=Fraction(1))
        found.append(Box(low, unit, int((high - low) / unit)))
    return tuple(found)


def power_of_two_divisor(value: Fraction) -> Fraction:
    """The largest power of two that divides a dyadic number."""
    if value.denominator & (value.denominator - 1):
        raise BuildError(f"{value} is not a float; native memories take whole numbers and binary fractions")
    return Fraction(value.numerator & -value.numerator, value.denominator)


def vector_bits(boxes: tuple[Box, ...]) -> int:
    """Bits of a number that holds a weighted sum of the coordinates, with two to spare for folding (see below).

    >>> vector_bits((Box(Fraction(0), Fraction(1, 4), 6), Box(Fraction(-1), Fraction(1), 1)))
    6
    """
    return _steps_in_all(boxes).bit_length() + 2


def _steps_in_all(boxes: tuple[Box, ...]) -> int:
    """The largest weighted sum in units of the weights; the offset is one of them."""
    return sum(box.steps for box in boxes) + 1


def scramble_scale(mantissa: int, bits: int) -> int:
    """Folds between two rescalings."""
    return mantissa - 2 - bits


def fold_count(bits: int, scale: int) -> int:
    """As many folds as a number has bits and eight more, up to the next rescaling."""
    return -(-(bits + 8) // scale) * scale


def draw_scramble(rng: random.Random, boxes: tuple[Box, ...], bits: int, mantissa: int) -> Scramble:
    """A random map to numbers below 2^bits; y stays below 2^(bits − 2), as folding at random thresholds widens it."""
    room = (1 << (bits - 2)) - 1
    needed = _steps_in_all(boxes)
    if needed > room:
        wider = "" if mantissa == FLOAT64.mantissa else "use dtype float64, "
        raise TokenRoomError(
            f"the vectors need {needed.bit_length()} bits per token, there are {bits - 2}; {wider}round them "
            "(for example to multiples of 2^-10), take construction compact, which reads numbers of any length, or "
            "use byheart deploy, which accepts decimals as they are"
        )
    largest = room // needed
    offset, *weights = (rng.randrange(max(1, largest // 2), largest + 1) for _ in range(1 + len(boxes)))
    scale = scramble_scale(mantissa, bits)
    high = offset + sum(w * box.steps for w, box in zip(weights, boxes, strict=True)) << scale
    thresholds = []
    for fold in range(fold_count(bits, scale)):
        grain = 1 << (scale - 1 - fold % scale)
        spread = high // 64 // grain + 1
        # an odd multiple of the grain, where z is a multiple of twice the grain: no z lies on the threshold
        threshold = ((-(-high // (2 * grain)) + rng.randrange(spread)) | 1) * grain
        thresholds.append(threshold)
        high = threshold << (scale if (fold + 1) % scale == 0 else 0)
    bound = thresholds[-1] // 2 + 1
    if bound > 1 << bits:
        raise BuildError(f"a scrambled token needs {bound.bit_length()} bits, {bits} exist; sample again")
    return Scramble(boxes, tuple(weights), offset, tuple(thresholds), scale, bound)


def scrambled(scramble: Scramble, points: Values) -> Ints:
    """The numbers of all points, below `bound`."""
    y = np.full(points.count, scramble.offset, dtype=np.int64)
    for i, (box, weight) in enumerate(zip(scramble.boxes, scramble.weights, strict=True)):
        y += weight * np.array([_steps(box, Fraction(int(x), points.denominator)) for x in points.numerators[:, i]])
    z = y << scramble.scale
    for fold, threshold in enumerate(scramble.thresholds):
        z = np.where(z > threshold, 2 * threshold - z, z)
        if scramble.rescale(fold) and fold + 1 < len(scramble.thresholds):
            z <<= scramble.scale
    return z >> 1


def _steps(box: Box, value: Fraction) -> int:
    return int((value - box.low) / box.unit)


def centring(boxes: Sequence[Box]) -> list[Residual]:
    """The block that moves coordinates to 0 where they are far from it; none where all are near."""
    lows = {i: from_fraction(-box.low) for i, box in enumerate(boxes) if box.far}
    return [residual(len(boxes), [], lows)] if lows else []


def scramble_layers(width: int, scrambles: Sequence[Scramble], last: int) -> tuple[Affine, list[Residual]]:
    """E_in after `centring`, and the folding blocks: chain l's channel ends as number·last (`last` is whole)."""
    rows: list[dict[int, Number]] = [{} for _ in range(width)]
    biases: list[Number] = [0] * width
    for chain, s in enumerate(scrambles):
        shift = Fraction(1 << s.scale)
        slopes = [shift * w / box.unit for w, box in zip(s.weights, s.boxes, strict=True)]
        rows[chain] = {i: from_fraction(slope) for i, slope in enumerate(slopes)}
        lowest = sum((a * box.low for a, box in zip(slopes, s.boxes, strict=True) if not box.far), Fraction(0))
        biases[chain] = from_fraction(shift * s.offset - lowest)
    blocks = []
    folds = len(scrambles[0].thresholds)
    for fold in range(folds):
        units = []
        for chain, s in enumerate(scrambles):
            factor = Fraction(1 << s.scale if s.rescale(fold) else 1)
            if fold + 1 == folds:
                factor = Fraction(last, 2)
            units.append(Unit({chain: 1}, -s.thresholds[fold], {chain: from_fraction(-2 * factor)}))
            if factor != 1:
                units.append(Unit({chain: 1}, 0, {chain: from_fraction(factor - 1)}))
        blocks.append(residual(width, units))
    return Affine(Matrix.of(rows, len(scrambles[0].boxes)), tuple(biases)), blocks
