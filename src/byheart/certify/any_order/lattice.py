"""Ranges on lattices: the possible values of one channel of a stream, and the rounding of float sums of them.

*Exact.* A sum of multiples of 2^k never rounds, in any order and with any grouping, while the absolute values of its
terms add up to at most 2^(k + mantissa), stay below the overflow threshold, and 2^k is not subnormal: every product and
every sum of a subset is then a multiple of 2^k that the float type represents, and none is subnormal, so that an engine
that flushes subnormals to zero agrees too.

*Inexact.* One operation on floats a, b gives (a op b)(1 + d) + e with |d| <= 2^-mantissa and |e| below the least normal
number (which covers gradual underflow and flushing), as long as nothing overflows. A sum of m products of terms that
are themselves off by `carried` together is therefore off by at most

    carried + (total + carried)·g + 2·s·least·(1 + g),   g = s / (2^mantissa − s),

with s = m + 2 roundings on the way of any term (its product, m − 1 sums, the rounding of a wider accumulator, and the
division of a mean). Of the 2 m operations each loses at most `least`, which the later ones enlarge by at most 1 + g.

An overflow is never carried along as an error: 0 · inf is NaN, so one unread channel would spoil every dot
product that has a zero at its position. Where a value may exceed half of the range, the proof ends (`NotShown`).

    >>> common_unit(Fraction(12), Fraction(8)), power_of_two_part(Fraction(12)), power_of_two_part(Fraction(1, 3))
    (Fraction(4, 1), Fraction(4, 1), None)

`InputFacts` describes a network's inputs before any data: the number of tokens, and the range of a token's numbers.

>>> code = channel(Fraction(0), Fraction(9), Fraction(1))
>>> InputFacts(4, False, (code,)).with_absent() == InputFacts(4, False, (code,))
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from byheart.data.dataset.encoder import Encoder
from byheart.data.task import Task
from byheart.errors import DataError
from byheart.exact import Number, as_fraction, parts
from byheart.ir.network import Inputs

ZERO = Fraction(0)


class NotShown(Exception):
    """The proof ends here; the message names the location and the reason."""


@dataclass(frozen=True)
class FloatFormat:
    """A binary float type: 2^mantissa is the first power of two whose successor it does not hold."""

    name: str
    mantissa: int
    smallest_exponent: int  # 2^smallest_exponent is the least normal number
    largest_exponent: int  # every number is below 2^largest_exponent

    @cached_property
    def least(self) -> Fraction:
        return Fraction(2) ** self.smallest_exponent

    @cached_property
    def bound(self) -> Fraction:
        return Fraction(2) ** self.largest_exponent

    def holds(self, value: Number) -> bool:
        """Whether `value` is 0 or a normal number of this type.

        >>> from byheart.exact import dyadic
        >>> [FORMATS["float32"].holds(x) for x in (0, 3 << 100, (1 << 24) + 1, 1 << 128, dyadic(1, -127))]
        [True, True, False, False, False]
        """
        mantissa, exponent = parts(value)
        length = abs(mantissa).bit_length()
        if exponent == 0 and length <= self.mantissa:
            return True
        zeros = (mantissa & -mantissa).bit_length() - 1
        normal = self.smallest_exponent < exponent + length <= self.largest_exponent
        return normal and length - zeros <= self.mantissa


FORMATS = {f.name: f for f in (FloatFormat("float64", 53, -1022, 1024), FloatFormat("float32", 24, -126, 128))}


@dataclass(frozen=True)
class Link:
    """coefficient · (an unknown multiple of `unit`), the same unknown wherever `name` is the same.

    k times the mean of k tokens is whole although the mean is not: links remember whose fraction it is.
    """

    name: int
    unit: Fraction
    coefficient: Fraction


@dataclass(frozen=True)
class Channel:
    """The exact value is in [low, high]: a multiple of `rest` (0: always 0) plus `links`; a float is off by `error`.

    `positive`: low is not negative, and neither is the float, although its error might let it be.
    """

    low: Fraction
    high: Fraction
    rest: Fraction
    error: Fraction = ZERO
    positive: bool = False
    links: tuple[Link, ...] = ()

    @property
    def unit(self) -> Fraction:
        """The lattice of the whole value."""
        return common_unit(self.rest, *(abs(link.coefficient) * link.unit for link in self.links))

    @property
    def largest(self) -> Fraction:
        return max(abs(self.low), abs(self.high))

    @property
    def constant(self) -> bool:
        return self.low == self.high and not self.error

    @property
    def never_negative(self) -> bool:
        return self.positive or self.low >= self.error


def channel(
    low: Fraction,
    high: Fraction,
    rest: Fraction,
    error: Fraction = ZERO,
    positive: bool = False,
    links: tuple[Link, ...] = (),
) -> Channel:
    """Return a channel; a single value is its own lattice, and a value on no lattice but 0 is 0."""
    if not rest and not links:
        return Channel(ZERO, ZERO, ZERO, error, positive)
    if low == high:
        return Channel(low, high, abs(low), error, positive)
    return Channel(low, high, rest, error, positive, links)


def linear_lattice(parts: Sequence[tuple[Fraction, Channel]], constant: Fraction) -> tuple[Fraction, tuple[Link, ...]]:
    """(rest, links) of sum weight·channel + constant: equal unknowns add up, and whole multiples become rest."""
    rest = [abs(constant), *(abs(weight) * c.rest for weight, c in parts)]
    found: dict[int, Link] = {}
    for weight, c in parts:
        for link in c.links:
            before = found[link.name].coefficient if link.name in found else ZERO
            found[link.name] = Link(link.name, link.unit, before + weight * link.coefficient)
    return common_unit(*rest), tuple(link for link in found.values() if link.coefficient)


EMPTY = Channel(ZERO, ZERO, ZERO)


def common_unit(*units: Fraction) -> Fraction:
    """Return the coarsest lattice that contains all of these: the rational gcd, with gcd(0, u) = u."""
    whole = math.lcm(*(u.denominator for u in units))
    return Fraction(math.gcd(*(u.numerator * (whole // u.denominator) for u in units)), whole)


def power_of_two_part(unit: Fraction) -> Fraction | None:
    """The largest power of two that divides `unit`, or None when no power of two does (an odd denominator)."""
    if unit.denominator & (unit.denominator - 1):
        return None
    return Fraction(unit.numerator & -unit.numerator, unit.denominator)


def join(channels: list[Channel]) -> Channel:
    """Anything that one of these can hold."""
    if len(channels) == 1:
        return channels[0]
    low, high = min(c.low for c in channels), max(c.high for c in channels)
    error, positive = max(c.error for c in channels), all(c.never_negative for c in channels)
    return channel(low, high, common_unit(*(c.unit for c in channels)), error, positive)


@dataclass
class Tally:
    """Collects, over all sums of a network, the largest ratio of absolute terms to the lattice, and rounding sums."""

    format: FloatFormat
    worst: Fraction = ZERO
    worst_place: str = "nowhere"
    rounded: list[str] = field(default_factory=list)  # sums that may round, the first few
    names: int = 0  # of links, so far

    def error(self, place: str, total: Fraction, unit: Fraction, carried: Fraction, terms: int) -> Fraction:
        """The largest error of a float sum of `terms` products whose absolute values add up to `total`.

        `unit` is the lattice of all terms, `carried` the sum of the terms' own errors.
        """
        if not carried:
            if not total:
                return ZERO
            step = power_of_two_part(unit)
            if self.fits(step, total):
                self.note(place, total, step)
                return ZERO
            size = f"of 2^{log2(total / step):.2f} units" if step else "on no power-of-two lattice"
            self.rounds(f"{place}: a sum {size}")
        else:
            self.rounds(f"{place}: inexact terms")
        return self.rounding(place, total, carried, terms + 2)

    def rounding(self, place: str, total: Fraction, carried: Fraction, steps: int) -> Fraction:
        """The error of a sum in which every term meets at most `steps` roundings; see the head of this file."""
        if steps > 1 << (self.format.mantissa - 2):
            raise NotShown(f"{place}: a sum of too many terms for {self.format.name}")
        size = total + carried
        growth = Fraction(steps, (1 << self.format.mantissa) - steps)
        error = carried + size * growth + 2 * steps * self.format.least * (1 + growth)
        self.finite(place, total + error)
        return rounded_up(error)

    def scaled(self, place: str, total: Fraction, carried: Fraction) -> Fraction:
        """The error of one inexact float times a power of two: nothing is rounded, but it may underflow."""
        error = carried + self.format.least
        self.finite(place, total + error)
        return error

    def finite(self, place: str, size: Fraction) -> None:
        """Nothing here may come near the end of the range: an infinity would spoil sums that do not even read it."""
        if 2 * size > self.format.bound:
            raise NotShown(f"{place}: values up to 2^{log2(size):.1f} may overflow {self.format.name}")

    def new_name(self) -> int:
        self.names += 1
        return self.names

    def rounds(self, what: str) -> None:
        """Records the first few locations that may round; most of them are snapped later."""
        if len(self.rounded) < 4:
            self.rounded.append(what)

    def fits(self, step: Fraction | None, total: Fraction) -> bool:
        """Whether every multiple of `step` up to `total` is a float, and none but 0 is subnormal."""
        if not step or total > step * (1 << self.format.mantissa):
            return False
        return step >= self.format.least and total < self.format.bound

    def note(self, place: str, total: Fraction, step: Fraction | None) -> None:
        if step is not None and total > self.worst * step:
            self.worst, self.worst_place = total / step, place


def rounded_up(error: Fraction, bits: int = 64) -> Fraction:
    """At least `error`, in few bits: bounds of bounds would otherwise grow with every layer."""
    shift = bits - error.numerator.bit_length() + error.denominator.bit_length()
    whole = (
        -((-error.numerator << shift) // error.denominator)
        if shift >= 0
        else -(-error.numerator // (error.denominator << -shift))
    )
    return Fraction(whole, 1 << shift) if shift >= 0 else Fraction(whole << -shift)


def log2(value: Fraction) -> float:
    """Return log2 for messages; comparisons use the fraction itself."""
    return math.log2(value.numerator) - math.log2(value.denominator) if value > 0 else 0.0


@dataclass(frozen=True)
class InputFacts:
    """Rows of `length` tokens (of 1 … length if `ragged`); coordinate i of a token lies in `coordinates[i]`.

    `positions`: the last coordinate is the token's position, 0 … length − 1. `absent`: the input of exported models at
    positions after the end of a row. Attention multiplies it by 0, so it must stay finite.
    """

    length: int
    ragged: bool
    coordinates: tuple[Channel, ...]
    positions: bool = False
    absent: tuple[Channel, ...] | None = None

    def with_absent(self) -> InputFacts:
        """Count positions after the end as tokens too."""
        if self.absent is None:
            return self
        wider = tuple(join([a, b]) for a, b in zip(self.coordinates, self.absent, strict=True))
        return replace(self, coordinates=wider, absent=None)

    def allow(self, inputs: Inputs) -> bool:
        """Whether the facts cover every row: its length, its numbers, its positions.

        >>> from byheart.exact.number import Values
        >>> code = channel(Fraction(0), Fraction(9), Fraction(1))
        >>> [InputFacts(1, False, (code,)).allow(Inputs(Values.of([[x]]), np.array([[0]]))) for x in (9, 10)]
        [True, False]
        """
        lengths, points = inputs.lengths, inputs.points
        if len(lengths) and not (1 if self.ragged else self.length) <= lengths.min() <= lengths.max() <= self.length:
            return False
        if points.width != len(self.coordinates):
            return False
        for c, column in zip(self.coordinates, points.numerators.T, strict=True):
            for x in map(int, set(column.tolist())):
                value = Fraction(x, points.denominator)
                if not c.low <= value <= c.high or (value != 0 and (not c.unit or (value / c.unit).denominator != 1)):
                    return False
        if not self.positions:
            return True
        places = [int(x) // points.denominator for x in points.numerators[:, -1]]  # at most self.length, see above
        where = np.array([*places, 0], dtype=np.int64)
        columns = enumerate(inputs.index.T)  # one after the other: all of them at once are as large as the data
        return not any(((where[column] != place) & (column >= 0)).any() for place, column in columns)

    def at(self, place: int) -> tuple[Channel, ...]:
        """Return the coordinates of a token at this position of its row."""
        if not self.positions:
            return self.coordinates
        here = Fraction(place)
        return (*self.coordinates[:-1], channel(here, here, here))


def facts_of(encoder: Encoder, inputs: Inputs | None) -> InputFacts:
    """For symbols: any symbol of the table, the padding too. For vectors: the box and the lattice of the given ones."""
    coordinates: list[Channel]
    if encoder.symbols is not None:
        coordinates = [channel(Fraction(0), Fraction(len(encoder.symbols)), Fraction(1))]
    elif inputs is None:
        raise DataError("which vectors occur is known only from the data; give the inputs")
    else:
        coordinates = [_coordinate(encoder, inputs, i) for i in range(encoder.dimension)]
    if encoder.positions:
        coordinates.append(channel(Fraction(0), Fraction(encoder.length - 1), Fraction(1)))
    ragged = encoder.task in (Task.SET, Task.CAUSAL)
    absent = None
    if ragged:
        code = Fraction(0 if encoder.symbols is None else -1)  # a vector of zeros, or the code -1
        nothing = channel(code, code, abs(code))
        absent = (*(nothing for _ in coordinates[: len(coordinates) - encoder.positions]),)
        absent += tuple(coordinates[len(absent) :])
    return InputFacts(encoder.length, ragged, tuple(coordinates), encoder.positions, absent)


def _coordinate(encoder: Encoder, inputs: Inputs, place: int) -> Channel:
    denominator = inputs.points.denominator
    numbers = [int(x) for x in inputs.points.numerators[:, place]]
    low, high = Fraction(min(numbers), denominator), Fraction(max(numbers), denominator)
    unit = Fraction(math.gcd(*numbers), denominator)
    if encoder.pad_vector is None:
        return channel(low, high, unit)
    pad = as_fraction(encoder.pad_vector[place])
    return join([Channel(low, high, unit), Channel(pad, pad, abs(pad))])
