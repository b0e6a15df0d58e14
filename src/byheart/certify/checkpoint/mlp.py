"""An MLP as a table: windows of symbols -> a vector; everything else stays near a constant.

`units.firing` finds the windows. Here the fired units are evaluated on intervals, with what makes the constructions
robust kept in view:

- *Parabolas.* In act(g) u, the errors of g and u come from the same channels. Write u = alpha g + w, where alpha
  makes the linear form w as small as possible: then g u = alpha g^2 + g w, and an error of g counts quadratically
  where the parabola is flat.
- *Plateaus.* Two units with the same weights and opposite outputs, act(g) - act(g - c): one unit of a window is the
  anchor a, and the others are evaluated as p_j = p_a + (p_j - p_a), where g_j - g_a is a linear form with small
  weights.

Each enclosure is intersected with the direct one, in which rounding snaps to representable numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from byheart.certify.checkpoint import decoder as d
from byheart.certify.checkpoint.activation import enclose, largest_below, tail, variants
from byheart.certify.checkpoint.config import Shape, Undecided
from byheart.certify.checkpoint.fields import (
    FOLD,
    Field,
    Key,
    Normed,
    Part,
    add,
    constant,
    fold,
    linear,
    magnitude,
    settle,
)
from byheart.certify.checkpoint.storage import FUNCTION_ERROR, OWN, U32, Array, Interval, Storage, gamma, in_float32
from byheart.certify.checkpoint.units import ANY, Firing, SumError, at_windows, base, firing, readers, sum_error


@dataclass(frozen=True)
class Table:
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


@dataclass(frozen=True)
class Fired:
    """Products of one expert: entry i is unit `found.unit[i]` on `found.window[i]`, with product in [lo, hi]."""

    found: Firing
    lo: Array
    hi: Array
    anchor: Array  # (E,) the entry that the difference refers to
    apart_lo: Array  # (E,) product minus the anchor's product
    apart_hi: Array
    quiet: Array  # (U,) bound of |product| of every unit where it does not fire


def apply(
    n: Normed, mlp: d.Mlp, shape: Shape, once: frozenset[int], store: Storage, signal: int
) -> tuple[Field, Table]:
    """The MLP's output as a field that depends on one new signal, and the signal's table."""
    chosen = _route(n, mlp, shape, store)
    outputs = [_expert(n, expert, shape, once, store) for expert in mlp.experts]
    keys = tuple(dict.fromkeys(key for fired in outputs for key in fired.found.keys))
    if chosen is not None and chosen.key not in keys:
        keys = (*keys, chosen.key)
    size = len(mlp.experts[0].down.weight)
    base_lo, base_hi = np.zeros(size), np.zeros(size)
    rows: list[_Output] = []
    parts: list[Part] = []
    for index, (expert, fired) in enumerate(zip(mlp.experts, outputs, strict=True)):
        windows = aligned(fired.found.window, fired.found.keys, keys)
        always = (windows == ANY).all(1)
        lo, hi, error = _constant_output(expert.down.weight, fired, always)
        if chosen is None:
            base_lo, base_hi = base_lo + lo - error, base_hi + hi + error
        else:
            parts.append(chosen.weighted(index, lo - error, hi + error, store))
        rows.append(_fired_output(expert.down.weight, fired, windows, always, chosen, keys, index, store))
    table, part = _tabulate(keys, rows, signal)
    if chosen is not None:
        base_lo, base_hi, parts = chosen.summed(parts, size)
    out = Field(base_lo, base_hi, (*parts, *part))
    spread = max((float(p.spread().max(initial=0.0)) for p in out.parts), default=0.0)
    out = settle(fold(out, FOLD * spread), store)
    bias = mlp.experts[0].down.bias
    return (out if bias is None else settle(add(out, constant(bias)), store)), table


# ---- products of one expert


class Inner(Enum):
    """How the tensors inside an MLP are kept.

    KEPT: the normed stream was kept in float32, and so is everything up to the product. FUSED: the normed stream was
    stored; one kernel computes gate, up and their product, which may be stored. STORED: gate and up are stored as
    well; then one kernel computes the product, or the activation is stored by itself and so is the product.
    """

    KEPT = 0
    FUSED = 1
    STORED = 2


@dataclass(frozen=True)
class _Case:
    """Linear forms of a normed stream at the entries of `found`; `field` times `factor` plus `offset` is the stream
    (see `Normed`).
    """

    field: Field
    factor: tuple[float, float]
    offset: Array | None  # added to the stream after the factor
    read: list[Array]
    found: Firing
    stored: bool

    @property
    def ways(self) -> tuple[Inner, ...]:
        return (Inner.FUSED, Inner.STORED) if self.stored else (Inner.KEPT,)

    def error(self, layer: d.Linear, size: Array) -> SumError:
        return sum_error(layer, size, self.field if self.stored else None)

    def form(self, weight: Array, bias: Array | None, row: Array, found: Firing | None = None) -> Interval:
        """weight x + bias at every entry, before errors of the sum; entry i uses row `row[i]`."""
        found = self.found if found is None else found
        reads = self.read if found is self.found else [r[found.unit] for r in self.read]
        lo, hi = base(self.field, weight, reads)
        factor = np.float64(self.factor[0]), np.float64(self.factor[1])
        lo, hi = _times(at_windows(self.field, weight, row, found, (lo[row], hi[row])), factor)
        if self.offset is not None:
            lo, hi = lo + (weight @ self.offset)[row], hi + (weight @ self.offset)[row]
        if bias is not None:
            lo, hi = lo + bias[row], hi + bias[row]
        return lo, hi


def _wider(x: Interval, error: Array) -> Interval:
    return x[0] - error, x[1] + error


def _expert(n: Normed, expert: d.Expert, shape: Shape, once: frozenset[int], store: Storage) -> Fired:
    read = readers(n.whole, expert.gate, expert.up)
    found = firing(n.whole, expert.gate, read, shape.activation, once)
    anchor = _anchors(found, expert.gate)
    if n.kept is None:
        case = _Case(n.whole, (1.0, 1.0), None, read, found, True)
    else:
        case = _Case(n.kept, n.factor, n.bias, read, found, False)
    size = magnitude(*n.whole.hull())
    lo, hi, apart_lo, apart_hi = _products(case, expert, anchor, size, shape, store)
    silent = np.isfinite(found.silent)
    top = np.where(silent, found.silent, 0.0)
    quiet = np.where(silent, largest_below(shape.activation, top + 2 * store.unit * np.abs(top)), 0.0)
    if expert.up is not None:
        bound = np.abs(expert.up.weight) @ size + (0.0 if expert.up.bias is None else np.abs(expert.up.bias))
        quiet = quiet * bound
    return Fired(found, lo, hi, anchor, apart_lo, apart_hi, quiet * (1 + 8 * store.unit))


def _products(
    case: _Case, expert: d.Expert, anchor: Array, size: Array, shape: Shape, store: Storage
) -> tuple[Array, Array, Array, Array]:
    """Products at all entries, and their differences from the anchors' products."""
    unit, gate, up = case.found.unit, expert.gate, expert.up
    g = case.form(gate.weight, gate.bias, unit)
    error = case.error(gate, size).at(unit, magnitude(*g))
    g = _wider(g, error)
    if up is None:
        exact, u = _add(g, tail(shape.activation, *g)), None
        ways = [_plain_way(g, way, shape, store) for way in case.ways]
    else:
        u = case.form(up.weight, up.bias, unit)
        error_up = case.error(up, size).at(unit, magnitude(*u))
        u = _wider(u, error_up)
        alpha = (gate.weight * up.weight).sum(1) / np.maximum((gate.weight**2).sum(1), 1e-300)
        bias = None
        if up.bias is not None or gate.bias is not None:
            bias = (0.0 if up.bias is None else up.bias) - alpha * (0.0 if gate.bias is None else gate.bias)
        rest = up.weight - alpha[:, None] * gate.weight
        w = _wider(case.form(rest, bias, unit), error_up + np.abs(alpha[unit]) * error)
        exact = _add(_parabola(alpha[unit], g, w), _times(tail(shape.activation, *g), u))
        ways = [_glu_way(g, u, exact, way, shape, store) for way in case.ways]
    lo, hi = np.minimum.reduce([x[0] for x in ways]), np.maximum.reduce([x[1] for x in ways])
    return lo, hi, *_apart(case, expert, g, u, (lo, hi), anchor, size, shape, store)


