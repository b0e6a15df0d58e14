"""Which inputs make a hidden unit fire: found from the weights, without enumerating windows.

A unit's pre-activation is  constant + sum over parts of (weights x part's row of the symbol).  Per part, the best
symbol and the runner-up bound everything: if all but the best symbols together stay below the level at which the
activation is silent, the unit fires on exactly one window, the best symbol of every part that it reads. Units that
read the same pattern from a part share the work, so the cost is (distinct patterns) x (symbols), not (units) x
(windows).

Activation functions are taken on intervals, as engines evaluate them: in one step, or stored on the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import (
    START,
    STARTS,
    TOKEN,
    Bounds,
    Key,
    SymbolPart,
    is_absent,
    magnitude,
    product_bounds,
    scaled,
)
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear
from byheart.checkpoints.proof.low_rank import EXACT_SUM, Lattice, LowRank, least_step, step_of
from byheart.checkpoints.proof.storage import Array, Interval, Storage, in_float32

SILENT_BELOW = {
    "silu": -8.0,
    "gelu": -4.0,
    "gelu_tanh": -4.0,
    "relu": 0.0,
    "quick_gelu": -5.0,
}  # where a unit counts as not fired
LEAST = {
    "silu": (-1.2784645427610738, -0.2784645427610738),
    "gelu": (-0.7517915, -0.1699712),
    "gelu_tanh": (-0.7524614, -0.1700407),
    "quick_gelu": (-0.7511542, -0.1636102),
}
TURN = {  # the minimum lies inside
    "silu": (-1.279, -1.278), "gelu": (-0.753, -0.751), "gelu_tanh": (-0.754, -0.751), "quick_gelu": (-0.752, -0.75)
}  # fmt: skip
QUICK = 1.702  # quick gelu is x sigmoid(QUICK x)
# The argument of erf is beyond 6 below minus this, that of tanh beyond 10; silu and its kin are negligible there.
EXACT_FROM = {"silu": 8.5, "quick_gelu": 8.5, "gelu": 8.5, "gelu_tanh": 6.0}


def value(kind: str, x: Array) -> Array:
    """The function itself, in float64.

    >>> [round(float(value(k, np.array([-0.75]))[0]), 4) for k in ("silu", "gelu", "gelu_tanh", "relu")]
    [-0.2406, -0.17, -0.17, 0.0]
    """
    if kind == "relu":
        return np.maximum(x, 0.0)
    if kind in ("silu", "quick_gelu"):
        return x * sigmoid(x if kind == "silu" else QUICK * x)
    if kind == "gelu":
        return 0.5 * x * _erfc(-x / math.sqrt(2))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(x, -700, 700)))


def _erfc(x: Array) -> Array:
    return np.vectorize(math.erfc, otypes=[np.float64])(x) if np.size(x) else np.asarray(x, dtype=np.float64)


def slack(kind: str, x: Array) -> Array:
    """Absolute error of one evaluation in float32: relative for silu and its kin; for gelu, 1 + erf or 1 + tanh cancels
    until it is exactly 0.
    """
    if kind == "relu":
        return np.zeros_like(x)
    if kind in ("silu", "quick_gelu"):
        found = value(kind, x)
        return rounding.silu_error(found) + (0.0 if kind == "silu" else rounding.scaled_sigmoid(QUICK * x, found))
    return rounding.gelu_error(x, value(kind, x), EXACT_FROM[kind])


def enclose(kind: str, lo: Array, hi: Array) -> Interval:
    """The range of the function over [lo, hi], evaluated in float32 in one step."""
    at_lo, at_hi = value(kind, lo), value(kind, hi)
    wide = np.maximum(slack(kind, lo), slack(kind, hi))
    low, high = np.minimum(at_lo, at_hi), np.maximum(at_lo, at_hi)
    if kind != "relu":
        turn = TURN[kind]
        low = np.where((lo <= turn[1]) & (hi >= turn[0]), np.minimum(low, LEAST[kind][1] - 1e-6), low)
        # Inside the interval the error may be larger than at its ends; below `exact` it is the value, or relative.
        exact = EXACT_FROM[kind]
        inner = rounding.interior_error(lo, hi, exact)
        wide = np.where((lo < 0) & (hi > -exact), np.maximum(wide, inner), wide)
    return in_float32(low - wide, high + wide)


def tail(kind: str, lo: Array, hi: Array) -> Interval:
    """The range of f(x) - x = f(-x) over [lo, hi]: between minus the largest |f| on the negative side, which falls
    from 1.28 on, and 0.
    """
    below = np.maximum(-lo, 0.0)
    if kind == "relu":
        return np.zeros_like(below), below
    low = np.maximum(lo, 0.0)
    size = np.abs(value(kind, 0.0 - low))  # x - f(x) = -f(-x) for all of these
    size = np.where(low < 1.3, np.maximum(size, 0.2784646), size)
    return np.negative(size) * (1 + 1e-9), below


def largest_below(kind: str, top: Array) -> Array:
    """The largest |f(x)| for x <= top, as float32 computes it."""
    if kind == "relu":
        return np.maximum(top, 0.0)
    turn, least = TURN[kind][0], 1e-6 - LEAST[kind][1]
    falling = np.abs(value(kind, np.minimum(top, 0.0))) + slack(kind, np.minimum(top, 0.0))
    size = np.where(top <= turn, falling, np.maximum(least, np.abs(top)))
    return size * (1 + 1e-9)


def variants(kind: str, lo: Array, hi: Array, store: Storage, stepwise: bool) -> list[Interval]:
    """The activated tensor in each usual way of evaluation: in one step; silu with a stored sigmoid; gelu as a chain
    of tensors that are all stored (`stepwise`). Each is then kept or stored: that is `Storage.maybe`'s matter and
    left to the caller."""
    found = [enclose(kind, lo, hi)]
    if kind in ("silu", "quick_gelu") and store.name != "float32":
        # The argument of a scaled sigmoid may be stored too.
        inner = (lo, hi) if kind == "silu" else store.maybe(QUICK * lo, QUICK * hi)
        ends = sigmoid(inner[0]), sigmoid(inner[1])
        wide = rounding.sigmoid_error()
        gate = store.rounded(*in_float32(ends[0] * (1 - wide), ends[1] * (1 + wide)))
        found.append(scaled(lo, hi, *gate))
    if stepwise and kind == "gelu_tanh" and store.name != "float32":
        found.append(_chain(lo, hi, store))
    return found


def _chain(lo: Array, hi: Array, store: Storage) -> Interval:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) as a chain of tensors, every one of which is stored."""

    def kept(low: Array, high: Array) -> Interval:
        return store.rounded(*in_float32(low, high))

    cube = kept(lo**3, hi**3)
    inner = kept(0.044715 * cube[0], 0.044715 * cube[1])
    inner = kept(lo + inner[0], hi + inner[1])
    inner = kept(math.sqrt(2 / math.pi) * inner[0], math.sqrt(2 / math.pi) * inner[1])
    bent = np.tanh(inner[0]), np.tanh(inner[1])
    wide = rounding.tanh_error()
    error = [np.where(np.abs(i) < 10, wide * np.abs(b), 0.0) for i, b in zip(inner, bent, strict=True)]
    bent = store.rounded(np.maximum(bent[0] - error[0], -1.0), np.minimum(bent[1] + error[1], 1.0))
    one = kept(np.maximum(1 + bent[0], 0.0), np.maximum(1 + bent[1], 0.0))
    half = store.rounded(0.5 * lo, 0.5 * hi)
    return scaled(*half, *one)


