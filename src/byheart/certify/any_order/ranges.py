"""A residual block on ranges: exact images of piecewise linear functions, and the float error of every sum.

Intervals alone are too coarse here: z − relu(z − t) depends on one variable, and (2^s − 1)·relu(z) + z is 2^s·z. So
units that are always active are merged into the linear part, and a function of one channel alone is evaluated at
its kinks.

Where every unit reads one channel of few values, all of them are enumerated instead (`ValueTable`). A selector's
intermediate sums look enormous to intervals and are small for each of the m values of its bucket number. A `ValueTable`
stores channels as functions of that one number. Only channels without an error are in a table, and a block stays in it
only if none of its sums rounds for any value of the parameter; otherwise, and where machine integers might wrap around,
the block is left to the ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from byheart.certify.any_order.lattice import (
    ZERO,
    Channel,
    Link,
    Tally,
    channel,
    common_unit,
    linear_lattice,
    power_of_two_part,
)
from byheart.exact import Number, as_fraction
from byheart.ir.layers import Residual, Row

NEAR_HALF = Fraction(511, 2)  # of 512: below one half by the error that an accumulator of ten more bits can add


@dataclass(frozen=True)
class Sum:
    """A weighted sum of channels before anything is done to it."""

    reads: tuple[tuple[int, Fraction], ...]
    bias: Fraction
    value: Channel

    @property
    def dead(self) -> bool:
        return self.value.high <= 0 and self.value.high + self.value.error <= 0

    @property
    def active(self) -> bool:
        return self.value.low >= 0

    @property
    def after_relu(self) -> Channel:
        v = self.value
        if self.active:
            return channel(v.low, v.high, v.rest, v.error, True, v.links)
        return channel(max(v.low, ZERO), max(v.high, ZERO), v.unit, v.error, True)


def weighted_sum(tally: Tally, place: str, row: Row, bias: Number, stream: Sequence[Channel]) -> Sum:
    """sum weight·channel + bias, every channel anywhere in its range."""
    reads = tuple((j, as_fraction(w)) for j, w in row)
    b = as_fraction(bias)
    return Sum(reads, b, linear(tally, place, [(w, stream[j]) for j, w in reads], b))


def linear(tally: Tally, place: str, parts: Sequence[tuple[Fraction, Channel]], bias: Fraction = ZERO) -> Channel:
    """sum weight·channel + bias, in every order and grouping, with or without fused products."""
    terms = [(w, c) for w, c in parts if c.largest or c.error]  # 0 times anything finite adds 0
    low = bias + sum(w * (c.low if w > 0 else c.high) for w, c in terms)
    high = bias + sum(w * (c.high if w > 0 else c.low) for w, c in terms)
    unit = common_unit(abs(bias), *(abs(w) * c.unit for w, c in terms))
    rest, links = linear_lattice(terms, bias)
    total = abs(bias) + sum((abs(w) * c.largest for w, c in terms), ZERO)
    carried = sum((abs(w) * c.error for w, c in terms), ZERO)
    if carried and len(terms) == 1 and not bias and _is_power_of_two(abs(terms[0][0])):
        error = tally.scaled(place, total, carried)
    else:
        error = tally.error(place, total, unit, carried, len(terms) + 1)
    positive = bias >= 0 and all(w > 0 and c.never_negative for w, c in terms)
    return channel(low, high, rest, error, positive, links)


def _is_power_of_two(weight: Fraction) -> bool:
    return power_of_two_part(weight) == weight


def residual_ranges(tally: Tally, place: str, layer: Residual, stream: Sequence[Channel]) -> list[Channel]:
    """The stream after the block."""
    units = [
        weighted_sum(tally, f"{place}, unit {a}", row, bias, stream)
        for a, (row, bias) in enumerate(zip(layer.weight1.rows, layer.bias1, strict=True))
    ]
    out = []
    for k, (row, bias) in enumerate(zip(layer.weight2.rows, layer.bias2, strict=True)):
        writes = [(units[a], as_fraction(w)) for a, w in row if not units[a].dead]
        where = f"{place}, channel {k}"
        if not writes:
            out.append(_shifted(tally, where, stream[k], as_fraction(bias)))
        else:
            out.append(_written(tally, where, k, writes, as_fraction(bias), stream))
    return out


def _shifted(tally: Tally, place: str, old: Channel, bias: Fraction) -> Channel:
    """old + bias, a single addition. Adding 1.5·2^(mantissa−1) units snaps an inexact float onto its lattice."""
    if not bias:
        return old
    unit = common_unit(old.unit, abs(bias))
    new = channel(old.low + bias, old.high + bias, unit)
    step = power_of_two_part(unit)
    most = max(new.largest, old.largest, abs(bias))
    if not old.error and tally.fits(step, most):
        tally.note(place, most, step)
        return new
    tally.finite(place, most + old.error)
    grain = _spacing(tally, new.low - old.error, new.high + old.error)
    if step is not None and grain is not None and grain <= step and 512 * old.error <= NEAR_HALF * grain:
        return new  # the result is rounded to a multiple of its spacing, and the exact value is the nearest one
    error = tally.error(place, old.largest + abs(bias), unit, old.error, 2)
    return channel(new.low, new.high, unit, error, old.never_negative and bias > 0)


def _spacing(tally: Tally, low: Fraction, high: Fraction) -> Fraction | None:
    """The distance of neighbouring floats in [low, high] when it is the same everywhere in there."""
    if low <= 0:
        return None
    exponent = (low.numerator // low.denominator).bit_length() - 1  # 2^exponent <= low when low >= 1
    if exponent < 0 or high > Fraction(2) ** (exponent + 1):
        return None
    return Fraction(2) ** (exponent + 1 - tally.format.mantissa)


def _written(
    tally: Tally, place: str, k: int, writes: list[tuple[Sum, Fraction]], bias: Fraction, stream: Sequence[Channel]
) -> Channel:
    old = stream[k]
    if _clears(k, writes, bias, old):
        return channel(ZERO, ZERO, ZERO)
    outputs = [(unit.after_relu, w) for unit, w in writes]
    total = old.largest + abs(bias) + sum((abs(w) * r.high for r, w in outputs), ZERO)
    terms_unit = common_unit(old.unit, abs(bias), *(abs(w) * r.unit for r, w in outputs))
    carried = old.error + sum((abs(w) * r.error for r, w in outputs), ZERO)
    error = tally.error(place, total, terms_unit, carried, len(writes) + 2)
    low, high, rest, links = _image(k, writes, bias, stream)
    return channel(low, high, rest, error, links=links)


def _clears(k: int, writes: list[tuple[Sum, Fraction]], bias: Fraction, old: Channel) -> bool:
    """x − relu(x) with a float x that is never negative: the same number twice, so not even an error is left."""
    if len(writes) != 1 or bias:
        return False
    unit, weight = writes[0]
    return unit.reads == ((k, Fraction(1)),) and not unit.bias and weight == -1 and old.never_negative


def _image(
    k: int, writes: list[tuple[Sum, Fraction]], bias: Fraction, stream: Sequence[Channel]
) -> tuple[Fraction, Fraction, Fraction, tuple[Link, ...]]:
    """(low, high, rest, links) of the exact new value: linear part, bends of single channels, and intervals."""
    slopes: dict[int, Fraction] = {k: Fraction(1)}
    bends: dict[int, list[tuple[Sum, Fraction]]] = {k: []}
    constant, low, high = bias, ZERO, ZERO
    units: list[Fraction] = []
    for unit, weight in writes:
        if unit.active:
            constant += weight * unit.bias
            for j, w in unit.reads:
                slopes[j] = slopes.get(j, ZERO) + weight * w
            continue
        units.append(abs(weight) * unit.value.unit)
        if len(unit.reads) == 1:
            bends.setdefault(unit.reads[0][0], []).append((unit, weight))
        else:
            ends = weight * unit.after_relu.low, weight * unit.after_relu.high
            low, high = low + min(ends), high + max(ends)
    for j in slopes.keys() | bends.keys():
        least, most = _bent_line(slopes.get(j, ZERO), bends.get(j, []), stream[j])
        low, high = low + least, high + most
    rest, links = linear_lattice([(slope, stream[j]) for j, slope in slopes.items()], constant)
    return constant + low, constant + high, common_unit(rest, *units), links


def _bent_line(slope: Fraction, bends: list[tuple[Sum, Fraction]], x: Channel) -> tuple[Fraction, Fraction]:
    """Least and most of slope·x + sum weight·relu(w·x + b) over x's range: at its ends or at a kink."""
    places = {x.low, x.high}
    for unit, _ in bends:
        kink = -unit.bias / unit.reads[0][1]
        if x.low < kink < x.high:
            places.add(kink)
    values = [
        slope * t + sum((w * max(ZERO, unit.reads[0][1] * t + unit.bias) for unit, w in bends), ZERO) for t in places
    ]
    return min(values), max(values)


