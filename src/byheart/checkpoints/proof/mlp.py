"""An MLP as a table: windows of symbols -> a vector; everything else stays near a constant.

`units.firing` finds the windows, `products` evaluates the units that fire, `routing` finds the experts that a symbol
chooses and how much they weigh. Here their columns of the last matrix are added up, and windows with the same vector
become one symbol of the layer. Windows may leave places open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from byheart.checkpoints.proof.low_rank import LowRank
from byheart.checkpoints.proof.products import Fired, products_of
from byheart.checkpoints.proof.routing import ExpertChoice, route
from byheart.checkpoints.proof.state_rounding import sigmoids
from byheart.checkpoints.proof.storage import Array, Interval, Storage
from byheart.checkpoints.proof.units import ANY


@dataclass(frozen=True)
class KnownWindows:
    """What a layer's MLP stores: `windows[i]` (ANY: not read) has symbol `symbols[i]` >= 1; any other window has
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
    members = (*mlp.experts, *(() if mlp.shared is None else (mlp.shared,)))
    outputs = [products_of(n, expert, shape, once, store) for expert in members]
    keys = tuple(dict.fromkeys(key for fired in outputs for key in fired.found.keys))
    if chosen is not None and chosen.key not in keys:
        keys = (*keys, chosen.key)
    size = len(mlp.experts[0].down.weight)
    base_lo, base_hi = np.zeros(size), np.zeros(size)
    rows: list[_Output] = []
    parts: list[SymbolPart] = []
    for index, (expert, fired) in enumerate(zip(members, outputs, strict=True)):
        windows = aligned(fired.found.window, fired.found.keys, keys)
        always = (windows == ANY).all(1)
        lo, hi, error = _constant_output(expert.down.weight, fired, always, _most_fired(windows, always))
        weigh = None
        if chosen is None:
            base_lo, base_hi = base_lo + lo - error, base_hi + hi + error
        elif expert is mlp.shared:
            weigh = _Weighing(chosen, None, (lo - error, hi + error), None, store, _shared_weight(n, mlp, store))
            base_lo, base_hi = base_lo + weigh.rest.lo[0], base_hi + weigh.rest.hi[0]
        else:
            weigh = _Weighing(chosen, index, (lo - error, hi + error), expert.down.bias, store)
            parts.append(weigh.rest)
        rows.append(_fired_output(expert.down.weight, fired, windows, always, weigh, keys))
        if expert.down.adapter is not None:
            (base_lo, base_hi), rows[-1] = _adapted(expert.down.adapter, fired, always, (base_lo, base_hi), rows[-1])
    table, part = _tabulate(keys, rows, signal)
    if chosen is not None:
        moved = np.zeros(size)
        for own in part:
            moved[own.channels] = magnitude(own.lo, own.hi).max(0)
        sizes = [magnitude(p.lo, p.hi) for p in parts]
        if mlp.shared is not None:
            sizes.append(np.broadcast_to(magnitude(base_lo, base_hi), sizes[0].shape))
        used = shape.experts_used + (mlp.shared is not None)
        slack = rounding.summed_experts(np.stack(sizes), moved, used, store)
        own_lo, own_hi, parts = chosen.summed(parts, size)
        base_lo, base_hi = base_lo + own_lo - slack, base_hi + own_hi + slack
    out = Bounds(base_lo, base_hi, (*parts, *part))
    spread = max((float(p.spread().max(initial=0.0)) for p in out.parts), default=0.0)
    out = out.fold(FOLD * spread).store(store)
    bias = mlp.experts[0].down.bias if chosen is None else None
    return (out if bias is None else out.add(constant(bias)).store(store)), table


def _shared_weight(n: Normed, mlp: d.Mlp, store: Storage) -> tuple[float, float]:
    """How much the shared expert counts, for all inputs."""
    if mlp.shared_gate is None:
        return 1.0, 1.0
    (low,), (high,) = store.maybe(*sigmoids(*n.whole.matmul(mlp.shared_gate, store).hull()))
    return float(low), float(high)


class _Weighing:
    """What becomes of an expert's sum: it is stored, gets the bias, is stored, is weighted and stored.

    `rest` is the part of every symbol where no window of the expert fires. `fired` gives what a window adds to it: the
    difference of two enclosures, so that their sum encloses the whole, in which both share every store.
    """

    def __init__(
        self, choice: ExpertChoice, expert: int | None, always: Interval, bias: Array | None, store: Storage,
        shared: tuple[float, float] = (1.0, 1.0),
    ) -> None:  # fmt: skip
        self.shared = shared
        self.choice, self.expert, self.always, self.bias, self.store = choice, expert, always, bias, store
        lo, hi = self._biased(always, slice(None))
        self.rest = SymbolPart(choice.key, np.arange(len(lo)), *self._weighted((lo, hi), np.arange(len(choice.lo))))

    def shares(self, symbols: Array) -> Interval:
        """The expert's weight for some symbols (rows,)."""
        if self.expert is None:  # a shared expert has one for all symbols
            return np.full(len(symbols), self.shared[0]), np.full(len(symbols), self.shared[1])
        return self.choice.lo[symbols, self.expert], self.choice.hi[symbols, self.expert]

    def _biased(self, sums: Interval, channels: Array | slice) -> Interval:
        lo, hi = self.store.maybe(*sums)
        if self.bias is None:
            return lo, hi
        return self.store.maybe(lo + self.bias[channels], hi + self.bias[channels])

    def _weighted(self, rows: Interval, symbols: Array) -> Interval:
        low, high = (share[:, None] for share in self.shares(symbols))
        return self.store.maybe(*interval_product((np.atleast_2d(rows[0]), np.atleast_2d(rows[1])), (low, high)))

    def fired(self, lo: Array, hi: Array, channels: Array, symbols: Array) -> Interval:
        """What windows (rows,) of the symbols add, whose units add [lo, hi] (rows, channels) to the expert's sum.

        For a shared expert, which does not depend on symbols, they may be ANY.
        """
        symbols = np.maximum(symbols, 0)
        sums = lo + self.always[0][channels], hi + self.always[1][channels]
        low, high = self._weighted(self._biased(sums, channels), symbols)
        rest_lo, rest_hi = (end[np.ix_(symbols, channels)] for end in (self.rest.lo, self.rest.hi))
        ends = low - rest_lo, high - rest_hi
        return np.minimum(*ends), np.maximum(*ends)