ANY = -1  # a window's entry for a part that the unit does not read
IGNORED = 2.0**-5  # a part that moves a pre-activation by less is folded
MANY = 4096  # windows of one unit that are listed one by one
BLOCK = 1 << 24  # entries of one intermediate matrix


@dataclass(frozen=True)
class Firing:
    """Unit `unit[i]` may fire on window `window[i]` (one entry per key, ANY where it does not read); elsewhere its
    pre-activation stays below `silent[u]`."""

    keys: tuple[Key, ...]
    unit: Array  # (E,)
    window: Array  # (E, K)
    silent: Array  # (U,)


@dataclass(frozen=True)
class SumError:
    """Errors of the float32 sums of a linear layer's rows, in any order: see `rounding.partial_dot`."""

    terms: Array  # (rows,)
    size: Array  # (rows,) S
    exact: Array  # (rows,) whether sums are without error: see `sum_error`
    adapter: Array  # (rows,) error of an adapter that is not merged

    def at(self, row: Array, total: Array) -> Array:
        """For rows `row` whose sums are at most `total` in absolute value."""
        size, terms = self.size[row], self.terms[row]
        exact = rounding.own(size) + rounding.underflow(terms)
        return self.adapter[row] + np.where(self.exact[row], exact, rounding.partial_dot(terms, size, total))

    def most(self) -> Array:
        return self.at(np.arange(len(self.size)), self.size)


