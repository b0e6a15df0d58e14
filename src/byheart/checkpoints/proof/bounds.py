"""Vectors as functions of symbols: the abstract values of the proof, whose operations carry their rounding.

At position t, a vector of the network (the residual stream, a normed stream, values, ...) is enclosed, for every
input, by

    value[c]  in  [lo_c, hi_c]  +  sum over parts p:  [lo_p, hi_p](symbol of signal s_p at position max(0, t -
    offset_p), c)

(a negative offset_p means a *far* part: what a head that stays where it cannot look so far back has seen there of a
part with a near offset; see `moved_back`). An offset from `absent` has one symbol more, the last: *nothing*, which
is there where the sequence has no position t - offset. A causal convolution sees that (`convolution`).

A *signal* gives every position one symbol out of finitely many: signal 0 is the token, signal l + 1 is "which entry
of layer l's table fired here" (0: none), signal POSITION is the position itself, signal START is whether BOS is
at the start and how far back that is. Parts are functions of one symbol, tabulated. So a field is a separable
function with interval slack: `add`, `matmul`, `norm` and `store` stay inside this form and widen it by what engines may
round (`rounding`), and the extreme values over all inputs are sums of extreme values of the parts.

A part whose effect on a channel is small is *folded*: replaced by its hull. That is always sound, and it loses only
precision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.low_rank import LowRank
from byheart.checkpoints.proof.storage import STORAGES, Array, Interval, Storage, finite, in_float32

Key = tuple[int, int]  # signal, offset
TOKEN, POSITION, START = 0, -1, -2
# START has a symbol for BOS at the start and position 0, 1, ..., STARTS - 1; for later positions; and for no BOS at
# the start
STARTS = 256
FOLD = 2.0**-6  # a part is folded where its effect on a channel is below this share of the largest one


_JUMP = 1 << 24  # more than any reach: -(rest * _JUMP + jump) is a far offset
_ABSENT = 1 << 56  # _ABSENT + offset is an offset whose parts have a row for "nothing"


def absent(offset: int) -> int:
    """The offset whose parts have one row more, the last: what is seen where the sequence does not reach so far back.

    >>> lookback(absent(3)), is_absent(absent(3)), is_absent(3)
    (3, True, False)
    """
    return _ABSENT + offset


def is_absent(offset: int) -> bool:
    return offset >= _ABSENT


def moved_back(offset: int, by: int, stays: bool) -> int:
    """The offset of a key that is seen through a head which looks `by` places back, and, if it `stays`, at its own
    place where there is nothing so far back. A ValueError where the result is no offset.

    Through a head that shows the first place instead, an absent offset stays one: the first place has nothing before.
    """
    if is_absent(offset) and stays:
        raise ValueError(f"a head that looks {by} places back may stay where something else sees nothing")
    if offset >= 0:
        return -(offset * _JUMP + by) if stays else offset + by
    if by:
        raise ValueError(f"a head looks {by} places back at a place that another head has jumped to")
    return offset


def lookback(offset: int) -> int:
    """How far back an offset sees.

    >>> lookback(7), lookback(moved_back(2, 25, stays=True))
    (7, 27)
    """
    return offset % _ABSENT if offset >= 0 else -offset // _JUMP + -offset % _JUMP


def places_seen(place: Array, begin: Array | int, offset: int) -> Array:
    """The position that a key's offset means, at positions `place` of sequences that begin at `begin`.

    >>> places_seen(np.arange(6), 0, 4).tolist(), places_seen(np.arange(6), 0, moved_back(1, 4, stays=True)).tolist()
    ([0, 0, 0, 0, 0, 1], [0, 0, 1, 2, 0, 0])
    """
    if offset < 0:
        jump, offset = -offset % _JUMP, -offset // _JUMP
        place = np.where(place - jump >= begin, place - jump, place)
    return np.asarray(np.maximum(begin, place - offset % _ABSENT))


def symbols_seen(values: Array, symbols: int, place: Array, begin: Array | int, offset: int) -> Array:
    """The symbols of a signal, of which there are `symbols`, that a key's offset means: `values` are those by place.

    >>> symbols_seen(np.array([5, 6, 7]), 9, np.arange(3), 0, absent(1)).tolist()
    [9, 5, 6]
    """
    found = values[places_seen(place, begin, offset)]
    if is_absent(offset):
        found = np.where(place - lookback(offset) >= begin, found, symbols)
    return np.asarray(found)


@dataclass(frozen=True)
class SymbolPart:
    """What one symbol adds: rows are symbols, columns the channels in `channels`."""

    key: Key
    channels: Array  # (C,) ascending
    lo: Array  # (S, C)
    hi: Array

    def spread(self) -> Array:
        """How much knowing the symbol moves the interval of each channel."""
        return np.maximum(self.lo.max(0) - self.lo.min(0), self.hi.max(0) - self.hi.min(0))


@dataclass(frozen=True)
class Bounds:
    """One vector of the network, for every input: see the text above."""

    lo: Array  # (n,)
    hi: Array
    parts: tuple[SymbolPart, ...] = ()

    @property
    def size(self) -> int:
        return len(self.lo)

    def hull(self) -> Interval:
        """The range of every channel over all inputs."""
        lo, hi = self.lo.copy(), self.hi.copy()
        for part in self.parts:
            lo[part.channels] += part.lo.min(0)
            hi[part.channels] += part.hi.max(0)
        return lo, hi

    def largest(self) -> Array:
        """The largest absolute value of every channel over all inputs."""
        return magnitude(*self.hull())

    def owners(self) -> Array:
        """How many parts touch each channel."""
        count = np.zeros(self.size, dtype=int)
        for part in self.parts:
            count[part.channels] += 1
        return count

    def rows(self, index: Array) -> Bounds:
        """Some channels, in the order of `index`."""
        place = np.full(self.size, -1)
        place[index] = np.arange(len(index))
        parts = []
        for part in self.parts:
            kept = np.flatnonzero(place[part.channels] >= 0)
            if len(kept):
                parts.append(_ordered(part.key, place[part.channels[kept]], part.lo[:, kept], part.hi[:, kept]))
        return Bounds(self.lo[index], self.hi[index], tuple(parts))

    def widen(self, error: Array) -> Bounds:
        """Every channel up to an error that a rule of `rounding` gives."""
        return Bounds(self.lo - error, self.hi + error, self.parts)

    def without(self, signals: Iterable[int]) -> Bounds:
        """Parts of some signals replaced by their hull."""
        lo, hi = self.lo.copy(), self.hi.copy()
        for part in self.parts:
            if part.key[0] in signals:
                lo[part.channels] += part.lo.min(0)
                hi[part.channels] += part.hi.max(0)
        return Bounds(lo, hi, tuple(p for p in self.parts if p.key[0] not in signals))

    def fold(self, tolerance: Array | float) -> Bounds:
        """Parts whose spread on a channel is at most `tolerance` become part of the constant's slack."""
        lo, hi, parts = self.lo.copy(), self.hi.copy(), []
        limit = np.broadcast_to(np.asarray(tolerance, float), (self.size,))
        for part in self.parts:
            low, high = part.lo.min(0), part.hi.max(0)
            small = part.spread() <= limit[part.channels]
            lo[part.channels[small]] += low[small]
            hi[part.channels[small]] += high[small]
            keep = ~small
            if keep.any():
                parts.append(SymbolPart(part.key, part.channels[keep], part.lo[:, keep], part.hi[:, keep]))
        return Bounds(*rounding.widened(lo, hi), tuple(parts))

    def add(self, *others: Bounds) -> Bounds:
        """The sum, not yet stored. Zero stays zero."""
        terms = (self, *others)
        lo, hi = np.add.reduce([f.lo for f in terms]), np.add.reduce([f.hi for f in terms])
        slack = rounding.own(sum(magnitude(f.lo, f.hi) for f in terms))
        return Bounds(lo - slack, hi + slack, merged(p for f in terms for p in f.parts))

    def store(self, store: Storage | None) -> Bounds:
        """A tensor that is stored or not. Where one part owns a channel, its rows take the constant in and are rounded
        symbol by symbol; where several do, only the size of a rounding is known."""
        count = self.owners()
        if store is not None:
            finite("a stored vector", self.largest(), store.largest)
        lo, hi = (self.lo.copy(), self.hi.copy()) if store is None else store.maybe(self.lo, self.hi)
        several = count > 1
        if several.any():
            slack = np.zeros(self.size) if store is None else rounding.shared_store(self.largest(), store)
            lo, hi = np.where(several, self.lo - slack, lo), np.where(several, self.hi + slack, hi)
        parts = []
        for part in self.parts:
            single = count[part.channels] == 1
            base_lo, base_hi = (np.where(single, x[part.channels], 0.0) for x in (self.lo, self.hi))
            low, high = rounding.widened(part.lo + base_lo, part.hi + base_hi)
            if store is not None:
                stored = store.maybe(low, high)
                low, high = np.where(single, stored[0], low), np.where(single, stored[1], high)
            parts.append(SymbolPart(part.key, part.channels, low, high))
            lo[part.channels[single]] = hi[part.channels[single]] = 0.0
        return Bounds(lo, hi, tuple(parts))

    def times(self, low: Array | float, high: Array | float) -> Bounds:
        """Each channel times a number of [low, high] (one per channel, or one for all), rounded to float32."""
        low, high = (np.broadcast_to(np.asarray(x, float), (self.size,)) for x in (low, high))
        parts = (
            SymbolPart(p.key, p.channels, *scaled(p.lo, p.hi, low[p.channels], high[p.channels])) for p in self.parts
        )
        return Bounds(*scaled(self.lo, self.hi, low, high), tuple(parts))

    def matmul(self, layer: Linear, store: Storage | None, share: float = FOLD) -> Bounds:
        """weight x + bias, stored or not, before and after the bias (without a store: the exact map). Effects below
        `share` of a row's largest one are folded.
        """
        if layer.adapter is not None and store is not None:
            return self._adapted(layer, layer.adapter, store)
        weight, absolute = layer.weight, np.abs(layer.weight)
        lo, hi = product_bounds(weight, self.lo, self.hi)
        size = self.largest()
        terms, total = ((weight != 0) & (size > 0)).sum(1), absolute @ size
        finite(f"{layer.name}: a sum", total + (0.0 if layer.bias is None else np.abs(layer.bias)))
        error = rounding.own(terms * total) if store is None else rounding.dot(terms, total)
        lo, hi = lo - error, hi + error
        spreads = [absolute[:, p.channels] @ p.spread() for p in self.parts]
        limit = share * np.maximum.reduce(spreads) if spreads else np.zeros(len(weight))
        parts = []
        for part, spread in zip(self.parts, spreads, strict=True):
            touched = absolute[:, part.channels] @ magnitude(part.lo, part.hi).max(0) > 0
            small = np.flatnonzero(touched & (spread <= limit))
            if len(small):
                low, high = product_bounds(weight[np.ix_(small, part.channels)], part.lo.min(0), part.hi.max(0))
                lo[small] += low
                hi[small] += high
            large = np.flatnonzero(spread > limit)
            if len(large):
                inner = weight[np.ix_(large, part.channels)]
                parts.append(SymbolPart(part.key, large, *product_bounds(inner, part.lo, part.hi)))
        result = Bounds(lo, hi, tuple(parts)).store(store)
        return result if layer.bias is None else result.add(constant(layer.bias)).store(store)

    def _adapted(self, layer: Linear, parts: LowRank, store: Storage) -> Bounds:
        """W x + scale B (A x), every part kept or stored, scaled before B or after it; or the merged matrix."""
        first = self.matmul(Linear(layer.name, parts.base, layer.bias), store)
        inner, second = self.matmul(Linear(layer.name, parts.a, None), store), Linear(layer.name, parts.b, None)
        ends = parts.scale_ends
        after = inner.matmul(second, store).times(*ends).store(store)
        before = inner.times(*ends).store(store).matmul(second, store)
        merged = self.matmul(Linear(layer.name, layer.weight, layer.bias), store)
        return either(first.add(either(after, before)).store(store), merged)

    def energy(self, centre: tuple[float, float] = (0.0, 0.0)) -> tuple[float, float]:
        """Bounds of the sum of squares over all channels and all inputs, of the values minus a mean."""
        count = self.owners()
        alone = count == 0
        low, high = squares(self.lo[alone] - centre[1], self.hi[alone] - centre[0])
        least, most = low.sum(), high.sum()
        several = count > 1
        if several.any():
            lo, hi = self.hull()
            low, high = squares(lo[several] - centre[1], hi[several] - centre[0])
            least, most = least + low.sum(), most + high.sum()
        for part in self.parts:
            single = count[part.channels] == 1
            if single.any():
                base_lo, base_hi = self.lo[part.channels[single]], self.hi[part.channels[single]]
                low, high = squares(part.lo[:, single] + base_lo - centre[1], part.hi[:, single] + base_hi - centre[0])
                least, most = least + low.sum(1).min(), most + high.sum(1).max()
        return float(least - rounding.own(least)), float(most + rounding.own(most))

    def total(self) -> tuple[float, float]:
        """Bounds of the exact sum over the channels, over all inputs."""
        lo, hi = self.lo.sum(), self.hi.sum()
        for part in self.parts:
            lo, hi = lo + part.lo.sum(1).min(), hi + part.hi.sum(1).max()
        slack = rounding.own(self.size * self.largest().sum())
        return float(lo - slack), float(hi + slack)

    def mean(self) -> tuple[float, float]:
        """Bounds of the mean over the channels, over all inputs, as float32 computes it."""
        lo, hi = self.total()
        error = rounding.mean_error(self.size, self.largest().sum())
        return float(lo - error) / self.size, float(hi + error) / self.size

    def variance(self) -> tuple[float, float]:
        """Bounds of the sum of squares of the values minus the mean that float32 computes: the sum of squares minus
        that of the exact mean, which does not take the mean for another number in every channel, plus that of its
        error."""
        least, most = self.energy()
        lo, hi = (x / self.size for x in self.total())
        smallest = min(abs(lo), abs(hi)) if lo * hi > 0 else 0.0
        error = float(rounding.mean_error(self.size, self.largest().sum())) / self.size
        low, high = self.energy(self.mean())
        slack = float(rounding.own(most))
        least = least - self.size * max(abs(lo), abs(hi)) ** 2 - slack
        most = most - self.size * smallest**2 + self.size * error**2 + slack
        return max(low, least), min(high, most)

    def norm_factor(self, eps: float, centre: tuple[float, float] | None) -> tuple[float, float]:
        """Bounds of 1 / sqrt(mean square + eps), of the values minus a mean."""
        least, most = self.energy() if centre is None else self.variance()
        finite("the squares inside a norm", np.asarray(most))
        if not least / self.size + eps > SMALLEST_SQUARE:
            raise Undecided(f"a norm may divide by zero: mean square {least / self.size:.3g}, eps {eps:.3g}")
        mean = None if centre is None else np.asarray(max(abs(centre[0]), abs(centre[1])))
        low, high = rounding.inverse_root(np.asarray(least), np.asarray(most), self.size, eps, mean)
        return float(low), float(high)

    def norm(self, norm: Norm, store: Storage, stored: bool) -> Normed:
        """RMSNorm or LayerNorm, in an engine that stores normed streams (before the weight, after it, or both), or in
        one that does not.
        """
        centre = self.mean() if norm.centred else None
        factor = self.norm_factor(norm.eps, centre)
        field = self
        if centre is not None:
            field = Bounds(*in_float32(self.lo - centre[1], self.hi - centre[0]), self.parts)
        slack = np.where(field.largest() > 0, rounding.norm_underflow(norm.weight, factor[0]), 0.0)
        field = field.widen(slack).store(None)
        bias = norm.bias if norm.bias is not None and norm.bias.any() else None
        unit = field.largest() * factor[1]
        ends = unit * np.abs(norm.weight) + (0.0 if bias is None else np.abs(bias))
        finite(f"{norm.name}: a normed value", np.maximum(unit, ends), store.largest)
        if stored:
            return Normed(_stored(field, factor, norm, store), None, factor, bias)
        kept = field.times(norm.weight, norm.weight)
        whole = kept.times(*factor)
        whole = whole if bias is None else whole.add(constant(bias)).store(STORAGES["float32"])
        if centre is None:
            return Normed(whole, kept, factor, bias)
        middle, half = (centre[0] + centre[1]) / 2, (centre[1] - centre[0]) / 2
        near = Bounds(*in_float32(self.lo - middle, self.hi - middle), self.parts)
        near = near.widen(slack + rounding.centred_error(half)).store(None).times(norm.weight, norm.weight)
        return Normed(whole, kept, factor, bias, near, half * norm.weight)

    def norm_stepwise(self, norm: Norm, store: Storage) -> Bounds:
        """RMSNorm of a short vector (a head's query or key), each step stored or not."""
        result = self.times(*self.norm_factor(norm.eps, None)).store(store).times(norm.weight, norm.weight).store(store)
        return result if norm.bias is None or not norm.bias.any() else result.add(constant(norm.bias)).store(store)