# Values of a channel up to which blocks are enumerated. Tuned by hand.
MOST_VALUES = 1 << 17
SAFE = 1 << 62  # sums of int64 below this do not overflow
ONE = Fraction(1)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Enumerated:
    """numbers·unit, one number per value of the table's parameter."""

    numbers: Ints
    unit: Fraction

    @cached_property
    def largest(self) -> int:
        """Of the numbers, in absolute value."""
        return int(np.abs(self.numbers).max())

    def over(self, unit: Fraction, weight: Fraction = ONE) -> Ints:
        """weight times the column, in multiples of `unit`; the caller has shown that they are whole and below SAFE."""
        return self.numbers * int(weight * self.unit / unit) if self.largest else self.numbers


@dataclass(frozen=True, eq=False)
class ValueTable:
    """The channels that are known functions of one parameter, and how many values that has."""

    columns: dict[int, Enumerated]
    values: int


def table_for(layer: Residual, stream: Sequence[Channel], table: ValueTable | None) -> ValueTable | None:
    """A table in which this block can be evaluated: the present one, extended by constants, or a new one."""
    reads = {j for row in layer.weight1.rows for j, _ in row}
    writes = {k for k, row in enumerate(layer.weight2.rows) if row} | {k for k, b in enumerate(layer.bias2) if b}
    if len(reads) != 1 or any(len(row) != 1 for row in layer.weight1.rows):
        return None
    (source,) = reads
    if table is None or source not in table.columns:
        table = _enumerate(source, stream[source])
    if table is None:
        return None
    columns = dict(table.columns)
    for k in writes - columns.keys():
        if not stream[k].constant:
            return None
        sign = (stream[k].low > 0) - (stream[k].low < 0)
        columns[k] = Enumerated(np.full(table.values, sign, dtype=np.int64), abs(stream[k].low))
    return ValueTable(columns, table.values)