def sum_error(layer: Linear, size: Array, field: Bounds | None = None) -> SumError:
    """Errors of a layer's sums when its inputs are bounded by `size`.

    With `field`: the inputs themselves, which are stored. A row is summed without any error, in any order, when all
    its products are multiples of one power of two and their absolute values add up to at most 2^23 of it.
    """
    weight = layer.weight
    absolute = np.abs(weight) @ size
    terms = ((weight != 0) & (size > 0)).sum(1)
    if layer.bias is not None:
        absolute, terms = absolute + np.abs(layer.bias), terms + 1
    exact = np.zeros(len(weight), dtype=bool)
    if field is not None:
        channel = channel_steps(field)
        step = least_step(weight, channel)
        if layer.bias is not None:
            step = np.minimum(step, np.where(layer.bias != 0, step_of(layer.bias), np.inf))
        exact = absolute <= EXACT_SUM * step
    if layer.adapter is None:
        return SumError(terms, absolute, exact, np.zeros(len(weight)))
    error, never = adapter_error(layer.adapter, size, field, layer.bias is None)
    return SumError(terms, absolute, exact & (never | layer.adapter.idle), error)


def adapter_error(adapter: LowRank, size: Array, field: Bounds | None, plain: bool) -> tuple[Array, Array]:
    """Errors of an adapter that reads a stored field (None: one that is kept in float32); see `LowRank.error`.

    Without a bias (`plain`), sums of short multiples of one power of two have none.
    """
    if field is None:
        return adapter.error(size, stored=False)
    lo, hi = product_bounds(adapter.base, field.lo, field.hi)
    for part in field.parts:
        low, high = product_bounds(adapter.base[:, part.channels], part.lo, part.hi)
        lo, hi = lo + low.min(0), hi + high.max(0)
    return adapter.error(size, magnitude(lo, hi), _lattice(field) if plain else None)


def _lattice(field: Bounds) -> Lattice:
    """The values of a field that are known exactly."""
    origin, apart = field.lo.copy(), np.where(field.lo == field.hi, np.inf, 0.0)
    for part in field.parts:
        origin[part.channels] += part.lo[0]
        moved = np.where(part.lo == part.hi, step_of(part.lo - part.lo[:1]), 0.0).min(0)
        apart[part.channels] = np.minimum(apart[part.channels], moved)
    return Lattice(channel_steps(field), origin, apart)


def channel_steps(field: Bounds) -> Array:
    """Per channel: the largest power of two of which every value, for every input, is a multiple; 0 where values are
    not known exactly.
    """
    step = np.where(field.lo == field.hi, step_of(field.lo), 0.0)
    for part in field.parts:
        rows = np.where(part.lo == part.hi, step_of(part.lo), 0.0).min(0)
        step[part.channels] = np.minimum(step[part.channels], rows)
    return step


def base(field: Bounds, weight: Array, read: list[Array]) -> Interval:
    """weight x without the parts that a row reads (`read[p]` marks the rows that read part p); the other
    parts are folded.
    """
    lo, hi = product_bounds(weight, field.lo, field.hi)
    for part, reads in zip(field.parts, read, strict=True):
        rest = np.flatnonzero(~reads)
        low, high = product_bounds(weight[np.ix_(rest, part.channels)], part.lo.min(0), part.hi.max(0))
        lo[rest] += low
        hi[rest] += high
    return lo, hi


def readers(field: Bounds, gate: Linear, up: Linear | None) -> list[Array]:
    """For every part: which units it moves noticeably."""
    found = []
    for part in field.parts:
        width = part.spread()
        moved = np.abs(gate.weight[:, part.channels]) @ width > IGNORED
        if up is not None:
            spread = np.abs(up.weight[:, part.channels]) @ width
            scale = np.abs(up.weight) @ field.largest()
            moved |= spread > IGNORED * np.maximum(scale, 2.0**-10)
        found.append(moved)
    return found


