"""A float type so small that every tie, underflow and overflow is met: an oracle for the rules of `any_order`.

`ToyEngine` adds up fractions and rounds each step as IEEE 754 does (to nearest, ties to even), in any order and
grouping, with or without fused products or a wider accumulator, and with subnormals kept or flushed. `drawn_stream`
samples channels with the numbers and floats that they allow.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from byheart.certify.any_order.lattice import ZERO, Channel, FloatFormat, Link, channel

TOY = FloatFormat("toy", 6, -4, 10)  # 32 numbers per power of two, from 2^-4 up to 1008


class Overflow(ArithmeticError):
    """An engine would have computed an infinity."""


def rounded(x: Fraction, form: FloatFormat = TOY, flush: bool = False, bits: int | None = None) -> Fraction:
    """The float next to x, ties to even; with `bits` of a wider mantissa.

    >>> [str(rounded(Fraction(x, 64))) for x in (1, 65, 129, 131, 133)]
    ['1/64', '1', '2', '33/16', '33/16']
    """
    if not x:
        return ZERO
    exponent = 0
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, form.smallest_exponent) + 1 - (bits or form.mantissa))
    found = round(x / step) * step
    if abs(found) >= form.bound:
        raise Overflow(f"{float(x)}")
    return ZERO if flush and abs(found) < form.least else found


@dataclass
class ToyEngine:
    """One engine: its random choices come from `rng`."""

    rng: random.Random
    form: FloatFormat = TOY

    def __post_init__(self) -> None:
        self.flush = self.rng.random() < 0.3
        self.wide = self.form.mantissa + 2 if self.rng.random() < 0.2 else self.form.mantissa

    def round(self, x: Fraction, bits: int | None = None) -> Fraction:
        return rounded(x, self.form, self.flush, bits)

    def sum(self, terms: Sequence[tuple[Fraction, Fraction]], more: Sequence[Fraction] = ()) -> Fraction:
        """Products and further addends, in one sum."""
        fused = self.rng.random() < 0.3
        found = [*more]
        if fused:
            total = self.round(found.pop()) if found else ZERO
            for a, b in self.rng.sample(list(terms), len(terms)):
                total = self.round(total + a * b, self.wide)
            found.append(total)
        else:
            found += [self.round(a * b, self.wide) for a, b in terms]
        self.rng.shuffle(found)
        while len(found) > 1:
            one, two = found.pop(), found.pop(self.rng.randrange(len(found)))
            found.insert(self.rng.randrange(len(found) + 1), self.round(one + two, self.wide))
        return self.round(found[0]) if found else ZERO


@dataclass(frozen=True)
class Drawn:
    """A channel with one exact number and one float that it allows."""

    channel: Channel
    value: Fraction
    float: Fraction


def numbers(rng: random.Random) -> Fraction:
    """A normal number of the type: small whole numbers, powers of two, or any."""
    kind = rng.randrange(3)
    if kind == 0:
        return Fraction(rng.randint(-4, 4))
    if kind == 1:
        return rng.choice((-1, 1)) * Fraction(2) ** rng.randint(TOY.smallest_exponent, 4)
    return rng.choice((-1, 1)) * Fraction(rng.randint(32, 63)) * Fraction(2) ** rng.randint(-9, 0)


def drawn_stream(rng: random.Random, width: int, unknowns: dict[int, Fraction], errors: bool = True) -> list[Drawn]:
    """Channels of all kinds; `unknowns` collects the numbers of links by their name."""
    return [drawn(rng, unknowns, errors) for _ in range(width)]


def drawn(rng: random.Random, unknowns: dict[int, Fraction], errors: bool = True) -> Drawn:
    """One channel of any kind: a constant, a link, an inexact one, or an exact one."""
    kind = rng.randrange(5)
    unit = abs(numbers(rng)) or Fraction(1)
    if kind == 0:
        value = numbers(rng)
        return Drawn(channel(value, value, abs(value)), value, value)
    if kind == 1 and errors:
        return _linked(rng, unknowns)
    first, count = rng.randint(-5, 3), rng.randint(1, 6)
    low, high = unit * first, unit * (first + count)
    value = unit * rng.choice((first, first + count, rng.randint(first, first + count)))
    error = Fraction(rng.choice((1, 1, 3, 8)), rng.choice((1, 4, 32))) if kind == 2 and errors else ZERO
    shown = rounded(value + rng.choice((-1, 0, 1, Fraction(1, 3))) * error, flush=True)
    error = max(error, abs(shown - value))
    positive = bool(error) and min(shown, low) >= 0 and rng.random() < 0.4
    return Drawn(channel(low, high, unit, error, positive), value, shown)


def _linked(rng: random.Random, unknowns: dict[int, Fraction]) -> Drawn:
    """A multiple of an unknown that other channels may share: the mean of three tokens, say."""
    name = rng.choice((1, 2, 3))
    unit = Fraction(1, 3)
    whole = unknowns.setdefault(name, Fraction(rng.randint(-6, 6)))
    coefficient = Fraction(rng.choice((2, 4, 6, -2, -6, 1, 3)), 2)
    value = coefficient * unit * whole
    low, high = sorted((coefficient * unit * -6, coefficient * unit * 6))
    shown = rounded(value)
    link = Link(name, unit, coefficient)
    return Drawn(Channel(low, high, ZERO, Fraction(1, 4), False, (link,)), value, shown)


def fits(found: Channel, exact: Fraction, shown: Fraction, unknowns: dict[int, Fraction]) -> str:
    """What the channel states that is not true of an exact number and its float; empty if all is."""
    rest = exact - sum((link.coefficient * link.unit * unknowns.get(link.name, ZERO) for link in found.links), ZERO)
    if not found.low <= exact <= found.high:
        return f"{exact} is not in [{found.low}, {found.high}]"
    if rest if not found.rest else (rest / found.rest).denominator != 1:
        return f"{rest} is not on the lattice of {found.rest}"
    if exact and (not found.unit or (exact / found.unit).denominator != 1):
        return f"{exact} is not on the lattice of {found.unit}"
    if abs(shown - exact) > found.error:
        return f"{shown} is off {exact} by more than {found.error}"
    if found.never_negative and shown < 0:
        return f"{shown} is negative"
    return ""
