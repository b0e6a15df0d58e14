"""An MLP as a table: windows of symbols -> a vector; everything else stays near a constant.

`units.firing` finds the windows, `products` evaluates the units that fire, the router says which experts they belong to
(which experts a symbol chooses, and with which weights). Here their columns of the last matrix are added up, and
windows with the same vector become one symbol of the layer. Windows may leave places open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import decoder as d
from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import (
    FOLD,
    Bounds,
    Key,
    Normed,
    SymbolPart,
    constant,
    interval_product,
    magnitude,
)
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.products import Fired, products_of
from byheart.checkpoints.proof.storage import Array, Interval, Storage
from byheart.checkpoints.proof.units import ANY, sum_error


@dataclass(frozen=True)
class Routing:
    """Which experts a symbol chooses, with which weights: [lo, hi] is 0 for experts that are not chosen."""

    key: Key
    lo: Array  # (S, experts)
    hi: Array

    def weighted(self, expert: int, lo: Array, hi: Array, store: Storage) -> SymbolPart:
        low, high = store.maybe(lo, hi)
        rows = interval_product((low[None, :], high[None, :]), (self.lo[:, [expert]], self.hi[:, [expert]]))
        return SymbolPart(self.key, np.arange(len(lo)), *store.maybe(*rows))

    def summed(self, parts: list[SymbolPart], size: int) -> tuple[Array, Array, list[SymbolPart]]:
        lo, hi = sum(p.lo for p in parts), sum(p.hi for p in parts)
        slack = rounding.expert_sum(len(parts), np.add.reduce([magnitude(p.lo, p.hi) for p in parts]))
        return np.zeros(size), np.zeros(size), [SymbolPart(self.key, np.arange(size), lo - slack, hi + slack)]


def route(n: Normed, mlp: d.Mlp, shape: Shape, store: Storage) -> Routing | None:
    """Which experts every symbol chooses. Weights come from differences of logits, since channels are shared."""
    if mlp.router is None:
        return None
    kept = n.kept is not None
    logits = n.whole.matmul(mlp.router, None if kept else store, share=2.0**-3)
    if len(logits.parts) != 1:
        raise Undecided(f"{mlp.router.name}: the choice of experts depends on {len(logits.parts)} symbols")
    key = logits.parts[0].key
    lo, hi = _table(logits, key)
    apart_lo, apart_hi = _logit_differences(n, mlp.router, key, lo, hi, kept, store)
    order = np.argsort(-(lo + hi), axis=1)
    inside, outside = order[:, : shape.experts_used], order[:, shape.experts_used :]
    rows = np.arange(len(lo))[:, None]
    for column in outside.T:
        if (apart_lo[rows, inside, column[:, None]] <= 0).any():
            raise Undecided(f"{mlp.router.name}: the choice of experts is not certain for every input")
    low, high = np.zeros_like(lo), np.zeros_like(hi)
    for column in inside.T:
        own = column[:, None]
        rest = inside != own
        least = np.where(rest, np.exp(apart_lo[rows, inside, own]), 0.0).sum(1)
        most = np.where(rest, np.exp(apart_hi[rows, inside, own]), 0.0).sum(1)
        low[rows[:, 0], column], high[rows[:, 0], column] = store.maybe(*rounding.router_weights(least, most))
    return Routing(key, low, high)


def _logit_differences(
    n: Normed, router: d.Linear, key: Key, lo: Array, hi: Array, kept: bool, store: Storage
) -> Interval:
    """logit_i - logit_j for all experts and symbols: (S, experts, experts)."""
    weight, count = router.weight, len(router.weight)
    difference = (weight[:, None, :] - weight[None, :, :]).reshape(count * count, -1)
    field = n.whole.matmul(d.Linear(router.name, difference, None), None, share=2.0**-3)
    sums = sum_error(router, n.whole.largest()).most()
    # By symbol: the logits of experts that a symbol does not choose are larger, and so are their errors.
    error = np.broadcast_to(sums, lo.shape) if kept else rounding.router_logit(sums, magnitude(lo, hi), store)
    wide = error[:, :, None] + error[:, None, :]
    low, high = (x.reshape(-1, count, count) for x in _table(field, key, len(lo)))
    low, high = low - wide, high + wide
    return np.maximum(low, lo[:, :, None] - hi[:, None, :]), np.minimum(high, hi[:, :, None] - lo[:, None, :])


def _table(field: Bounds, key: Key, symbols: int | None = None) -> Interval:
    """Values by the symbol of one key, all other parts replaced by their hull."""
    rows = symbols or next(len(p.lo) for p in field.parts if p.key == key)
    lo, hi = np.tile(field.lo, (rows, 1)), np.tile(field.hi, (rows, 1))
    for part in field.parts:
        lo[:, part.channels] += part.lo if part.key == key else part.lo.min(0)
        hi[:, part.channels] += part.hi if part.key == key else part.hi.max(0)
    return lo, hi


@dataclass(frozen=True)
class KnownWindows:
    """What a layer's MLP knows: `windows[i]` (ANY: not read) has symbol `symbols[i]` >= 1; any other window has
    symbol 0.

    `units[i]` is the first hidden unit that fires there."""

    keys: tuple[Key, ...]
    windows: Array  # (n, K)
    symbols: Array  # (n,)
    units: Array  # (n,)
    common: Common | None = None


@dataclass(frozen=True)
class Common:
    """What all channels that a symbol's units write have in common: the vector is a fixed one times one number,
    known up to `radius`."""

    channels: Array  # (C,)
    direction: Array  # (S, C)
    radius: Array  # (S,)

    def then(self, other: Common) -> Common:
        """For the symbols of this table, and after them those of another one, without its symbol 0."""
        channels = np.union1d(self.channels, other.channels)
        direction = np.zeros((len(self.radius) + len(other.radius) - 1, len(channels)))
        direction[: len(self.radius), np.searchsorted(channels, self.channels)] = self.direction
        direction[len(self.radius) :, np.searchsorted(channels, other.channels)] = other.direction[1:]
        return Common(channels, direction, np.r_[self.radius, other.radius[1:]])


def overlap(windows: Array) -> bool:
    """Whether two of the windows (all different, with ANY in them) can hold at once."""
    masks, kind = np.unique(windows != ANY, axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    for a in range(len(masks)):
        for b in range(a):
            both = np.flatnonzero(masks[a] & masks[b])
            one, two = (np.unique(windows[kind == k][:, both], axis=0) for k in (a, b))
            if not len(both) or len(np.unique(np.concatenate([one, two]), axis=0)) < len(one) + len(two):
                return True
    return False


def aligned(windows: Array, keys: tuple[Key, ...], wanted: tuple[Key, ...]) -> Array:
    """Windows over some keys as windows over more keys."""
    result = np.full((len(windows), len(wanted)), ANY)
    for column, key in enumerate(keys):
        result[:, wanted.index(key)] = windows[:, column]
    return result


def join(first: KnownWindows, second: KnownWindows) -> KnownWindows | None:
    """Two tables of which at most one fires as one table; None if both may fire.

    Symbols of the first keep their numbers, those of the second come after them.
    """
    keys = tuple(dict.fromkeys((*first.keys, *second.keys)))
    windows = np.concatenate([aligned(t.windows, t.keys, keys) for t in (first, second)])
    if len(np.unique(windows, axis=0)) < len(windows) or overlap(windows):
        return None
    shift = first.symbols.max(initial=0)
    symbols = np.concatenate([first.symbols, second.symbols + shift])
    units = np.concatenate([first.units, second.units])
    if first.common is None or second.common is None:
        return KnownWindows(keys, windows, symbols, units)
    return KnownWindows(keys, windows, symbols, units, first.common.then(second.common))


def apply(
    n: Normed, mlp: d.Mlp, shape: Shape, once: frozenset[int], store: Storage, signal: int
) -> tuple[Bounds, KnownWindows]:
    """The MLP's output as a field that depends on one new signal, and the signal's table."""
    chosen = route(n, mlp, shape, store)
    outputs = [products_of(n, expert, shape, once, store) for expert in mlp.experts]
    keys = tuple(dict.fromkeys(key for fired in outputs for key in fired.found.keys))
    if chosen is not None and chosen.key not in keys:
        keys = (*keys, chosen.key)
    size = len(mlp.experts[0].down.weight)
    base_lo, base_hi = np.zeros(size), np.zeros(size)
    rows: list[_Output] = []
    parts: list[SymbolPart] = []
    for index, (expert, fired) in enumerate(zip(mlp.experts, outputs, strict=True)):
        windows = aligned(fired.found.window, fired.found.keys, keys)
        always = (windows == ANY).all(1)
        lo, hi, error = _constant_output(expert.down.weight, fired, always, _most_fired(windows, always))
        if chosen is None:
            base_lo, base_hi = base_lo + lo - error, base_hi + hi + error
        else:
            parts.append(chosen.weighted(index, lo - error, hi + error, store))
        rows.append(_fired_output(expert.down.weight, fired, windows, always, chosen, keys, index, store))
    table, part = _tabulate(keys, rows, signal)
    if chosen is not None:
        moved = np.zeros(size)
        for own in part:
            moved[own.channels] = magnitude(own.lo, own.hi).max(0)
        sizes = np.stack([magnitude(p.lo, p.hi) for p in parts])
        slack = rounding.summed_experts(sizes, moved, shape.experts_used, store)
        base_lo, base_hi, parts = chosen.summed(parts, size)
        base_lo, base_hi = base_lo - slack, base_hi + slack
    out = Bounds(base_lo, base_hi, (*parts, *part))
    spread = max((float(p.spread().max(initial=0.0)) for p in out.parts), default=0.0)
    out = out.fold(FOLD * spread).store(store)
    bias = mlp.experts[0].down.bias
    return (out if bias is None else out.add(constant(bias)).store(store)), table


@dataclass(frozen=True)
class _Output:
    windows: Array  # (P, K) aligned with the layer's keys
    lo: Array  # (P, C)
    hi: Array
    channels: Array
    unit: Array  # (P,) first unit
    direction: Array  # (P, C) the vector that is written, up to one number in `scalar`; zero where there is none
    scalar: Interval  # (P,)


def _most_fired(windows: Array, always: Array) -> int:
    """How many units with a window of their own fire together, at most."""
    return int(np.unique(windows[~always], axis=0, return_counts=True)[1].max(initial=0))


def _constant_output(down: Array, fired: Fired, always: Array, more: int) -> tuple[Array, Array, Array]:
    """What units that always fire add, and the error of the sum including everything that is silent; up to `more`
    other terms are in the same sum."""
    live = np.flatnonzero(always)
    order = live[np.argsort(fired.anchor[live], kind="stable")]
    start = np.flatnonzero(np.r_[True, np.diff(fired.anchor[order]) != 0]) if len(order) else np.zeros(0, dtype=int)
    silent = rounding.silent_sum(np.abs(down) @ fired.quiet)
    if not len(order):
        zero = np.zeros(len(down))
        return zero, zero, silent
    lo, hi, size = _group_sums(down[:, fired.found.unit[order]].T, fired, order, start)
    return lo.sum(0), hi.sum(0), rounding.fired_sum(len(order) + more, size.sum(0)) + silent


def _group_sums(weight: Array, fired: Fired, order: Array, start: Array) -> tuple[Array, Array, Array]:
    """Sums of weight times product over groups of entries (`order` begins a group at each of `start`), and of
    absolute values.

    Directly, and through differences from the group's anchor; the better of both.
    """
    lo, hi = (np.add.reduceat(x, start, 0) for x in _weighted(weight, fired.lo[order], fired.hi[order]))
    size = np.maximum(np.abs(fired.lo), np.abs(fired.hi))[order]
    absolute = np.add.reduceat(np.abs(weight) * size[:, None], start, 0)
    if len(start) < len(order):
        leader = fired.anchor[order][start]
        total = np.add.reduceat(weight, start, 0)
        first = interval_product((total, total), (fired.lo[leader][:, None], fired.hi[leader][:, None]))
        others = _weighted(weight, fired.apart_lo[order], fired.apart_hi[order])
        lo = np.maximum(lo, first[0] + np.add.reduceat(others[0], start, 0))
        hi = np.minimum(hi, first[1] + np.add.reduceat(others[1], start, 0))
    return lo, hi, absolute


def _fired_output(
    down: Array,
    fired: Fired,
    windows: Array,
    always: Array,
    chosen: Routing | None,
    keys: tuple[Key, ...],
    expert: int,
    store: Storage,
) -> _Output:
    """The vectors that windows add, one row per window."""
    live = np.flatnonzero(~always & down[:, fired.found.unit].any(0))  # a unit that writes nothing knows nothing
    share = None
    if chosen is not None:
        symbols = windows[live, keys.index(chosen.key)]
        if (symbols == ANY).any():
            raise Undecided(f"a unit of expert {expert} fires for symbols of both choices of the router")
        kept = chosen.hi[symbols, expert] > 0
        live, share = live[kept], (chosen.lo[symbols[kept], expert], chosen.hi[symbols[kept], expert])
    order = live[np.lexsort(windows[live].T[::-1])] if len(live) else live
    if share is not None:
        rank = np.searchsorted(live, order)
        share = share[0][rank], share[1][rank]
    rows = windows[order]
    start = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]).any(1)]) if len(order) else np.zeros(0, dtype=int)
    columns = np.abs(down[:, fired.found.unit[order]])
    size = np.maximum(np.abs(fired.lo), np.abs(fired.hi))[order]
    reach = (columns * size).max(1, initial=0.0)
    channels = np.flatnonzero(reach > 0)
    if not len(order):
        none = np.zeros((0, 0))
        return _Output(rows, none, none, channels, order, none, (np.zeros(0), np.zeros(0)))
    weight = down[np.ix_(channels, fired.found.unit[order])].T  # (E, C)
    lo, hi, absolute = _group_sums(weight, fired, order, start)
    counts = np.diff(np.r_[start, len(order)])
    error = rounding.fired_sum((counts + always.sum())[:, None], absolute)
    lo, hi = lo - error, hi + error
    if share is not None:
        low, high = share[0][start][:, None], share[1][start][:, None]
        lo, hi = store.maybe(*interval_product(store.maybe(lo, hi), (low, high)))
    direction, scalar = _scalars(weight, fired, order, start, counts)
    if share is not None:
        scalar = interval_product(scalar, (share[0][start], share[1][start]))
    return _Output(rows[start], lo, hi, channels, fired.found.unit[order][start], direction, scalar)


def _scalars(weight: Array, fired: Fired, order: Array, start: Array, counts: Array) -> tuple[Array, Interval]:
    """Windows whose vector is one column times one number: a single unit, or two with opposite columns."""
    direction = weight[start].copy()
    lo, hi = fired.lo[order][start].copy(), fired.hi[order][start].copy()
    pair = np.flatnonzero(counts == 2)
    second = start[pair] + 1
    opposite = (weight[second] == -weight[start[pair]]).all(1) & (fired.anchor[order][second] == order[start[pair]])
    direction[counts > 1] = 0.0
    chosen = pair[opposite]
    direction[chosen] = weight[start[chosen]]
    lo[chosen], hi[chosen] = -fired.apart_hi[order][second[opposite]], -fired.apart_lo[order][second[opposite]]
    return direction, (lo, hi)


def _weighted(weight: Array, lo: Array, hi: Array) -> Interval:
    middle, radius = ((lo + hi) / 2)[:, None], ((hi - lo) / 2)[:, None]
    centre, spread = weight * middle, np.abs(weight) * radius
    return centre - spread, centre + spread


def _tabulate(
    keys: tuple[Key, ...], outputs: list[_Output], signal: int
) -> tuple[KnownWindows, tuple[SymbolPart, ...]]:
    """Windows of all experts together; windows with the same vector get the same symbol."""
    windows = np.concatenate([o.windows for o in outputs])
    if not len(windows):
        empty = np.zeros(0, dtype=int)
        return KnownWindows(keys, windows, empty, empty), ()
    channels = np.unique(np.concatenate([o.channels for o in outputs]))
    distinct, inverse = np.unique(windows, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    lo, hi = np.zeros((len(distinct), len(channels))), np.zeros((len(distinct), len(channels)))
    unit, start = np.zeros(len(distinct), dtype=int), 0
    for o in outputs:
        at = inverse[start : start + len(o.windows)]
        start += len(o.windows)
        if len(at):
            where = np.ix_(at, np.searchsorted(channels, o.channels))
            lo[where] += o.lo
            hi[where] += o.hi
            unit[at] = o.unit
    if overlap(distinct):
        raise Undecided("two units with different windows can fire together")
    middle = (lo + hi) / 2
    grid = np.rint(middle / (2.0**-6 * max(float(np.abs(middle).max()), 1e-300))).astype(np.int32)
    _, symbols = np.unique(grid, axis=0, return_inverse=True)
    symbols = symbols.reshape(-1)
    count = int(symbols.max()) + 1
    order = np.argsort(symbols, kind="stable")
    begin = np.searchsorted(symbols[order], np.arange(count))
    none = np.zeros((1, len(channels)))
    low = np.concatenate([none, np.minimum.reduceat(lo[order], begin, 0)])
    high = np.concatenate([none, np.maximum.reduceat(hi[order], begin, 0)])
    common = None
    if len(distinct) == len(windows):  # no window is held by two experts
        common = _common(outputs, channels, np.argsort(inverse)[order], begin)
    return KnownWindows(keys, distinct, symbols + 1, unit, common), (SymbolPart((signal, 0), channels, low, high),)


def _common(outputs: list[_Output], channels: Array, order: Array, begin: Array) -> Common:
    """Per symbol: the direction, if all its windows have the same one, and how far their numbers lie apart."""
    wide = []
    for output in outputs:
        wide.append(np.zeros((len(output.windows), len(channels))))
        wide[-1][:, np.searchsorted(channels, output.channels)] = output.direction
    direction = np.concatenate(wide)[order]
    first, sizes = direction[begin], np.diff(np.r_[begin, len(order)])
    same = np.logical_and.reduceat((direction == np.repeat(first, sizes, axis=0)).all(1), begin)
    low, high = (np.concatenate([output.scalar[side] for output in outputs])[order] for side in (0, 1))
    lo, hi = np.minimum.reduceat(low, begin), np.maximum.reduceat(high, begin)
    none = np.zeros((1, len(channels)))
    found = np.where(same[:, None], first, 0.0)
    return Common(channels, np.concatenate([none, found]), np.r_[0.0, np.where(same, (hi - lo) / 2, 0.0)])