def _add(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _ways(g: Interval, shape: Shape, store: Storage) -> list[tuple[Interval, bool]]:
    """act(g) for a stored gate, and whether it is stored: one kernel from the stored gate on, or step by step with
    stores.
    """
    gate = store.rounded(*in_float32(*g))
    steps = variants(shape.activation, *gate, store, shape.stepwise)
    return [(steps[0], False), *((store.rounded(*step), True) for step in steps)]


def _hull(ways: list[Interval]) -> Interval:
    return np.minimum.reduce([x[0] for x in ways]), np.maximum.reduce([x[1] for x in ways])


def _plain_way(g: Interval, kind: Inner, shape: Shape, store: Storage) -> Interval:
    """act(g); see `Inner`."""
    if kind is not Inner.STORED:
        ends = enclose(shape.activation, *in_float32(*g))
        return in_float32(*ends) if kind is Inner.KEPT else store.maybe(*ends)
    return _hull([way if stored else store.maybe(*way) for way, stored in _ways(g, shape, store)])


def _glu_way(g: Interval, u: Interval, exact: Interval, kind: Inner, shape: Shape, store: Storage) -> Interval:
    """act(g) u, directly, and as the exact product with a relative error."""
    last = {Inner.KEPT: in_float32}.get(kind, store.maybe)
    if kind is Inner.STORED:
        factor = store.rounded(*in_float32(*u))
        found = []
        for way, stored in _ways(g, shape, store):
            found.append((store.rounded if stored else store.maybe)(*in_float32(*_times(way, factor))))
        lo, hi = _hull(found)
        # Stores before the product's own: gate and up; sigmoid and activation too, except where the activation is the
        # identity up to u/8.
        flat = np.abs(tail(shape.activation, *g)[0]) <= np.maximum(g[0], 0.0) * store.unit / 8
        count = np.where(flat, 2.1, 4.2)
    else:
        lo, hi = last(*_times(enclose(shape.activation, *in_float32(*g)), in_float32(*u)))
        count = np.zeros(len(lo))
    relative = count * store.unit * (1 + 8 * store.unit) + 8 * FUNCTION_ERROR
    ends = last(exact[0] - relative * np.abs(exact[0]), exact[1] + relative * np.abs(exact[1]))
    positive = g[0] > 0
    return np.where(positive, np.maximum(lo, ends[0]), lo), np.where(positive, np.minimum(hi, ends[1]), hi)


def _parabola(alpha: Array, g: Interval, w: Interval) -> Interval:
    """The range of alpha x^2 + w x for x in g > 0: it rises with w; extremes at the ends or at the vertex."""

    def at(x: Array, y: Array) -> Array:
        return np.asarray(alpha * x * x + y * x)

    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = [np.where(alpha != 0, np.clip(-y / (2 * alpha), g[0], g[1]), g[0]) for y in w]
    low = np.minimum.reduce([at(g[0], w[0]), at(g[1], w[0]), at(vertex[0], w[0])])
    high = np.maximum.reduce([at(g[0], w[1]), at(g[1], w[1]), at(vertex[1], w[1])])
    slack = OWN * (np.abs(alpha) * g[1] ** 2 + np.maximum(np.abs(w[0]), np.abs(w[1])) * g[1])
    return low - slack, high + slack


def _times(a: Interval, b: Interval) -> Interval:
    ends = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)


