"""A block on reachable sets: when every unit reads one channel of few values, all of them are enumerated.

A selector's intermediate sums look enormous to intervals and are small for each of the m values of its bucket number.
A `Table` holds channels as functions of that one number.

Only channels without an error are in a table, and a block stays in it only if none of its sums rounds for any value of
the parameter; otherwise, and where machine integers might wrap around, the block is left to `block_ranges`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from byheart.certify.any_order.lattice import Channel, Tally, channel, common_unit, power_of_two_part
from byheart.exact import as_fraction
from byheart.ir.layers import Residual

MOST_VALUES = 1 << 17
SAFE = 1 << 62  # sums of int64 below this do not overflow
ONE = Fraction(1)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Column:
    """numbers·unit, one number per value of the table's parameter."""

    numbers: Ints
    unit: Fraction

    @cached_property
    def largest(self) -> int:
        """Of the numbers, in absolute value."""
        return int(np.abs(self.numbers).max())

    def over(self, unit: Fraction, weight: Fraction = ONE) -> Ints:
        """weight times the column, in multiples of `unit`; the caller knows that they are whole and below SAFE."""
        return self.numbers * int(weight * self.unit / unit) if self.largest else self.numbers


@dataclass(frozen=True, eq=False)
class Table:
    """The channels that are known functions of one parameter, and how many values that has."""

    columns: dict[int, Column]
    values: int


def table_for(layer: Residual, stream: Sequence[Channel], table: Table | None) -> Table | None:
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
        columns[k] = Column(np.full(table.values, sign, dtype=np.int64), abs(stream[k].low))
    return Table(columns, table.values)


def _enumerate(source: int, x: Channel) -> Table | None:
    if x.error or not x.unit or (x.high - x.low) / x.unit >= MOST_VALUES:
        return None
    if max(abs(x.low), abs(x.high)) / x.unit >= SAFE or (x.low / x.unit).denominator != 1:
        return None
    values = int((x.high - x.low) / x.unit) + 1
    first = int(x.low / x.unit)
    return Table({source: Column(np.arange(first, first + values, dtype=np.int64), x.unit)}, values)


def table_ranges(
    tally: Tally, place: str, layer: Residual, stream: Sequence[Channel], table: Table
) -> tuple[list[Channel], Table] | None:
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
        outputs.append(Column(np.maximum(x.over(unit, weight) + int(b / unit), 0), unit))
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
    return streams, Table(columns, table.values)


def _added(
    tally: Tally, place: str, old: Column, parts: list[tuple[Column, Fraction]], bias: Fraction
) -> Column | None:
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
    return None if step is None else Column(new, unit)
