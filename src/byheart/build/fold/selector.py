"""From groups to blocks: one unit per group, then one fold per bit.

Group j needs z = S_j·x + c_j with c_j = U_j modulo 2^Qa. A piecewise linear function with these slopes has a kink
between neighbouring groups; moving the kink inside its gap moves c_j, so the fraction of its place carries U_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from byheart.build.fold.block import Block, Unit
from byheart.errors import BuildError
from byheart.exact import Number, dyadic


@dataclass(frozen=True)
class Scale:
    """Ids are x = base + 2^zeros·u with the u as random-looking as they come; the groups are solved for u."""

    base: int = 0
    zeros: int = 0

    def slope(self, slope: int) -> Number:
        """slope·u as a multiple of x …"""
        return dyadic(slope, -self.zeros)

    def constant(self, slope: int) -> Number:
        """… plus this."""
        return dyadic(-slope * self.base, -self.zeros)


@dataclass(frozen=True)
class Group:
    """Ids `first`..`last` of which no other id lies between; slope S and offset U modulo 2^Qa of their sum S·x + U."""

    first: int
    last: int
    slope: int
    offset: int


@dataclass(frozen=True)
class Kink:
    """The piecewise linear function gains the slope sign·steepness where steepness·x = place."""

    steepness: int
    place: int
    sign: int


@dataclass(frozen=True)
class Selector:
    """f(x) = slope·x + intercept + kinks; low <= f(x) <= high on the ids."""

    slope: int
    intercept: int
    kinks: tuple[Kink, ...]
    low: int
    high: int


def select(groups: Sequence[Group], payload_bits: int) -> Selector:
    """Places the kinks; where a gap is wide enough for several places, the one that keeps f small."""
    modulus = 1 << payload_bits
    slope, intercept = groups[0].slope, groups[0].offset
    start = intercept
    ends = _ends(groups[0], intercept)
    low, high = min(ends), max(ends)
    centre = (low + high) // 2
    kinks: list[Kink] = []
    for before, group in pairwise(groups):
        sign = 1 if group.slope > before.slope else -1
        steepness = abs(group.slope - before.slope)
        room = steepness * (group.first - before.last)
        rest = (sign * (intercept - group.offset) - steepness * before.last) % modulus
        if rest > room:
            raise BuildError(
                f"slopes {before.slope} and {group.slope} are too close for the gap between ids {before.last} and "
                f"{group.first}; this is a defect of the planner, please report it"
            )
        rest = _steer(group, intercept, sign, steepness * before.last, rest, room, modulus, centre)
        intercept -= sign * (steepness * before.last + rest)
        kinks.append(Kink(steepness, steepness * before.last + rest, sign))
        ends = _ends(group, intercept)
        low, high = min(low, *ends), max(high, *ends)
    return Selector(slope, start, tuple(kinks), low, high)


def _ends(group: Group, intercept: int) -> tuple[int, int]:
    return group.slope * group.first + intercept, group.slope * group.last + intercept


def _steer(group: Group, intercept: int, sign: int, base: int, rest: int, room: int, modulus: int, centre: int) -> int:
    """The place rest + k·modulus within the gap whose group lies closest around the centre."""
    middle = group.slope * (group.first + group.last) // 2 + intercept - sign * (base + rest)
    wanted = sign * (middle - centre)  # lower f by `wanted` if the sign is positive
    most = (room - rest) // modulus
    steps = min(max((wanted + modulus // 2) // modulus, 0), most)
    return rest + steps * modulus


def fold_blocks(top: int, guard: int, levels: int, sections: int) -> tuple[Block, ...]:
    """The folds of levels top - 1 … sections + 1; the counted ones fold a little above their power of two."""
    blocks = []
    for p in range(top - 1, sections, -1):
        place = 1 << p
        if guard <= p < guard + sections * levels and (p - guard) % 2 == 0:
            place += 1 << ((p - guard) // levels + 1)
        blocks.append(Block(((1, -place, -2),)))
    return tuple(blocks)


def assemble(selector: Selector, guard: int, levels: int, sections: int, unit: Scale) -> tuple[Block, ...]:
    """Selector and folds with the fewest parameters: 3 per group, 4 per fold, and 1."""
    lift, top = _lift(selector, guard, levels, sections)
    units: list[Unit] = [(1, 0, unit.slope(selector.slope << guard) - 1)]
    for k in selector.kinks:
        w = k.steepness << guard
        units.append((unit.slope(w), unit.constant(w) - (k.place << guard), k.sign))
    shift = ((selector.intercept + lift) << guard) + (1 << (guard - 1)) + 1
    first = Block(tuple(units), shift + unit.constant(selector.slope << guard))
    return (first, *fold_blocks(top, guard, levels, sections))


def assemble_short(selector: Selector, guard: int, levels: int, sections: int, unit: Scale) -> tuple[Block, ...]:
    """The same with the fewest bits: for kinks of one steepness w = 2^k, scale the stream by w in a block of its own.

    Then a unit is (1, -place, ±1) and stores its payload once; the guard bits come in by another scaling behind it.
    """
    lift, top = _lift(selector, guard, levels, sections)
    steepness = {k.steepness for k in selector.kinks} or {1}
    scale = steepness.pop()
    if steepness or scale & (scale - 1):
        raise BuildError("short units need kinks of one steepness, a power of two; build with fixed slopes")
    units: list[Unit] = [(1, 0, dyadic(selector.slope - scale, 1 - scale.bit_length()))]
    units += [(1, -k.place, k.sign) for k in selector.kinks]
    return (
        Block(((1, 0, unit.slope(scale) - 1),), unit.constant(scale)),
        Block(tuple(units), selector.intercept + lift),
        Block(((1, 0, (1 << guard) - 1),), (1 << (guard - 1)) + 1),
        *fold_blocks(top, guard, levels, sections),
    )


def _lift(selector: Selector, guard: int, levels: int, sections: int) -> tuple[int, int]:
    """(multiple of 2^Qa that makes f >= 0 on the ids, number of bits of the lifted and guarded f)."""
    modulus_bits = sections * levels
    lift = -(selector.low >> modulus_bits) << modulus_bits
    top = (((selector.high + lift + 1) << guard) - 1).bit_length()
    return lift, max(top, guard + modulus_bits)