def _anchors(found: Firing, gate: d.Linear) -> Array:
    """For every entry the one that its product is compared with: the first with the same window; among units that
    always fire, the first with the same weights."""
    anchor = np.arange(len(found.unit))
    always = (found.window == ANY).all(1)
    for some, labels in (
        (np.flatnonzero(~always), found.window[~always]),
        (np.flatnonzero(always), gate.weight[found.unit[always]]),
    ):
        if len(some) and labels.shape[1]:
            _, first, inverse = np.unique(labels, axis=0, return_index=True, return_inverse=True)
            anchor[some] = some[first[inverse.reshape(-1)]]
    return anchor


def _apart(
    case: _Case,
    expert: d.Expert,
    g: Interval,
    u: Interval | None,
    p: Interval,
    anchor: Array,
    size: Array,
    shape: Shape,
    store: Storage,
) -> Interval:
    """p_j - p_a = (g_j - g_a) u_j + g_a (u_j - u_a) + tails, with a relative error of each product; and directly: the
    better of both.
    """
    lo, hi = p[0] - p[1][anchor], p[1] - p[0][anchor]
    own = anchor == np.arange(len(anchor))
    lo[own] = hi[own] = 0.0
    some = np.flatnonzero(~own)
    if not len(some):
        return lo, hi
    other, found = anchor[some], case.found
    part = Firing(found.keys, found.unit[some], found.window[some], found.silent)
    h = _difference(case, expert.gate, part, found.unit[other], size, _sizes(g, some, other))
    tails = [tail(shape.activation, g[0][i], g[1][i]) for i in (some, other)]
    if expert.up is None or u is None:
        low, high = h[0] + tails[0][0] - tails[1][1], h[1] + tails[0][1] - tails[1][0]
    else:
        v = _difference(case, expert.up, part, found.unit[other], size, _sizes(u, some, other))
        mine, base_u = (u[0][some], u[1][some]), (u[0][other], u[1][other])
        first, second = _times(h, mine), _times((g[0][other], g[1][other]), v)
        bend, away = _times(tails[0], mine), _times(tails[1], base_u)
        low, high = first[0] + second[0] + bend[0] - away[1], first[1] + second[1] + bend[1] - away[0]
    largest = np.maximum(np.abs(p[0]), np.abs(p[1]))
    flat = np.abs(tails[0][0]) <= np.maximum(g[0][some], 0.0) * store.unit / 8
    count = np.where(flat, 3.1 if expert.up is not None else 1.1, 5.2) if case.stored else np.zeros(len(flat))
    wide = (count * store.unit * (1 + 8 * store.unit) + 8 * FUNCTION_ERROR) * (largest[some] + largest[other])
    lo[some], hi[some] = np.maximum(lo[some], low - wide), np.minimum(hi[some], high + wide)
    return lo, hi