def firing(
    field: Bounds, gate: Linear, read: list[Array], kind: str, once: frozenset[int], stored: bool = True
) -> Firing:
    """All windows on which units of a layer fire, or `Undecided` when a unit fires on too many.

    `stored`: the field is stored, and so may be the parts of an adapter.
    """
    units, cut = len(gate.weight), SILENT_BELOW[kind]
    floor = base(field, gate.weight, read)[1] + sum_error(gate, field.largest()).most()
    if gate.adapter is not None and stored:
        floor = floor + adapter_error(gate.adapter, field.largest(), field, gate.bias is None)[0]
    floor = floor if gate.bias is None else floor + gate.bias
    apart, floor = _read_start(field, gate, floor, read, cut, once)
    used = [i for i, reads in enumerate(read) if (reads & ~apart).any()]
    keys = tuple(field.parts[i].key for i in used)
    best, second = np.zeros((len(used), units)), np.full((len(used), units), -np.inf)
    winner = np.full((len(used), units), ANY)
    for at, index in enumerate(used):
        who = np.flatnonzero(read[index] & ~apart)
        best[at, who], second[at, who], winner[at, who] = _leaders(field.parts[index], gate.weight[who])
    top = floor + best.sum(0)
    for u in np.flatnonzero(apart):
        top[u] = _highest_by_start(field, gate, int(u), float(floor[u]), read, once)
    lowered = top[None, :] - best + second  # one part takes its runner-up
    lowered[winner == ANY] = -np.inf
    alternative = lowered.max(0, initial=-np.inf)
    alive, several = (top > cut) & ~apart, alternative > cut
    silent = np.where(alive, alternative, top)
    plain = np.flatnonzero(alive & ~several)
    unit, window = [plain], [winner[:, plain].T]
    for u in np.flatnonzero(alive & several):
        windows, silent[u] = _list_windows(field, gate, int(u), floor[u], used, read, cut)
        unit.append(np.full(len(windows), u))
        window.append(windows)
    silent = np.where((winner == ANY).all(0) & alive, -np.inf, silent)  # reads nothing: it always fires
    return Firing(keys, np.concatenate(unit), np.concatenate(window), silent)


def _read_start(
    field: Bounds, gate: Linear, floor: Array, read: list[Array], cut: float, once: frozenset[int]
) -> tuple[Array, Array]:
    """Units that are silent wherever the start of the text is, and the floor of all units.

    For any other unit that reads START, its extremes over all places are enough: they move from `read` to the floor.
    """
    starts = [(part, reads) for part, reads in zip(field.parts, read, strict=True) if part.key[0] == START]
    apart, floor = np.zeros(len(floor), dtype=bool), floor.copy()
    for _, reads in starts:
        apart |= reads
    for u in np.flatnonzero(apart):
        # Up to this it counts as silent, with whatever it may still write.
        if _highest_by_start(field, gate, int(u), float(floor[u]), read, once) <= cut / 4:
            continue
        apart[u] = False
        for part, reads in starts:
            if reads[u]:
                reads[u] = False
                floor[u] += product_bounds(gate.weight[[u]][:, part.channels], part.lo.min(0), part.hi.max(0))[1][0]
    return apart, floor


def _highest_by_start(
    field: Bounds, gate: Linear, unit: int, floor: float, read: list[Array], once: frozenset[int]
) -> float:
    """The largest pre-activation of a unit that reads START, over all inputs.

    START and what is seen at an offset are not independent: while the start is at most `offset` places back, a head
    with that offset sees the first token; later it sees none of `once`.
    """
    plain, by_start, seen = floor, np.zeros(STARTS + 2), []
    for part, reads in zip(field.parts, read, strict=True):
        if not reads[unit]:
            continue
        row = gate.weight[unit, part.channels]
        values = ((part.lo + part.hi) / 2) @ row + ((part.hi - part.lo) / 2) @ np.abs(row)
        values = values + rounding.own(np.abs(values)) + rounding.own(1.0)
        if part.key == (START, 0):
            by_start = by_start + values
        elif part.key[0] == START:
            raise Undecided(f"{gate.name}: unit {unit} reads how far back the start was, at another position")
        elif part.key[0] == TOKEN and part.key[1] >= 0 and not is_absent(part.key[1]):  # others may show any token
            special = np.isin(np.arange(len(values)), list(once))
            ends = (values[special].max(initial=-np.inf), values[~special].max(initial=-np.inf), values.max())
            seen.append((part.key[1], *map(float, ends)))
        else:
            plain += float(values.max())
    highest = -np.inf
    for start in range(STARTS + 2):
        total = plain + float(by_start[start])
        for offset, first, others, either in seen:
            if start < STARTS and offset >= start:
                total += first
            else:
                total += either if start == STARTS and offset >= STARTS else others
        highest = max(highest, total + float(rounding.own(abs(total))))
    return highest