SMALLEST_SQUARE = 2.0**-100  # a mean square below this is taken for a division by zero


@dataclass(frozen=True)
class Normed:
    """A normed stream: `whole` encloses it channel by channel.

    When it is kept in float32, all channels share the norm's factor: `kept` times `factor`, plus `bias`, each channel
    up to a few units of float32. When it is stored, each channel is rounded by itself, and `kept` is None.

    LayerNorm subtracts one mean from all channels, which is known up to an error: with e in [-1, 1], the same number
    for all of them, `near` plus e times `drift` encloses what `kept` does. A linear form that adds up to zero over
    `drift` loses nothing to that error.
    """

    whole: Bounds
    kept: Bounds | None
    factor: tuple[float, float]
    bias: Array | None
    near: Bounds | None = None
    drift: Array | None = None

    def drifted(self, weight: Array) -> Array | float:
        """By how much the error of the mean moves each row of `weight` times `near`."""
        if self.drift is None:
            return 0.0
        return np.asarray(np.abs(weight @ self.drift) + rounding.own(np.abs(weight) @ np.abs(self.drift)))


def magnitude(lo: Array, hi: Array) -> Array:
    return np.maximum(np.abs(lo), np.abs(hi))


def constant(lo: Array, hi: Array | None = None) -> Bounds:
    return Bounds(np.asarray(lo, float), np.asarray(lo if hi is None else hi, float))