def _sizes(x: Interval, *index: Array) -> tuple[Array, Array]:
    one, two = (magnitude(x[0][i], x[1][i]) for i in index)
    return one, two


def _difference(
    case: _Case, layer: d.Linear, part: Firing, other: Array, size: Array, totals: tuple[Array, Array]
) -> Interval:
    """Pre-activation of a unit minus that of another one at the same window; each is summed by itself."""
    weight = layer.weight[part.unit] - layer.weight[other]
    bias = None if layer.bias is None else layer.bias[part.unit] - layer.bias[other]
    error = case.error(layer, size)
    slack = error.at(part.unit, totals[0]) + error.at(other, totals[1])
    return _wider(case.form(weight, bias, np.arange(len(weight)), part), slack)


# ---- the down projection


@dataclass(frozen=True)
class _Output:
    windows: Array  # (P, K) aligned with the layer's keys
    lo: Array  # (P, C)
    hi: Array
    channels: Array
    unit: Array  # (P,) first unit
    direction: Array  # (P, C) the vector that is written, up to one number in `scalar`; zero where there is none
    scalar: Interval  # (P,)


def _constant_output(down: Array, fired: Fired, always: Array) -> tuple[Array, Array, Array]:
    """What units that always fire add, and the error of the sum including everything that is silent."""
    live = np.flatnonzero(always)
    order = live[np.argsort(fired.anchor[live], kind="stable")]
    start = np.flatnonzero(np.r_[True, np.diff(fired.anchor[order]) != 0]) if len(order) else np.zeros(0, dtype=int)
    silent = np.abs(down) @ fired.quiet
    if not len(order):
        zero = np.zeros(len(down))
        return zero, zero, 4 * silent
    lo, hi, size = _group_sums(down[:, fired.found.unit[order]].T, fired, order, start)
    return lo.sum(0), hi.sum(0), gamma(len(order) + 8) * size.sum(0) + 4 * silent


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
        first = _times((total, total), (fired.lo[leader][:, None], fired.hi[leader][:, None]))
        others = _weighted(weight, fired.apart_lo[order], fired.apart_hi[order])
        lo = np.maximum(lo, first[0] + np.add.reduceat(others[0], start, 0))
        hi = np.minimum(hi, first[1] + np.add.reduceat(others[1], start, 0))
    return lo, hi, absolute


