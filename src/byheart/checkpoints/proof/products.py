"""Products of hidden units on intervals: act(gate) up, where errors of gate and up are not independent.

- *Parabolas.* In act(g) u, the errors of g and u come from the same channels. Write u = alpha g + w, where alpha
  makes the linear form w as small as possible: then g u = alpha g^2 + g w, and an error of g counts quadratically
  where the parabola is flat.
- *Plateaus.* Two units with the same weights and opposite outputs, act(g) - act(g - c): one unit of a window is the
  anchor a, and the others are evaluated as p_j = p_a + (p_j - p_a), where g_j - g_a is a linear form with small
  weights.

Each enclosure is intersected with the direct one, in which rounding snaps to representable numbers.

- *Clamps* (gpt-oss): act(min(g, limit)) (clip(u) + 1). A clamp is monotone, so it maps ends to ends, and after it a
  gate that is large enough is one number. Only the direct enclosure is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from byheart.checkpoints.proof import decoder as d
from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import Bounds, Normed, interval_product, magnitude
from byheart.checkpoints.proof.config import Shape
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite, in_float32
from byheart.checkpoints.proof.units import (
    ANY,
    Firing,
    SumError,
    at_windows,
    base,
    enclose,
    firing,
    largest_below,
    readers,
    sum_error,
    tail,
    variants,
)


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

    field: Bounds
    factor: tuple[float, float]
    offset: Array | None  # added to the stream after the factor
    read: list[Array]
    found: Firing
    stored: bool
    drifted: Callable[[Array], Array | float] = lambda weight: 0.0  # by how much the mean's error moves rows

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
        drift = self.drifted(weight)
        lo, hi = lo - drift, hi + drift
        factor = np.float64(self.factor[0]), np.float64(self.factor[1])
        lo, hi = interval_product(at_windows(self.field, weight, row, found, (lo[row], hi[row])), factor)
        if self.offset is not None:
            lo, hi = lo + (weight @ self.offset)[row], hi + (weight @ self.offset)[row]
        if bias is not None:
            lo, hi = lo + bias[row], hi + bias[row]
        return lo, hi


def _wider(x: Interval, error: Array) -> Interval:
    return x[0] - error, x[1] + error


def products_of(n: Normed, expert: d.Expert, shape: Shape, once: frozenset[int], store: Storage) -> Fired:
    size = n.whole.largest()
    for layer in (expert.gate, *(() if expert.up is None else (expert.up,))):
        finite(f"{layer.name}: a unit", sum_error(layer, size).size, store.largest)
    read = readers(n.whole, expert.gate, expert.up)
    found = firing(n.whole, expert.gate, read, shape.activation, once, n.kept is None)
    anchor = _anchors(found, expert.gate)
    if n.kept is None:
        case = _Case(n.whole, (1.0, 1.0), None, read, found, True)
    else:
        case = _Case(n.kept if n.near is None else n.near, n.factor, n.bias, read, found, False, n.drifted)
    lo, hi, apart_lo, apart_hi = _products(case, expert, anchor, size, shape, store)
    silent = np.isfinite(found.silent)
    top = np.where(silent, found.silent, 0.0)
    top = rounding.silent_input(top, store)
    if shape.clamp is not None:  # it may be stored before its bias is added, and its multiple inside of the sigmoid
        size_before = np.abs(top) + (0.0 if expert.gate.bias is None else np.abs(expert.gate.bias))
        top = rounding.silent_input(top + rounding.silent_input(size_before, store) - size_before, store)
    quiet = np.where(silent, largest_below(shape.activation, top), 0.0)
    up: Array | float = 1.0
    if expert.up is not None:
        up = np.abs(expert.up.weight) @ size + (0.0 if expert.up.bias is None else np.abs(expert.up.bias))
    if shape.clamp is not None:
        up = np.minimum(up, shape.clamp) + 1
    quiet = rounding.silent_product(quiet * up, up, store)
    finite(f"{expert.gate.name}: an activated unit", np.concatenate([quiet, magnitude(lo, hi)]), store.largest)
    most = quiet.copy()
    np.maximum.at(most, found.unit, magnitude(lo, hi))
    finite(f"{expert.down.name}: a sum", np.abs(expert.down.weight) @ most)
    if expert.down.adapter is not None:
        expert.down.adapter.error(most)  # refuses parts that leave the range
    return Fired(found, lo, hi, anchor, apart_lo, apart_hi, quiet)


def _products(
    case: _Case, expert: d.Expert, anchor: Array, size: Array, shape: Shape, store: Storage
) -> tuple[Array, Array, Array, Array]:
    """Products at all entries, and their differences from the anchors' products."""
    unit, gate, up = case.found.unit, expert.gate, expert.up
    if shape.clamp is not None:
        lo, hi = _clamped_products(case, expert, size, shape, store)
        own = anchor == np.arange(len(anchor))
        return lo, hi, np.where(own, 0.0, lo - hi[anchor]), np.where(own, 0.0, hi - lo[anchor])
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
        exact = _add(_parabola(alpha[unit], g, w), interval_product(tail(shape.activation, *g), u))
        ways = [_glu_way(g, u, exact, way, shape, store) for way in case.ways]
    lo, hi = np.minimum.reduce([x[0] for x in ways]), np.maximum.reduce([x[1] for x in ways])
    return lo, hi, *_apart(case, expert, g, u, (lo, hi), anchor, size, shape, store)


