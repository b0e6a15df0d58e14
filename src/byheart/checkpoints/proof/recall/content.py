"""Heads that match keys by content: how far a match leads BOS, and BOS every other key, at every distance.

Per frequency a query is a complex number that two bits of its key decide, and a key is one that two bits of the held
key decide, or the flag of BOS. The four patterns of differing bits have one greatest contribution each, at every
distance. Over the words of the code the greatest sum is the greatest score of another key; the code is linear, so its
words are all differences. Distances lie on a grid; between two points a score moves by at most its slope, sum theta_f
|Q_f| |K_f|, times half a step.

A place without a key (BOS, or a stale holder) has no content: its score is that of the flag.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.recall.layout import RecallLayout
from byheart.checkpoints.proof.recall.stream import SmallRows, combinations
from byheart.checkpoints.proof.recall.turning import head_pairs
from byheart.checkpoints.proof.recall.words import StoredWords
from byheart.checkpoints.proof.storage import Array, Storage, finite

# A score moves by at most BETWEEN nats from a point of the grid to the middle between two.
POINTS, BETWEEN, BLOCK = 257, 0.25, 32


@dataclass(frozen=True)
class ContentGaps:
    """Least and greatest scores in nats after all errors, over all keys and distances."""

    match: float
    sink_low: float
    sink_high: float
    other: float  # of another key, or of a place without one

    @property
    def gap(self) -> float:
        """The least gap between winners and losers."""
        return min(self.match - self.sink_high, self.sink_low - self.other, self.match - self.other)

    def times(self, ratio: float) -> ContentGaps:
        """The scores of a query that is `ratio` times as long."""
        return ContentGaps(*(ratio * score for score in (self.match, self.sink_low, self.sink_high, self.other)))

    def leak(self, distances: int) -> float:
        """The weight of all losers together, at most."""
        return float(distances * np.exp(-min(max(self.gap, -50.0), 700.0)))


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Complex values of one frequency by combination: middles, and bounds of length and error."""

    middle: Array
    length: float
    error: float


@dataclass(frozen=True, eq=False)
class PlaceKeys:
    """A head's key at three kinds of places: fresh ones, BOS, and all others (stale ones among them)."""

    fresh: SmallRows
    start: SmallRows
    every: SmallRows


@dataclass
class _Total:
    """Sums over all frequencies for one kind of place: sizes, errors, slopes, drifts, and scores on the grid."""

    scores: Array
    size: float = 0.0
    error: float = 0.0
    slope: float = 0.0
    drift: float = 0.0

    def add(self, query: _Vectors, key: _Vectors, theta: float, farthest: float) -> None:
        product = query.length * key.length
        self.size += product
        self.error += (query.length + query.error) * (key.length + key.error) - product
        self.slope += theta * product
        self.drift += rounding.frequency_error(farthest, theta * product)

    def bound(self, scores: Array, sign: float, shape: Shape, step: float, store: Storage) -> float:
        """The least (sign -1) or greatest score over all distances, after all errors."""
        stores, scaling = rounding.score_stores(shape.scale, store)
        scale = shape.scale * head_pairs(shape).gain ** 2
        size = self.size + self.error
        off = self.error + scaling * size + rounding.score_sum(shape.head_dim, size)
        off = scale * (off + self.drift + rounding.grid_error(self.slope, step)) + rounding.own(1 + scale * size)
        most = float(np.abs(scores).max()) + off
        worst = float(scores.max()) if sign > 0 else float(scores.min())
        return float(worst + sign * (off + stores * most + 2 * rounding.score_underflow(store)))


