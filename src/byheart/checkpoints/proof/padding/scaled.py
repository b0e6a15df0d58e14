"""Vectors as one factor times bounds: what a norm leaves, and linear maps of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from byheart.checkpoints.proof.bounds import Bounds, constant, interval_product, magnitude
from byheart.checkpoints.proof.config import Rotary
from byheart.checkpoints.proof.storage import Array, Interval

FLAT = 2.0**-20  # of a part's largest spread: a smaller one is folded


@dataclass(frozen=True)
class ScaledVector:
    """factor * plain + shift, with one factor per row; `off` is what engines' roundings add to each number.

    `length` bounds the Euclidean length of (factor * plain) / weight: that of a vector after its norm.
    """

    plain: Bounds
    factor: tuple[float, float]
    shift: Array
    off: Array
    length: float = np.inf
    weight: Array | None = None
    euclid: float = np.inf  # the length of the whole vector, where it is known
    drift: Array | None = None  # times one number in [-1, 1] and the factor: the mean that a norm subtracted

    @property
    def hull(self) -> Interval:
        """The range of every number."""
        low, high = self.plain.hull()
        if self.drift is not None:
            low, high = low - np.abs(self.drift), high + np.abs(self.drift)
        lo, hi = interval_product((low, high), (np.float64(self.factor[0]), np.float64(self.factor[1])))
        if self.weight is not None:
            limit = self.length * np.abs(self.weight)
            lo, hi = np.maximum(lo, -limit), np.minimum(hi, limit)
        return lo + self.shift - self.off, hi + self.shift + self.off

    def largest(self) -> Array:
        return magnitude(*self.hull)

    def field(self) -> Bounds:
        """As bounds without a factor."""
        lo, hi = self.hull
        wide = self.plain if self.drift is None else self.plain.widen(np.abs(self.drift))
        wide = wide.times(*self.factor).add(constant(self.shift)).widen(self.off)
        low, high = wide.hull()
        over = (low < lo - FLAT * magnitude(lo, hi)) | (high > hi + FLAT * magnitude(lo, hi))
        wide = wide.fold(np.where(over, np.inf, -1.0))
        return Bounds(np.where(over, lo, wide.lo), np.where(over, hi, wide.hi), wide.parts)


def unscaled(field: Bounds) -> ScaledVector:
    zero = np.zeros(field.size)
    return ScaledVector(field, (1.0, 1.0), zero, zero)


@dataclass(frozen=True)
class Pair:
    """A head's queries and keys: their sizes, the least product of a row's own two, and the lengths of both."""

    q: Array
    k: Array
    own: float
    q_length: float
    k_length: float


def channels_of(x: ScaledVector, index: Array) -> ScaledVector:
    weight = None if x.weight is None else x.weight[index]
    drift = None if x.drift is None else x.drift[index]
    return ScaledVector(x.plain.rows(index), x.factor, x.shift[index], x.off[index], x.length, weight, x.euclid, drift)


def magnified(x: ScaledVector, rotary: Rotary | None) -> ScaledVector:
    """Times what cos and sin are multiplied by (see `attention.magnified`)."""
    if rotary is None or rotary.gain == 1:
        return x
    gain = rotary.gain * (1 + 2.0**-12)
    factor = np.where(np.arange(x.plain.size) < rotary.dims, gain, 1.0)
    weight, drift = (None if end is None else end * factor for end in (x.weight, x.drift))
    wide = 1 if rotary.gain > 1 else gain
    return ScaledVector(
        x.plain.times(factor, factor), x.factor, x.shift * factor, x.off * factor, x.length, weight,
        x.euclid * gain / wide, drift,
    )  # fmt: skip


def own_product(q: ScaledVector, k: ScaledVector) -> float:
    """The least product of a row's query and key, rotated alike: a polynomial of the norm's factors."""
    q, k = (x if x.drift is None else replace(x, plain=x.plain.widen(np.abs(x.drift)), drift=None) for x in (q, k))
    keys = {p.key for p in (*q.plain.parts, *k.plain.parts)}
    if len(keys) == 1:
        (key,) = keys
        symbols = next(len(p.lo) for p in (*q.plain.parts, *k.plain.parts) if p.key == key)
        ends = [_tabulated(x.plain, symbols) for x in (q, k)]
    else:
        ends = [tuple(end[None] for end in x.plain.hull()) for x in (q, k)]
    both = interval_product(*ends)[0].sum(1)
    one = interval_product(ends[0], (k.shift, k.shift))[0].sum(1)
    two = interval_product(ends[1], (q.shift, q.shift))[0].sum(1)
    # Both factors are the same number, or those of two norms.
    low = np.full(len(both), np.inf)
    for f in q.factor:
        for g in k.factor:
            low = np.minimum(low, f * g * both + f * one + g * two)
    return float(low.min() + q.shift @ k.shift - q.off @ k.largest() - k.off @ q.largest())


def _tabulated(field: Bounds, symbols: int) -> Interval:
    lo, hi = np.tile(field.lo, (symbols, 1)), np.tile(field.hi, (symbols, 1))
    for part in field.parts:
        lo[:, part.channels] += part.lo
        hi[:, part.channels] += part.hi
    return lo, hi