def _clamped_products(case: _Case, expert: d.Expert, size: Array, shape: Shape, store: Storage) -> Interval:
    """act(min(gate, limit)) (clip(up, -limit, limit) + 1) at all entries."""
    unit, limit = case.found.unit, shape.clamp
    assert expert.up is not None and limit is not None
    inner = []
    for layer in (expert.gate, expert.up):
        plain = case.form(layer.weight, None, unit)
        total = magnitude(*plain) + (0.0 if layer.bias is None else np.abs(layer.bias[unit]))
        inner.append(_wider(plain, case.error(layer, size).at(unit, total)))
    found = []
    for way in case.ways:
        kept = in_float32 if way is Inner.KEPT else store.maybe
        gate, up = (_biased(x, y.bias, unit, way, store) for x, y in zip(inner, (expert.gate, expert.up), strict=True))
        gate = np.minimum(gate[0], limit), np.minimum(gate[1], limit)
        up = np.clip(up[0], -limit, limit), np.clip(up[1], -limit, limit)
        up = (store.maybe if way is Inner.STORED else in_float32)(up[0] + 1, up[1] + 1)
        ways = [(enclose(shape.activation, *gate), False)]
        if way is Inner.STORED:
            ways = [(x, False) for x in variants(shape.activation, *gate, store, shape.stepwise)]
            ways += [(store.rounded(*x), True) for x, _ in ways]
        for active, stored in ways:
            found.append((store.rounded if stored else kept)(*in_float32(*interval_product(active, up))))
    return _hull(found)


def _biased(x: Interval, bias: Array | None, unit: Array, way: Inner, store: Storage) -> Interval:
    """A pre-activation with its bias: an engine that stores it may do so before the bias is added, too."""
    shift = np.zeros(len(unit)) if bias is None else bias[unit]
    once = in_float32(x[0] + shift, x[1] + shift)
    if way is not Inner.STORED:
        return once
    first = store.rounded(*in_float32(*x))
    return _hull([store.rounded(*once), store.rounded(*in_float32(first[0] + shift, first[1] + shift))])


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
            found.append((store.rounded if stored else store.maybe)(*in_float32(*interval_product(way, factor))))
        lo, hi = _hull(found)
        # Stores before the product's own: gate and up; sigmoid and activation too, except where the activation is the
        # identity up to u/8. A relative error of the gate grows by at most 1.3 in an activation.
        flat = np.abs(tail(shape.activation, *g)[0]) <= np.maximum(g[0], 0.0) * store.unit / 8
        count = np.where(flat, 2.1, 4.3)
    else:
        lo, hi = last(*interval_product(enclose(shape.activation, *in_float32(*g)), in_float32(*u)))
        count = np.zeros(len(lo))
    relative = rounding.product_error(count, store)
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
    slack = rounding.own(np.abs(alpha) * g[1] ** 2 + np.maximum(np.abs(w[0]), np.abs(w[1])) * g[1])
    return low - slack, high + slack


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
        first, second = interval_product(h, mine), interval_product((g[0][other], g[1][other]), v)
        bend, away = interval_product(tails[0], mine), interval_product(tails[1], base_u)
        low, high = first[0] + second[0] + bend[0] - away[1], first[1] + second[1] + bend[1] - away[0]
    largest = np.maximum(np.abs(p[0]), np.abs(p[1]))
    flat = np.abs(tails[0][0]) <= np.maximum(g[0][some], 0.0) * store.unit / 8
    count = np.where(flat, 3.1 if expert.up is not None else 1.1, 5.3) if case.stored else np.zeros(len(flat))
    wide = rounding.product_error(count, store) * (largest[some] + largest[other])
    # A relative error of products holds where both gates are positive; elsewhere gelu cancels.
    positive = (g[0][some] > 0) & (g[0][other] > 0)
    lo[some] = np.where(positive, np.maximum(lo[some], low - wide), lo[some])
    hi[some] = np.where(positive, np.minimum(hi[some], high + wide), hi[some])
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