def _enumerate(source: int, x: Channel) -> ValueTable | None:
    if x.error or not x.unit or (x.high - x.low) / x.unit >= MOST_VALUES:
        return None
    if max(abs(x.low), abs(x.high)) / x.unit >= SAFE or (x.low / x.unit).denominator != 1:
        return None
    values = int((x.high - x.low) / x.unit) + 1
    first = int(x.low / x.unit)
    return ValueTable({source: Enumerated(np.arange(first, first + values, dtype=np.int64), x.unit)}, values)


def table_ranges(
    tally: Tally, place: str, layer: Residual, stream: Sequence[Channel], table: ValueTable
) -> tuple[list[Channel], ValueTable] | None:
    """The stream and the table after the block, or None when its numbers outgrow machine integers."""
    outputs = []
    for a, (row, bias) in enumerate(zip(layer.weight1.rows, layer.bias1, strict=True)):
        ((j, w),) = row
        weight, b, x = as_fraction(w), as_fraction(bias), table.columns[j]
        unit = common_unit(abs(weight) * x.unit, abs(b))
        total = abs(weight) * x.unit * x.largest + abs(b)
        if not unit or total / unit >= SAFE:
            return None
        if tally.error(f"{place}, unit {a}", total, unit, Fraction(0), 2):
            return None
        outputs.append(Enumerated(np.maximum(x.over(unit, weight) + int(b / unit), 0), unit))
    streams, columns = list(stream), dict(table.columns)
    for k, (row, bias) in enumerate(zip(layer.weight2.rows, layer.bias2, strict=True)):
        if not row and not bias:
            continue
        parts = [(outputs[a], as_fraction(w)) for a, w in row]
        found = _added(tally, f"{place}, channel {k}", table.columns[k], parts, as_fraction(bias))
        if found is None:
            return None
        columns[k] = found
        unit = Fraction(int(np.gcd.reduce(found.numbers))) * found.unit
        low, high = int(found.numbers.min()) * found.unit, int(found.numbers.max()) * found.unit
        streams[k] = channel(low, high, unit)
    return streams, ValueTable(columns, table.values)


def _added(
    tally: Tally, place: str, old: Enumerated, parts: list[tuple[Enumerated, Fraction]], bias: Fraction
) -> Enumerated | None:
    """old + sum weight·part + bias for every value of the parameter; None if it may round or overflow here."""
    unit = common_unit(old.unit, abs(bias), *(abs(w) * part.unit for part, w in parts))
    if not unit:
        return old
    rough = abs(bias) + old.unit * old.largest + sum(abs(w) * part.unit * part.largest for part, w in parts)
    if rough / unit >= SAFE:
        return None
    new = old.over(unit) + int(bias / unit)
    total = np.abs(old.over(unit)) + int(abs(bias) / unit)
    for part, w in parts:
        grown = part.over(unit, w)
        new += grown
        total += np.abs(grown)
    if tally.error(place, int(total.max()) * unit, unit, Fraction(0), len(parts) + 2):
        return None
    step = power_of_two_part(unit)
    return None if step is None else Enumerated(new, unit)