def _ordered(key: Key, channels: Array, lo: Array, hi: Array) -> SymbolPart:
    order = np.argsort(channels)
    return SymbolPart(key, channels[order], lo[:, order], hi[:, order])


def merged(parts: Iterable[SymbolPart]) -> tuple[SymbolPart, ...]:
    """Parts of the same key are added."""
    by_key: dict[Key, list[SymbolPart]] = {}
    for part in parts:
        if len(part.channels):
            by_key.setdefault(part.key, []).append(part)
    result = []
    for key, group in by_key.items():
        if len(group) == 1:
            result.append(group[0])
            continue
        channels = np.unique(np.concatenate([p.channels for p in group]))
        lo, hi = np.zeros((len(group[0].lo), len(channels))), np.zeros((len(group[0].lo), len(channels)))
        for p in group:
            at = np.searchsorted(channels, p.channels)
            lo[:, at] += p.lo
            hi[:, at] += p.hi
        result.append(SymbolPart(key, channels, *rounding.widened(lo, hi)))
    return tuple(result)


def either(*cases: Bounds) -> Bounds:
    """A field that encloses all of them: whichever case holds. A part that a case lacks is zero there."""
    parts = []
    for key in dict.fromkeys(p.key for f in cases for p in f.parts):
        found = [next((p for p in f.parts if p.key == key), None) for f in cases]
        channels = np.unique(np.concatenate([p.channels for p in found if p is not None]))
        symbols = next(len(p.lo) for p in found if p is not None)
        lows, highs = [], []
        for p in found:
            lo, hi = np.zeros((symbols, len(channels))), np.zeros((symbols, len(channels)))
            if p is not None:
                at = np.searchsorted(channels, p.channels)
                lo[:, at], hi[:, at] = p.lo, p.hi
            lows.append(lo)
            highs.append(hi)
        parts.append(SymbolPart(key, channels, np.minimum.reduce(lows), np.maximum.reduce(highs)))
    return Bounds(np.minimum.reduce([f.lo for f in cases]), np.maximum.reduce([f.hi for f in cases]), tuple(parts))