def match_gaps(
    q: SmallRows, k: PlaceKeys, layout: RecallLayout, words: StoredWords, shape: Shape, distances: int, store: Storage
) -> ContentGaps:
    """Bound the scores of one head.

    Args:
        q: the query's dimensions, which read `query` channels and constants.
        k: the key's, which read `plus`, `minus` and `bos`.
        layout, words: roles and code.
        shape: of this layer; dimensions may be rotated or not.
        distances: how many distances a query sees.
        store: the type.

    Raises:
        Undecided: a dimension reads anything else.
    """
    pairs = head_pairs(shape)
    theta, scale = pairs.theta, shape.scale * pairs.gain**2
    length = [np.hypot(rows.size[pairs.first], rows.size[pairs.second]) for rows in (q, k.every)]
    slope = scale * float(theta @ (length[0] * length[1]))
    points = min(max(3, math.ceil(slope * (distances - 1) / (2 * BETWEEN)) + 1), POINTS, distances)
    grid = np.linspace(0, distances - 1, points)
    step = float(grid[1] - grid[0]) if len(grid) > 1 else 0.0
    held, sink, empty = (_Total(np.zeros(len(grid))) for _ in range(3))
    tables, bit_pairs = [], []
    for f in range(len(theta)):
        rows = pairs.dimensions(f)
        if not q.size[list(rows)].any():
            continue
        turn = np.exp(1j * theta[f] * grid)
        # The error of cosines and sines, per length; None where nothing turns.
        wrong = float(rounding.angle_error(shape.positions, theta[f], np.ones(1))[0]) if f < pairs.rotated else None
        bits, query = _query(q, rows, layout, wrong, store)
        full, start, none = _keys(k, rows, layout, bits, wrong, store)
        for total, vectors in ((held, full), (sink, start), (empty, none)):
            total.add(query, vectors, float(theta[f]), (distances - 1) * float(pairs.uncertainties[f]))
            if not bits:
                total.scores += scale * (query.middle[0] * np.conj(vectors.middle[0]) * turn).real
        if bits:
            z = scale * (query.middle[:, None, None] * np.conj(full.middle)[None, :, None] * turn).real
            same = np.arange(len(query.middle))
            held.scores += z[same, same].min(0)
            kinds = same[:, None] ^ same[None]
            both = len(bits) == 2
            tables.append(np.stack([z[kinds == n].max(0) for n in range(4)]) if both else _one_bit(z, kinds))
            tables[-1] -= z[same, same].min(0)  # beyond the least match, which `held` already has
            bit_pairs.append((bits[0], bits[-1]))
    finite("a score", pairs.gain**2 * np.array([t.size + t.error for t in (held, sink, empty)]), store.largest)
    others = held.scores + _greatest(tables, bit_pairs, words.differences, len(grid))
    return ContentGaps(
        held.bound(held.scores, -1.0, shape, step, store),
        sink.bound(sink.scores, -1.0, shape, step, store),
        sink.bound(sink.scores, 1.0, shape, step, store),
        max(held.bound(others, 1.0, shape, step, store), empty.bound(empty.scores, 1.0, shape, step, store)),
    )


def _one_bit(z: Array, kinds: Array) -> Array:
    """A frequency with one bit: it is its own second bit, so patterns 0 and 3 occur."""
    found = np.full((4, z.shape[2]), -np.inf)
    found[0], found[3] = z[kinds == 0].max(0), z[kinds == 1].max(0)
    return found


def _greatest(tables: list[Array], pairs: list[tuple[int, int]], differences: Array, points: int) -> Array:
    """The greatest sum over all words of the code, at every distance of the grid.

    Words are grouped by how many pairs have one wrong bit, and two. The greatest contributions of so many pairs bound
    a group, so most groups are skipped wherever a word has been found that is above their bound.
    """
    if not tables:
        raise Undecided("a head that should match keys has no content")
    kinds = np.stack([differences[:, a] + 2 * differences[:, b] for a, b in pairs], 1)
    stacked = np.where(np.isfinite(np.stack(tables)), np.stack(tables), 0.0)  # (pairs, 4, points)
    two = (kinds == 3).sum(1)
    group = ((kinds > 0).sum(1) - two) * (len(pairs) + 1) + two
    base = stacked[:, 0].sum(0)
    ones = _largest_sums(stacked[:, 1:3].max(1) - stacked[:, 0])
    twos = _largest_sums(stacked[:, 3] - stacked[:, 0])
    counts = [divmod(number, len(pairs) + 1) for number in np.unique(group).tolist()]
    found = np.full(points, -np.inf)
    for a, b in sorted(counts, key=lambda count: count[0] + 2 * count[1]):
        bound = base + ones[a] + twos[b]
        open_points = np.flatnonzero(bound > found)
        if not len(open_points):
            continue
        words = kinds[group == a * (len(pairs) + 1) + b]
        for first in range(0, len(open_points), BLOCK):
            some = open_points[first : first + BLOCK]
            sums = sum(stacked[k][:, some][words[:, k]] for k in range(len(pairs)))
            found[some] = np.maximum(found[some], np.asarray(sums).max(0))
    return found


