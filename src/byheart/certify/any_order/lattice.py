"""Ranges on lattices: what one channel of a stream can hold, and when a float sum of such numbers is exact.

A sum of multiples of 2^k never rounds, in any order and with any grouping, while the absolute values of its terms add
up to at most 2^(k + mantissa): every partial sum is then a multiple of 2^k that the float type holds.

    >>> common_unit(Fraction(12), Fraction(8)), power_of_two_part(Fraction(12)), power_of_two_part(Fraction(1, 3))
    (Fraction(4, 1), Fraction(4, 1), None)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

ZERO = Fraction(0)


@dataclass(frozen=True)
class FloatFormat:
    """A binary float type: 2^mantissa is the first power of two whose successor it does not hold."""

    name: str
    mantissa: int
    smallest_exponent: int  # 2^smallest_exponent is the least positive number
    largest_exponent: int  # every number is below 2^largest_exponent


FORMATS = {f.name: f for f in (FloatFormat("float64", 53, -1074, 1024), FloatFormat("float32", 24, -149, 128))}


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

    `positive`: the float is never negative, although its error might let it be.
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
    """A channel; a single value is its own lattice."""
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
    """The coarsest lattice that holds all of these: the rational gcd, with gcd(0, u) = u."""
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
    """Collects, over all sums of a network, the largest ratio of absolute terms to the lattice, and what rounds."""

    format: FloatFormat
    worst: Fraction = ZERO
    worst_place: str = "nowhere"
    rounded: list[str] = field(default_factory=list)  # sums that may round, the first few
    names: int = 0  # of links, so far

    def error(self, place: str, total: Fraction, unit: Fraction, carried: Fraction, terms: int) -> Fraction:
        """The largest error of a float sum of `terms` products whose absolute values add up to `total`.

        `unit` is the lattice of all terms, `carried` what the terms' own errors add up to.
        """
        if total == 0:
            return carried
        step = power_of_two_part(unit)
        if carried == 0 and self.fits(step, total):
            self.note(place, total, step)
            return ZERO
        size = "on no power-of-two lattice" if step is None else f"of 2^{log2(total / step):.2f} units"
        self.rounds(f"{place}: {'inexact terms' if carried else f'a sum {size}'}")
        steps = terms + 2
        return carried + (total + carried) * Fraction(steps, (1 << self.format.mantissa) - steps)

    def new_name(self) -> int:
        self.names += 1
        return self.names

    def rounds(self, what: str) -> None:
        """Remembers the first few places that may round; most of them are snapped later."""
        if len(self.rounded) < 4:
            self.rounded.append(what)

    def fits(self, step: Fraction | None, total: Fraction) -> bool:
        """Whether every multiple of `step` up to `total` is a float."""
        if step is None or total > step * (1 << self.format.mantissa):
            return False
        least, bound = Fraction(2) ** self.format.smallest_exponent, Fraction(2) ** self.format.largest_exponent
        return step >= least and total < bound

    def note(self, place: str, total: Fraction, step: Fraction | None) -> None:
        if step is not None and total > self.worst * step:
            self.worst, self.worst_place = total / step, place


def log2(value: Fraction) -> float:
    """For people: comparisons are made with the fraction itself."""
    return math.log2(value.numerator) - math.log2(value.denominator) if value > 0 else 0.0