def product_bounds(weight: Array, lo: Array, hi: Array) -> Interval:
    """Bounds of weight x for x in [lo, hi], x as rows: (rows of x, rows of weight)."""
    middle, radius = (lo + hi) / 2, (hi - lo) / 2
    centre = middle @ weight.T
    if not radius.any():
        return centre, centre.copy()
    spread = radius @ np.abs(weight).T
    return centre - spread, centre + spread


def squares(lo: Array, hi: Array) -> Interval:
    low = np.where((lo <= 0) & (hi >= 0), 0.0, np.minimum(lo**2, hi**2))
    return low, np.maximum(lo**2, hi**2)


def _stored(field: Bounds, factor: tuple[float, float], norm: Norm, store: Storage) -> Bounds:
    """The normed stream, stored at least once: after the factor, after the weight, or both; with a bias, at least at
    the end.
    """
    several = field.owners() > 1
    bias = np.zeros(field.size) if norm.bias is None else norm.bias
    ends = bool(bias.any())

    def ways(lo: Array, hi: Array, channels: Array) -> Interval:
        weight, shift, loose = norm.weight[channels], bias[channels], several[channels]
        low, high = scaled(lo, hi, np.float64(factor[0]), np.float64(factor[1]))
        plain = scaled(low, high, weight, weight)
        least, most = stored_norm(low, high, weight, shift if ends else None, store)
        return np.where(loose, plain[0], least), np.where(loose, plain[1], most)

    parts = tuple(SymbolPart(p.key, p.channels, *ways(p.lo, p.hi, p.channels)) for p in field.parts)
    lo, hi = ways(field.lo, field.hi, np.arange(field.size))
    owned = field.owners() == 1
    lo, hi = np.where(owned, 0.0, lo), np.where(owned, 0.0, hi)
    size = field.largest() * factor[1] * np.abs(norm.weight) + np.abs(bias)
    slack = np.where(several, rounding.shared_norm(size, norm.weight, store), 0.0)
    shift = np.where(several, bias, 0.0)
    return Bounds(lo - slack + shift, hi + slack + shift, parts)


def stored_norm(lo: Array, hi: Array, weight: Array, bias: Array | None, store: Storage) -> Interval:
    """Channels [lo, hi] of a stream after its norm's factor, times the weight, stored after the factor, after the
    weight, or both; with a bias, at least at the end."""
    # Products of two short numbers are exact in float32; one of Gemma's 1 + weight may have to be rounded.
    first = STORAGES["float32"].rounded(*interval_product(store.rounded(lo, hi), (weight, weight)))
    shift = 0.0 if bias is None else bias
    ways = (scaled(lo, hi, weight, weight), first, store.rounded(*first))
    found = [store.rounded(x[0] + shift, x[1] + shift) for x in ways]
    found += [first] if bias is None else []
    return np.minimum.reduce([x[0] for x in found]), np.maximum.reduce([x[1] for x in found])


def scaled(lo: Array, hi: Array, low: Array, high: Array) -> Interval:
    """[lo, hi] * [low, high], with one float32 rounding."""
    return in_float32(*interval_product((lo, hi), (low, high)))


def interval_product(a: Interval, b: Interval) -> Interval:
    """The exact range of products."""
    ends = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)