def _largest_sums(values: Array) -> Array:
    """Row n: the sum of the n largest of each column; one unit of 2^-40 covers the order of sums."""
    ordered = -np.sort(-values, axis=0)
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(ordered, axis=0)])
    return sums + 2.0**-40 * (1 + np.abs(values).sum(0))


def _vectors(
    rows: SmallRows, places: tuple[int, int], signs: list[dict[int, float]], wrong: float | None, store: Storage
) -> _Vectors:
    """The values of two dimensions that turn together, or are not rotated, for some combinations of signs."""
    bounds = np.array([[rows.at(place, s) for place in places] for s in signs])  # (combinations, 2, 2)
    middle, radius = bounds.mean(2), (bounds[:, :, 1] - bounds[:, :, 0]) / 2
    large = np.abs(bounds).max(2)
    length = float(np.hypot(large[:, 0], large[:, 1]).max())
    error = np.hypot(radius[:, 0], radius[:, 1])
    if wrong is not None:
        error = error + rounding.rotation_error(large[:, 0], large[:, 1], store) + wrong * length
    return _Vectors(middle[:, 0] + 1j * middle[:, 1], length, float(error.max()))


def _query(
    q: SmallRows, rows: tuple[int, int], layout: RecallLayout, wrong: float | None, store: Storage
) -> tuple[list[int], _Vectors]:
    """The bits of the key that a frequency of the query holds, and its values."""
    numbers = {int(channel): bit for bit, channel in enumerate(layout["query"])}
    channels = sorted(set(q.channels[rows[0]]) | set(q.channels[rows[1]]))
    if len(channels) > 2 or any(channel not in numbers for channel in channels):
        raise Undecided(
            f"{q.name}: dimensions {rows} of a query read channels {channels}, not one or two bits of a key"
        )
    return [numbers[c] for c in channels], _vectors(q, rows, combinations(channels), wrong, store)


def _keys(
    k: PlaceKeys, rows: tuple[int, int], layout: RecallLayout, bits: list[int], wrong: float | None, store: Storage
) -> tuple[_Vectors, _Vectors, _Vectors]:
    """The values of a frequency of the key: at places that hold a key, at BOS, and at others that hold none."""
    plus, minus, bos = layout["plus"], layout["minus"], int(layout["bos"][0])
    known = {int(c) for b in bits for c in (plus[b], minus[b])} if bits else {bos}
    for kind in (k.fresh, k.start, k.every):
        unknown = (set(kind.channels[rows[0]]) | set(kind.channels[rows[1]])) - known
        if unknown:
            raise Undecided(
                f"{kind.name}: dimensions {rows} of a key read channels {sorted(unknown)} beside their bits"
            )
    if not bits:
        flags = ((k.fresh, -1.0), (k.start, 1.0), (k.every, -1.0))
        fresh, start, every = (_vectors(kind, rows, [{bos: sign}], wrong, store) for kind, sign in flags)
        return fresh, start, every
    ordered = sorted(bits, key=lambda b: int(layout["query"][b]))  # as the query's combinations are
    held = [{int(plus[b]): s[b] for b in bits} | {int(minus[b]): -s[b] for b in bits} for s in combinations(ordered)]
    none = [{channel: 1.0 for channel in known}]
    kinds = ((k.fresh, held), (k.start, none), (k.every, none))
    fresh, start, every = (_vectors(kind, rows, signs, wrong, store) for kind, signs in kinds)
    return fresh, start, every