def _leaders(part: SymbolPart, weight: Array) -> tuple[Array, Array, Array]:
    """Per unit: the largest contribution of a part, the runner-up, and the best symbol."""
    patterns, inverse = np.unique(weight[:, part.channels], axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    middle, radius = (part.lo + part.hi) / 2, (part.hi - part.lo) / 2
    narrow = radius.max(0)
    exact = len(part.lo) <= MANY or float(narrow.max(initial=0.0)) > 2.0**-6
    best, second = np.empty(len(patterns)), np.empty(len(patterns))
    winner = np.empty(len(patterns), dtype=int)
    step = max(1, BLOCK // max(1, len(part.lo)))
    for start in range(0, len(patterns), step):
        block = patterns[start : start + step]
        values = block @ middle.T
        values += np.abs(block) @ radius.T if exact else (np.abs(block) @ narrow)[:, None]
        values += rounding.own(np.abs(values))
        chosen = values.argmax(1)
        at = np.arange(len(block))
        best[start : start + step], winner[start : start + step] = values[at, chosen], chosen
        values[at, chosen] = -np.inf
        second[start : start + step] = values.max(1)
    return best[inverse], second[inverse], winner[inverse]


def _list_windows(
    field: Bounds, gate: Linear, unit: int, base: float, used: list[int], read: list[Array], cut: float
) -> tuple[Array, float]:
    """The windows of one unit that fires on several, and how far below the rest stays."""
    values = []
    for index in used:
        part = field.parts[index]
        row = gate.weight[unit, part.channels]
        spread = ((part.lo + part.hi) / 2) @ row + ((part.hi - part.lo) / 2) @ np.abs(row)
        values.append(spread if read[index][unit] else None)
    top = base + sum(v.max() for v in values if v is not None)
    candidates, below = [], -np.inf
    for v in values:
        if v is None:
            candidates.append(np.array([ANY]))
            continue
        reach = top - v.max() + v
        candidates.append(np.flatnonzero(reach > cut))
        below = max(below, float(reach[reach <= cut].max(initial=-np.inf)))
    count = int(np.prod([len(c) for c in candidates], dtype=object))
    if count > MANY:
        raise Undecided(f"{gate.name}: unit {unit} fires on {count} windows or more")
    grid = np.stack([g.reshape(-1) for g in np.meshgrid(*candidates, indexing="ij")], 1)
    total = np.full(len(grid), base)
    for column, v in zip(grid.T, values, strict=True):
        if v is not None:
            total = total + v[column]
    below = max(below, float(total[total <= cut].max(initial=-np.inf)))
    return grid[total > cut], below


def at_windows(field: Bounds, weight: Array, row: Array, found: Firing, start: Interval) -> Interval:
    """Bounds of `start` plus what the parts that are read add, at each entry of `found`; entry i uses row `row[i]` of
    `weight`.
    """
    lo, hi = start[0].copy(), start[1].copy()
    parts = {part.key: part for part in field.parts}
    for column, key in enumerate(found.keys):
        part = parts[key]
        who = np.flatnonzero(found.window[:, column] != ANY)
        for first in range(0, len(who), 8192):
            some = who[first : first + 8192]
            symbols, w = found.window[some, column], weight[np.ix_(row[some], part.channels)]
            low, high = part.lo[symbols], part.hi[symbols]
            centre, radius = (w * ((low + high) / 2)).sum(1), (np.abs(w) * ((high - low) / 2)).sum(1)
            slack = rounding.own((np.abs(w) * np.maximum(np.abs(low), np.abs(high))).sum(1))
            lo[some] += centre - radius - slack
            hi[some] += centre + radius + slack
    return lo, hi
