"""Heads that match keys by content: how far a match leads BOS, and BOS every other key, at every distance.

Per frequency a query is a complex number that two bits of its key decide, and a key is one that two bits of the held key
decide, or the flag of BOS. The four patterns of differing bits have one greatest contribution each, at every distance.
Over the words of the code the greatest sum is the greatest score of another key; the code is linear, so its words are all
differences. Distances lie on a grid; between two points a score moves by at most its slope, sum theta_f |Q_f| |K_f|,
times half a step.

A place without a key (BOS, or a stale holder) has no content: its score is that of the flag.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.copying import rotation_error, score_stores
from byheart.checkpoints.proof.recall.layout import RecallLayout
from byheart.checkpoints.proof.recall.looking import angle_error
from byheart.checkpoints.proof.recall.stream import SmallRows, combinations
from byheart.checkpoints.proof.recall.words import StoredWords
from byheart.checkpoints.proof.slack import term
from byheart.checkpoints.proof.storage import FREQUENCY_ERROR, OWN, Array, Storage, finite, gamma

POINTS, BLOCK = 257, 32


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

    def leak(self, distances: int) -> float:
        """The weight of all losers together, at most."""
        return float(distances * np.exp(-min(max(self.gap, -50.0), 700.0)))


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Complex values of one frequency by combination: middles, and bounds of length and error."""

    middle: Array
    length: float
    error: float


@dataclass
class _Sums:
    """What all frequencies add up to; `full` for places with a key, `bare` for those without."""

    full: float = 0.0
    bare: float = 0.0

    def add(self, full: float, bare: float) -> None:
        self.full, self.bare = self.full + full, self.bare + bare


def match_gaps(
    q: SmallRows, k: SmallRows, layout: RecallLayout, words: StoredWords, shape: Shape, distances: int, store: Storage
) -> ContentGaps:
    """Bound the scores of one head.

    Args:
        q: the query's dimensions, which read `query` channels and constants.
        k: the key's, which read `plus`, `minus` and `bos`.
        layout, words: roles and code.
        shape: with rotary positions on all dimensions.
        distances: how many distances a query sees.
        store: the type.

    Raises:
        Undecided: a dimension reads anything else.
    """
    assert shape.rotary is not None
    theta, half = shape.rotary.frequencies, shape.rotary.dims // 2
    scale = shape.head_dim**-0.5 * shape.rotary.gain**2
    grid = np.linspace(0, distances - 1, min(POINTS, distances))
    step = float(grid[1] - grid[0]) if len(grid) > 1 else 0.0
    lowest, flag = np.zeros(len(grid)), {True: np.zeros(len(grid)), False: np.zeros(len(grid))}
    tables, pairs = [], []
    size, error, slope, drift = _Sums(), _Sums(), _Sums(), _Sums()
    for f in range(half):
        rows = (f, f + half)
        if not q.size[list(rows)].any():
            continue
        turn, wrong = np.exp(1j * theta[f] * grid), float(angle_error(shape.positions, theta[f]))
        bits, query = _query(q, rows, layout, wrong, store)
        held, empty, marked = _keys(k, rows, layout, bits, wrong, store)
        products = [query.length * v.length for v in (held, empty)]
        size.add(*products)
        slope.add(*(theta[f] * p for p in products))
        drift.add(*(FREQUENCY_ERROR * theta[f] * (distances - 1) * p for p in products))
        error.add(*((query.length + query.error) * (v.length + v.error) - query.length * v.length for v in (held, empty)))
        if not bits:
            for bos in (False, True):
                flag[bos] += scale * (query.middle[0] * np.conj(marked[bos]) * turn).real
            continue
        z = scale * (query.middle[:, None, None] * np.conj(held.middle)[None, :, None] * turn).real
        same = np.arange(len(query.middle))
        lowest += z[same, same].min(0)
        kinds = same[:, None] ^ same[None]
        tables.append(np.stack([z[kinds == kind].max(0) for kind in range(4)]) if len(bits) == 2 else _one_bit(z, kinds))
        pairs.append((bits[0], bits[-1]))
    finite("a score", np.array([size.full + error.full]), store.largest)
    stores, scaling = score_stores(shape.head_dim**-0.5, store)

    def widened(values: Array, full: bool, sign: float) -> float:
        n, e, s, w = ((t.full if full else t.bare) for t in (size, error, slope, drift))
        off = e + scaling * n + term("sum of a linear map", gamma(shape.head_dim + 2)) * n
        off += term("frequency of a rotation", w) + term("grid of distances", s * step / 2)
        off = scale * off * (1 + 2.0**-20) + OWN * (1 + scale * n)
        most = float(np.abs(values).max()) + off
        worst = float(values.max()) if sign > 0 else float(values.min())
        return worst + sign * (off + stores * most + 2 * store.tiny)

    others = _greatest(tables, pairs, words.differences, len(grid))
    return ContentGaps(
        widened(lowest + flag[False], True, -1.0),
        widened(flag[True], False, -1.0),
        widened(flag[True], False, 1.0),
        max(widened(others + flag[False], True, 1.0), widened(flag[False], False, 1.0)),
    )


