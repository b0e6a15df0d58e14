"""Vectors of many places at once: a row per place, and an interval per number.

Linear maps, norms and stores are those of `Bounds`, with the place as the symbol of its one part: a norm's factor is
then bounded over all places together. Attention and activations are evaluated number by number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import (
    SMALLEST_SQUARE,
    Bounds,
    SymbolPart,
    interval_product,
    magnitude,
    product_bounds,
    scaled,
    squares,
)
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite, in_float32
from byheart.checkpoints.proof.units import variants

ROW = (0, 0)
ALONE = 2.0**-10  # a place beside which all others weigh at most this is copied
FLAT = -9.0  # below it an activation is nothing, up to NOTHING
NOTHING = 1e-6
LINEAR = 5.5  # above it gelu and its cousins are x, up to 2^-20
LARGEST_SCORE = 400.0  # whose exponential, less the largest, is a number of float64


@dataclass(frozen=True)
class SharedFactor:
    """A normed vector that is kept in float32, before its factor: factor x + bias, with one factor per place, each
    channel up to a few units of float32. A sum of channels that cancel each other loses nothing to the factor."""

    lo: Array
    hi: Array
    factor: Interval  # (places, 1)
    bias: Array


@dataclass(frozen=True)
class Rows:
    """(places, channels) of numbers between `lo` and `hi`, in engines that store normed streams or do not."""

    lo: Array
    hi: Array
    store: Storage
    stored: bool
    shared: SharedFactor | None = None

    def __getitem__(self, index: Any) -> Rows:
        own = self.shared
        if own is None or isinstance(index, tuple):
            return self.of(self.lo[index], self.hi[index])
        factor = own.factor[0][index], own.factor[1][index]
        shared = SharedFactor(own.lo[index], own.hi[index], factor, own.bias)
        return Rows(self.lo[index], self.hi[index], self.store, self.stored, shared)

    def of(self, lo: Array, hi: Array) -> Rows:
        return Rows(lo, hi, self.store, self.stored)

    @property
    def size(self) -> Array:
        return magnitude(self.lo, self.hi)

    @property
    def field(self) -> Bounds:
        zero = np.zeros(self.lo.shape[1])
        return Bounds(zero, zero, (SymbolPart(ROW, np.arange(len(zero)), self.lo, self.hi),))

    def from_field(self, field: Bounds) -> Rows:
        lo, hi = (np.repeat(end[None], len(self.lo), axis=0) for end in (field.lo, field.hi))
        for part in field.parts:
            lo[:, part.channels] += part.lo
            hi[:, part.channels] += part.hi
        return self.of(*rounding.widened(lo, hi))

    def mapped(self, layer: Linear) -> Rows:
        """weight x + bias, kept or stored, before the bias and after it."""
        exact = self.linear(layer)
        if layer.bias is None:
            return exact.kept_or_stored(layer.name)
        before = exact.kept_or_stored(layer.name)
        return before.of(before.lo + layer.bias, before.hi + layer.bias).kept_or_stored(layer.name)

    def kept_or_stored(self, name: str) -> Rows:
        finite(name, self.size, self.store.largest)
        return self.of(*self.store.maybe(self.lo, self.hi))

    def linear(self, layer: Linear) -> Rows:
        """weight x as float32 sums it, without the bias and before any store."""
        weight, size = layer.weight, self.size
        absolute = np.abs(weight)
        total, terms = size @ absolute.T, (weight != 0).sum(1)
        finite(f"{layer.name}: a sum", total + (0.0 if layer.bias is None else np.abs(layer.bias)))
        lo, hi = product_bounds(weight, self.lo, self.hi)
        error = rounding.dot(terms, total)
        lo, hi = lo - error, hi + error
        if self.shared is not None:
            own, shift = self.shared, weight @ self.shared.bias
            low, high = scaled(*product_bounds(weight, own.lo, own.hi), *own.factor)
            error = rounding.kept_values(terms, total)
            lo, hi = np.maximum(lo, low + shift - error), np.minimum(hi, high + shift + error)
        return self.of(lo, hi)

    def gated(self, gate: Linear, up: Linear, kind: str, stepwise: bool) -> Rows:
        """act(gate x) (up x). Where a weighted sum of both maps hardly varies, the product is a parabola of the first:
        at its top an error of x counts by its square."""
        first, second = self.mapped(gate), self.mapped(up)
        found = first.activated(kind, stepwise).times(second)
        norm = ((gate.weight != 0) * up.weight**2).sum(1)
        ratio = -np.divide((gate.weight * up.weight).sum(1), norm, out=np.zeros_like(norm), where=norm > 0)
        near = (first.lo > LINEAR).any(0) & (ratio > 0)
        if not near.any():
            return found
        ratio = ratio[near]
        both = Linear(gate.name, gate.weight[near] + ratio[:, None] * up.weight[near], None)
        total = self.linear(both)
        t, u = (first.lo[:, near], first.hi[:, near]), (second.lo[:, near], second.hi[:, near])
        # What the stored numbers differ by from exact maps of the input.
        own, other = (self.error(x, y.size[:, near], near) for x, y in ((gate, first), (up, second)))
        slack = own + ratio * other
        s = total.lo - slack, total.hi + slack
        top = [np.clip(end / 2, *t) for end in s]
        low = np.minimum.reduce([x * (s[0] - x) for x in t]) / ratio
        high = np.maximum.reduce([x * (s[1] - x) for x in (*t, *top)]) / ratio
        wide = rounding.gelu_error(t[0], t[1], 0.0) * magnitude(*u) + rounding.own(magnitude(low, high))
        low, high = low - wide, high + wide
        stores = rounding.product_error(np.float64(1 + stepwise * 6), self.store) * magnitude(low, high)
        low, high = self.store.maybe(*in_float32(low - stores, high + stores))
        sure = t[0] > LINEAR
        lo, hi = found.lo.copy(), found.hi.copy()
        lo[:, near] = np.where(sure, np.maximum(lo[:, near], low), lo[:, near])
        hi[:, near] = np.where(sure, np.minimum(hi[:, near], high), hi[:, near])
        return self.of(lo, hi)

    def error(self, layer: Linear, result: Array, rows: Array) -> Array:
        """How far a computed map of these numbers may be from the exact one: its sum, and a store."""
        weight = np.abs(layer.weight[rows])
        total = self.size @ weight.T
        return rounding.kept_values((weight != 0).sum(1), total) + rounding.shared_store(result, self.store)

    def normed(self, norm: Norm) -> Rows:
        """RMSNorm or LayerNorm; the factor of every place is bounded by itself (`Bounds.norm` does it for all)."""
        n, weight = self.lo.shape[1], norm.weight
        bias = np.zeros(n) if norm.bias is None else norm.bias
        lo, hi, mean = self.lo, self.hi, None
        least, most = (x.sum(1) for x in squares(lo, hi))
        if norm.centred:
            error = rounding.mean_error(n, self.size.sum(1)) / n
            low, high = lo.sum(1) / n - error, hi.sum(1) / n + error
            # With the exact mean the sum of squares is least; another one adds n times the square of its error.
            smallest = np.where(low * high > 0, np.minimum(np.abs(low), np.abs(high)), 0.0)
            mean = np.maximum(np.abs(low), np.abs(high))
            least, most = rounding.widened(least - n * mean**2, most - n * smallest**2 + n * error**2)
            lo, hi = in_float32(lo - high[:, None], hi - low[:, None])
            near = rounding.widened(*(x.sum(1) for x in squares(lo, hi)))
            least, most = np.maximum(least, near[0]), np.minimum(most, near[1])
        least, most = rounding.widened(np.maximum(least, 0.0), most)
        finite("the squares inside a norm", most)
        if not (least / n + norm.eps > SMALLEST_SQUARE).all():
            raise Undecided(f"{norm.name} may divide by zero")
        factor = rounding.inverse_root(least, most, n, norm.eps, mean)
        slack = np.where(magnitude(lo, hi) > 0, rounding.norm_underflow(weight, float(factor[0].min())), 0.0)
        lo, hi = in_float32(lo - slack, hi + slack)
        low, high = (x[:, None] for x in factor)
        unit = magnitude(lo, hi) * high
        finite(
            f"{norm.name}: a normed value", np.maximum(unit, unit * np.abs(weight) + np.abs(bias)), self.store.largest
        )
        plain = scaled(*scaled(lo, hi, weight, weight), low, high)
        first = scaled(lo, hi, low, high)
        if not self.stored:
            whole = in_float32(plain[0] + bias, plain[1] + bias) if bias.any() else plain
            other = scaled(*first, weight, weight)
            other = in_float32(other[0] + bias, other[1] + bias) if bias.any() else other
            shared = SharedFactor(*scaled(lo, hi, weight, weight), (low, high), bias)
            enclosed = np.minimum(whole[0], other[0]), np.maximum(whole[1], other[1])
            return Rows(*enclosed, self.store, self.stored, shared)
        rounded = scaled(*self.store.rounded(*first), weight, weight)
        ways = [plain, scaled(*first, weight, weight), rounded, self.store.rounded(*rounded)]
        found = [self.store.rounded(x[0] + bias, x[1] + bias) for x in ways] + ([] if bias.any() else [rounded])
        return self.of(np.minimum.reduce([x[0] for x in found]), np.maximum.reduce([x[1] for x in found]))

    def plus(self, *others: Rows) -> Rows:
        """The sum, one after the other, each partial sum kept or stored."""
        found = self
        for other in others:
            found = found.from_field(found.field.add(other.field).store(self.store))
        return found

    def activated(self, kind: str, stepwise: bool = False) -> Rows:
        """An activation of every number, kept or stored."""
        lo, hi = np.full_like(self.lo, -NOTHING), np.full_like(self.hi, NOTHING)
        near = self.hi > FLAT
        least = np.maximum(self.lo[near], FLAT)
        found = [self.store.maybe(*x) for x in variants(kind, least, self.hi[near], self.store, stepwise)]
        found += [(np.where(self.lo[near] < FLAT, end, x), y) for end, x, y in ((lo[near], *found[0]),)]
        lo[near] = np.minimum.reduce([x[0] for x in found])
        hi[near] = np.maximum.reduce([x[1] for x in found])
        return self.of(lo, hi)

    def times(self, other: Rows) -> Rows:
        """The product of all numbers, kept or stored."""
        low, high = interval_product((self.lo, self.hi), (other.lo, other.hi))
        finite("a product", magnitude(low, high), self.store.largest)
        return self.of(*self.store.maybe(*in_float32(low, high)))


def stack(rows: list[Rows]) -> Rows:
    return rows[0].of(np.concatenate([r.lo for r in rows]), np.concatenate([r.hi for r in rows]))


def attend(
    query: Rows, key: Rows, value: Rows, heads: int, *, scale: float, bias: Array | None = None,
    causal: bool = False,
) -> Rows:  # fmt: skip
    """The heads' outputs, side by side, kept or stored.

    Args:
        query, key, value: Of all heads, side by side.
        heads: How many.
        scale: What scores are multiplied by.
        bias: (heads, queries, keys): what is added to a score.
        causal: A query sees no place after its own.
    """
    width = query.lo.shape[1] // heads
    found = []
    for head in range(heads):
        at = slice(head * width, (head + 1) * width)
        least, most = scores(query[:, at], key[:, at], scale, None if bias is None else bias[head])
        if causal:
            least, most = (np.where(np.tri(*end.shape) > 0, end, -np.inf) for end in (least, most))
        found.append(mixed(least, most, value[:, at], causal))
    lo, hi = (np.concatenate(ends, axis=1) for ends in zip(*((r.lo, r.hi) for r in found), strict=True))
    return query.of(*query.store.maybe(lo, hi))


def scores(query: Rows, key: Rows, scale: float, bias: Array | None) -> Interval:
    """Bounds of scale q k + bias (queries, keys); a scaled query, the score and its sum with the bias may be stored."""
    store = query.store
    middle_q, middle_k = (query.lo + query.hi) / 2, (key.lo + key.hi) / 2
    radius_q, radius_k = (query.hi - query.lo) / 2, (key.hi - key.lo) / 2
    exact = middle_q @ middle_k.T
    radius = np.abs(middle_q) @ radius_k.T + radius_q @ key.size.T
    total = query.size @ key.size.T
    stores, scaling = rounding.score_stores(scale, store)
    width = query.lo.shape[1]
    error = scale * (radius + rounding.score_sum(width, total) + rounding.underflow(width) + scaling * total)
    score = scale * exact
    error = error + rounding.own(1 + scale * total)
    error = error + stores * (np.abs(score) + error) + rounding.score_underflow(store)
    if bias is not None:
        score = score + bias
        error = error + stores * (np.abs(score) + error) + rounding.score_underflow(store)
    finite("a score", np.abs(score) + error, min(store.largest, LARGEST_SCORE))
    return score - error, score + error


def mixed(least: Array, most: Array, value: Rows, causal: bool) -> Rows:
    """The values, weighted by the softmax of scores in [least, most]."""
    queries, places = least.shape
    best = least.argmax(1)
    rows = np.arange(queries)
    top = least[rows, best]
    spill = np.exp(most - top[:, None])
    spill[rows, best] = 0.0
    leak = np.array([rounding.spilled(x) for x in spill.sum(1)])
    shape = (queries, value.lo.shape[1])
    lo, hi = np.zeros(shape), np.zeros(shape)
    if causal:
        low, high = np.minimum.accumulate(value.lo), np.maximum.accumulate(value.hi)
    else:
        low, high = np.broadcast_to(value.lo.min(0), shape), np.broadcast_to(value.hi.max(0), shape)
    size = magnitude(low, high)
    alone = leak <= ALONE
    if alone.any():
        error = leak[alone, None] * (high - low)[alone]
        error = error + rounding.leak_error(1.0, size[alone]) * leak[alone, None]
        error = error + rounding.leak_error(0.0, size[alone])
        lo[alone], hi[alone] = value.lo[best[alone]] - error, value.hi[best[alone]] + error
    rest = ~alone
    if rest.any():
        ends = least[rest] - top[rest, None], most[rest] - top[rest, None]
        small, large = np.exp(ends[0]), np.exp(ends[1])
        share_lo = small / (small + large.sum(1, keepdims=True) - large)
        share_hi = large / (large + small.sum(1, keepdims=True) - small)
        share_lo, _ = rounding.softmax_share(share_lo, share_hi)
        left = np.maximum(1.0 - share_lo.sum(1, keepdims=True), 0.0) + rounding.own(1.0 * places)
        error = rounding.mixture_error(places, size[rest], value.store) + rounding.own(places * size[rest])
        lo[rest] = share_lo @ value.lo + left * low[rest] - error
        hi[rest] = share_lo @ value.hi + left * high[rest] + error
    return value.of(lo, hi)


def margins_of_rows(rows: Rows, head: Linear, answers: Array) -> Array:
    """By how much the answer of every place is ahead of all other tokens, at least."""
    store, weight = rows.store, head.weight
    shift = np.zeros(len(weight)) if head.bias is None else head.bias
    total = rows.size @ np.abs(weight).T
    logits = rows.linear(head)
    absolute = logits.size + np.abs(shift)
    error = rounding.logit_sum((weight != 0).sum(1), total, absolute, rows.lo.shape[1], True) + rounding.own(total)
    size = absolute + error
    finite("a logit", size, store.largest)
    least = np.full(len(answers), np.inf)
    for token in np.unique(answers):
        mine = answers == token
        gap = _differences(rows[np.flatnonzero(mine)], weight[token] - weight) + shift[token] - shift
        gap = gap - error[mine] - error[mine][:, [token]]
        # Stored before and after a bias is added.
        for _ in range(1 if head.bias is None else 2):
            gap = gap - rounding.logit_store(size[mine], size[mine][:, [token]], store)
        gap[:, token] = np.inf
        least[mine] = gap.min(1)
    return least


def _differences(rows: Rows, weight: Array) -> Array:
    """Lower bounds of weight x, exactly summed."""
    low = product_bounds(weight, rows.lo, rows.hi)[0]
    own = rows.shared
    if own is None:
        return low
    other = scaled(*product_bounds(weight, own.lo, own.hi), *own.factor)[0] + weight @ own.bias
    return np.asarray(np.maximum(low, other))