@dataclass(frozen=True)
class _Output:
    windows: Array  # (P, K) aligned with the layer's keys
    lo: Array  # (P, C)
    hi: Array
    channels: Array
    unit: Array  # (P,) first unit
    entries: tuple[Array, Array]  # which entries fire: (their windows, their numbers)
    direction: Array  # (P, C) the vector that is written, up to one number in `scalar`; zero where there is none
    scalar: Interval  # (P,)


def _most_fired(windows: Array, always: Array) -> int:
    """How many units with their own window fire together, at most."""
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
    weigh: _Weighing | None,
    keys: tuple[Key, ...],
) -> _Output:
    """The vectors that windows add, one row per window."""
    live = np.flatnonzero(~always & down[:, fired.found.unit].any(0))  # a unit that writes nothing stores nothing
    place = None if weigh is None else keys.index(weigh.choice.key)
    if weigh is not None:
        symbols = windows[live, place]
        if weigh.expert is not None and (symbols == ANY).any():
            raise Undecided(f"a unit of expert {weigh.expert} fires for symbols of both choices of the router")
        live = live[weigh.shares(symbols)[1] > 0]
    order = live[np.lexsort(windows[live].T[::-1])] if len(live) else live
    rows = windows[order]
    start = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]).any(1)]) if len(order) else np.zeros(0, dtype=int)
    columns = np.abs(down[:, fired.found.unit[order]])
    size = np.maximum(np.abs(fired.lo), np.abs(fired.hi))[order]
    reach = (columns * size).max(1, initial=0.0)
    channels = np.flatnonzero(reach > 0)
    if not len(order):
        none = np.zeros((0, 0))
        return _Output(rows, none, none, channels, order, (order, order), none, (np.zeros(0), np.zeros(0)))
    weight = down[np.ix_(channels, fired.found.unit[order])].T  # (E, C)
    lo, hi, absolute = _group_sums(weight, fired, order, start)
    counts = np.diff(np.r_[start, len(order)])
    error = rounding.fired_sum((counts + always.sum())[:, None], absolute)
    lo, hi = lo - error, hi + error
    direction, scalar = _scalars(weight, fired, order, start, counts)
    if weigh is not None:
        symbols = rows[start, place]
        lo, hi = weigh.fired(lo, hi, channels, symbols)
        scalar = interval_product(scalar, weigh.shares(symbols))
    entries = np.repeat(np.arange(len(start)), counts), order
    return _Output(rows[start], lo, hi, channels, fired.found.unit[order][start], entries, direction, scalar)


def _adapted(adapter: LowRank, fired: Fired, always: Array, rest: Interval, out: _Output) -> tuple[Interval, _Output]:
    """The same for a last matrix with an adapter, merged or not: all that fires together goes through the parts at
    once, so that a number which is nearly one of the type is stored as that one. `rest` is the merged matrix's sum
    where no window fires; rows that the adapter leaves alone keep what they have."""
    live, idle = np.flatnonzero(always), adapter.idle
    none = _placed(fired, live, np.zeros(len(live), dtype=int), -fired.quiet, fired.quiet)
    low, high = (end[0] for end in adapter.enclose(*none))
    base = np.where(idle, rest[0], np.minimum(low, rest[0])), np.where(idle, rest[1], np.maximum(high, rest[1]))
    if not len(out.lo):
        return base, out
    windows, entries = out.entries
    low, high = (
        end[:, out.channels] for end in adapter.enclose(*_placed(fired, entries, windows, *(x[0] for x in none)))
    )
    ends = low - base[0][out.channels], high - base[1][out.channels], out.lo, out.hi
    idle = idle[out.channels]
    lo = np.where(idle, out.lo, np.minimum.reduce(ends))
    hi = np.where(idle, out.hi, np.maximum.reduce(ends))
    return base, replace(out, lo=lo, hi=hi, direction=np.zeros_like(out.direction))  # each channel errs by itself


def _placed(fired: Fired, entries: Array, rows: Array, low: Array, high: Array) -> Interval:
    """Products of some entries as vectors of all units, (rows, units), beside [low, high]."""
    count = int(rows.max(initial=0)) + 1
    lo, hi = np.tile(low, (count, 1)), np.tile(high, (count, 1))
    np.add.at(lo, (rows, fired.found.unit[entries]), fired.lo[entries])
    np.add.at(hi, (rows, fired.found.unit[entries]), fired.hi[entries])
    return lo, hi


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