def _fired_output(
    down: Array,
    fired: Fired,
    windows: Array,
    always: Array,
    chosen: _Routing | None,
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
    error = gamma(counts + 8)[:, None] * absolute
    lo, hi = lo - error, hi + error
    if share is not None:
        low, high = share[0][start][:, None], share[1][start][:, None]
        lo, hi = store.maybe(*_times(store.maybe(lo, hi), (low, high)))
    direction, scalar = _scalars(weight, fired, order, start, counts)
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


def _tabulate(keys: tuple[Key, ...], outputs: list[_Output], signal: int) -> tuple[Table, tuple[Part, ...]]:
    """Windows of all experts together; windows with the same vector get the same symbol."""
    windows = np.concatenate([o.windows for o in outputs])
    if not len(windows):
        empty = np.zeros(0, dtype=int)
        return Table(keys, windows, empty, empty), ()
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
    if len(outputs) == 1:
        common = _common(outputs[0], channels, np.argsort(inverse)[order], begin)
    return Table(keys, distinct, symbols + 1, unit, common), (Part((signal, 0), channels, low, high),)


def _common(output: _Output, channels: Array, order: Array, begin: Array) -> Common:
    """Per symbol: the direction, if all its windows have the same one, and how far their numbers lie apart."""
    direction, first = output.direction[order], output.direction[order[begin]]
    sizes = np.diff(np.r_[begin, len(order)])
    same = np.logical_and.reduceat((direction == np.repeat(first, sizes, axis=0)).all(1), begin)
    lo, hi = np.minimum.reduceat(output.scalar[0][order], begin), np.maximum.reduceat(output.scalar[1][order], begin)
    none = np.zeros((1, len(channels)))
    found = np.where(same[:, None], first, 0.0)
    return Common(channels, np.concatenate([none, found]), np.r_[0.0, np.where(same, (hi - lo) / 2, 0.0)])


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


def join(first: Table, second: Table) -> Table | None:
    """Two tables of which at most one fires as one table; None if both may fire.

    Symbols of the first keep their numbers, those of the second come after them.
    """
    keys = tuple(dict.fromkeys((*first.keys, *second.keys)))
    windows = np.concatenate([aligned(t.windows, t.keys, keys) for t in (first, second)])
    if len(np.unique(windows, axis=0)) < len(windows) or overlap(windows):
        return None
    shift = first.symbols.max(initial=0)
    symbols = np.concatenate([first.symbols, second.symbols + shift])
    return Table(keys, windows, symbols, np.concatenate([first.units, second.units]))


# ---- the router of a mixture of experts


@dataclass(frozen=True)
class _Routing:
    """Which experts a symbol chooses, with which weights: [lo, hi] is 0 for experts that are not chosen."""

    key: Key
    lo: Array  # (S, experts)
    hi: Array

    def weighted(self, expert: int, lo: Array, hi: Array, store: Storage) -> Part:
        low, high = store.maybe(lo, hi)
        rows = _times((low[None, :], high[None, :]), (self.lo[:, [expert]], self.hi[:, [expert]]))
        return Part(self.key, np.arange(len(lo)), *store.maybe(*rows))

    def summed(self, parts: list[Part], size: int) -> tuple[Array, Array, list[Part]]:
        lo, hi = sum(p.lo for p in parts), sum(p.hi for p in parts)
        slack = 4 * U32 * np.maximum(np.abs(lo), np.abs(hi))
        return np.zeros(size), np.zeros(size), [Part(self.key, np.arange(size), lo - slack, hi + slack)]


def _route(n: Normed, mlp: d.Mlp, shape: Shape, store: Storage) -> _Routing | None:
    """Which experts every symbol chooses. Weights come from differences of logits, since channels are shared."""
    if mlp.router is None:
        return None
    kept = n.kept is not None
    logits = linear(n.whole, mlp.router, None if kept else store, share=2.0**-3)
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
        wide = 8 * FUNCTION_ERROR  # softmax and the division by the sum of the chosen ones are computed in float32
        least = np.where(rest, np.exp(apart_lo[rows, inside, own]), 0.0).sum(1) * (1 - wide)
        most = np.where(rest, np.exp(apart_hi[rows, inside, own]), 0.0).sum(1) * (1 + wide)
        ends = store.maybe((1 - FUNCTION_ERROR) / (1 + most), (1 + FUNCTION_ERROR) / (1 + least))
        low[rows[:, 0], column], high[rows[:, 0], column] = ends
    return _Routing(key, low, high)


def _logit_differences(
    n: Normed, router: d.Linear, key: Key, lo: Array, hi: Array, kept: bool, store: Storage
) -> Interval:
    """logit_i - logit_j for all experts and symbols: (S, experts, experts)."""
    weight, count = router.weight, len(router.weight)
    difference = (weight[:, None, :] - weight[None, :, :]).reshape(count * count, -1)
    field = linear(n.whole, d.Linear(router.name, difference, None), None, share=2.0**-3)
    size = magnitude(*n.whole.hull())
    sums = sum_error(router, size).most()
    largest = np.maximum(np.abs(lo), np.abs(hi)).max(0)
    error = sums + (0.0 if kept else store.unit) * (largest + sums)
    wide = (error[:, None] + error[None, :]).reshape(-1)
    field = Field(field.lo - wide, field.hi + wide, field.parts)
    low, high = (x.reshape(-1, count, count) for x in _table(field, key, len(lo)))
    return np.maximum(low, lo[:, :, None] - hi[:, None, :]), np.minimum(high, hi[:, :, None] - lo[:, None, :])


def _table(field: Field, key: Key, symbols: int | None = None) -> Interval:
    """Values by the symbol of one key, all other parts replaced by their hull."""
    rows = symbols or next(len(p.lo) for p in field.parts if p.key == key)
    lo, hi = np.tile(field.lo, (rows, 1)), np.tile(field.hi, (rows, 1))
    for part in field.parts:
        lo[:, part.channels] += part.lo if part.key == key else part.lo.min(0)
        hi[:, part.channels] += part.hi if part.key == key else part.hi.max(0)
    return lo, hi