def _one_bit(z: Array, kinds: Array) -> Array:
    """A frequency with one bit: it is its own second bit, so patterns 0 and 3 occur."""
    found = np.full((4, z.shape[2]), -np.inf)
    found[0], found[3] = z[kinds == 0].max(0), z[kinds == 1].max(0)
    return found


def _greatest(tables: list[Array], pairs: list[tuple[int, int]], differences: Array, points: int) -> Array:
    """The greatest sum over all words of the code, at every distance of the grid."""
    if not tables:
        raise Undecided("a head that should match keys has no content")
    kinds = np.stack([differences[:, a] + 2 * differences[:, b] for a, b in pairs], 1)
    hot = np.zeros((len(kinds), 4 * len(pairs)))
    hot[np.arange(len(kinds))[:, None], 4 * np.arange(len(pairs)) + kinds] = 1.0
    stacked = np.where(np.isfinite(np.concatenate(tables)), np.concatenate(tables), 0.0)
    found = np.empty(points)
    for first in range(0, points, BLOCK):
        found[first : first + BLOCK] = (hot @ stacked[:, first : first + BLOCK]).max(0)
    return found


def _vectors(rows: SmallRows, places: tuple[int, int], signs: list[dict[int, float]], wrong: float, store: Storage) -> _Vectors:
    """The values of two dimensions that turn together, for some combinations of signs."""
    bounds = np.array([[rows.at(place, s) for place in places] for s in signs])  # (combinations, 2, 2)
    middle, radius = bounds.mean(2), (bounds[:, :, 1] - bounds[:, :, 0]) / 2
    large = np.abs(bounds).max(2)
    length = float(np.hypot(large[:, 0], large[:, 1]).max())
    turned = rotation_error(large[:, 0], large[:, 1], store)
    error = float((np.hypot(radius[:, 0], radius[:, 1]) + turned).max()) + wrong * length
    return _Vectors(middle[:, 0] + 1j * middle[:, 1], length, error)


def _query(
    q: SmallRows, rows: tuple[int, int], layout: RecallLayout, wrong: float, store: Storage
) -> tuple[list[int], _Vectors]:
    """The bits of the key that a frequency of the query holds, and its values."""
    numbers = {int(channel): bit for bit, channel in enumerate(layout["query"])}
    channels = sorted(set(q.channels[rows[0]]) | set(q.channels[rows[1]]))
    if len(channels) > 2 or any(channel not in numbers for channel in channels):
        raise Undecided(f"{q.name}: dimensions {rows} of a query read channels {channels}, not one or two bits of a key")
    return [numbers[c] for c in channels], _vectors(q, rows, combinations(channels), wrong, store)


def _keys(
    k: SmallRows, rows: tuple[int, int], layout: RecallLayout, bits: list[int], wrong: float, store: Storage
) -> tuple[_Vectors, _Vectors, dict[bool, complex]]:
    """The values of a frequency of the key: where a key is held, where none is, and by the flag of BOS."""
    plus, minus, bos = layout["plus"], layout["minus"], int(layout["bos"][0])
    reads = set(k.channels[rows[0]]) | set(k.channels[rows[1]])
    known = {int(c) for b in bits for c in (plus[b], minus[b])} if bits else {bos}
    if reads - known:
        raise Undecided(f"{k.name}: dimensions {rows} of a key read channels {sorted(reads - known)} beside their bits")
    if not bits:
        both = _vectors(k, rows, [{bos: -1.0}, {bos: 1.0}], wrong, store)
        return both, both, {False: complex(both.middle[0]), True: complex(both.middle[1])}
    held = [
        {int(plus[b]): s[b] for b in bits} | {int(minus[b]): -s[b] for b in bits} for s in combinations(sorted(bits, key=lambda b: int(layout["query"][b])))
    ]  # fmt: skip
    none = [{int(channel): 1.0 for channel in known}]
    return _vectors(k, rows, held, wrong, store), _vectors(k, rows, none, wrong, store), {}
