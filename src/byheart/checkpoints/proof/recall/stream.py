"""A stream of signs: channel c is s_c m_c with a sign s_c = +-1 and a magnitude m_c in [lo, hi].

Signs of some channels are fixed; the others depend on the input. A row of a matrix reads at most three of the latter,
so its value is one interval for each of the eight combinations of their signs. Bit j of a combination's number is 1
where the row's j-th channel is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.storage import Array, Storage, finite, in_float32

MOST = 3
COMBINATIONS = 1 - 2 * ((np.arange(2**MOST)[:, None] >> np.arange(MOST)) & 1).astype(np.float64)  # (8, 3) signs


@dataclass(frozen=True, eq=False)
class SignStream:
    """Magnitudes (hidden,), and fixed signs (0: depends on the input)."""

    lo: Array
    hi: Array
    fixed: Array


@dataclass(frozen=True, eq=False)
class SmallRows:
    """Values of rows: `channels[r]` are those that row r reads, `lo` and `hi` are (rows, 8)."""

    name: str
    channels: tuple[tuple[int, ...], ...]
    lo: Array
    hi: Array

    @property
    def size(self) -> Array:
        """The largest magnitude of each row."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi)).max(1)

    def maybe(self, store: Storage) -> SmallRows:
        """Kept in float32, or stored in the type."""
        return SmallRows(self.name, self.channels, *store.maybe(self.lo, self.hi))

    def times(self, lo: Array, hi: Array) -> SmallRows:
        """Multiply row r by a positive number in [lo, hi]."""
        low = np.minimum(self.lo * lo, self.lo * hi)
        high = np.maximum(self.hi * lo, self.hi * hi)
        return SmallRows(self.name, self.channels, *in_float32(low, high))

    def at(self, row: int, signs: dict[int, float]) -> tuple[float, float]:
        """The interval of a row for the given signs of its channels."""
        number = sum(1 << j for j, channel in enumerate(self.channels[row]) if signs[channel] < 0)
        return float(self.lo[row, number]), float(self.hi[row, number])


def hull(streams: Sequence[SignStream]) -> SignStream:
    """One stream that contains several."""
    low, high = np.min([s.lo for s in streams], axis=0), np.max([s.hi for s in streams], axis=0)
    same = np.all([s.fixed == streams[0].fixed for s in streams], axis=0)
    return SignStream(low, high, np.where(same, streams[0].fixed, 0.0))


def norm_factor(stream: SignStream, norm: Norm) -> tuple[float, float]:
    """By what RMSNorm multiplies every channel of one place, before its weights."""
    if norm.bias is not None or norm.centred or (norm.weight < 0).any():
        raise Undecided(f"{norm.name}: the proof of recall knows RMSNorm with weights that are not negative")
    count = len(stream.lo)
    finite(f"{norm.name}: a sum of squares", (stream.hi**2).sum())
    squares = rounding.widened((stream.lo**2).sum(), (stream.hi**2).sum())
    least, most = rounding.inverse_root(*squares, count, norm.eps, None)
    return float(least), float(most)


def scaled(stream: SignStream, norm: Norm, store: Storage, stored: bool) -> tuple[SignStream, float]:
    """The normed stream for the middle of its factor, and the least ratio of the factor to that middle.

    All channels of one place share the factor. Where only their proportions matter, as in the scores of one query, the
    factor's range costs a share of the result and no error.
    """
    least, most = norm_factor(stream, norm)
    middle = (least + most) / 2
    low, high = stream.lo * middle * norm.weight, stream.hi * middle * norm.weight
    if stored:
        # A second store of what is stored already changes nothing, so only other weights than 1 need several.
        once = (norm.weight == 1).all()
        off = rounding.shared_store(high, store) if once else rounding.shared_norm(high, norm.weight, store)
        low, high = np.maximum(low - off, 0.0), high + off
    low, high = in_float32(*in_float32(low, high))
    return SignStream(low, high, stream.fixed), least / middle


def normed(stream: SignStream, norm: Norm, store: Storage, stored: bool) -> SignStream:
    """The stream after RMSNorm. `stored`: the engine rounds normed streams, before the weight, after it, or both."""
    least, most = norm_factor(stream, norm)
    low, high = in_float32(stream.lo * least, stream.hi * most)
    if not stored:
        return SignStream(*in_float32(low * norm.weight, high * norm.weight), stream.fixed)
    before, either = store.rounded(low, high), store.maybe(low, high)
    first = in_float32(before[0] * norm.weight, before[1] * norm.weight)
    second = store.rounded(*in_float32(either[0] * norm.weight, either[1] * norm.weight))
    return SignStream(np.minimum(first[0], second[0]), np.maximum(first[1], second[1]), stream.fixed)


def read_rows(linear: Linear, stream: SignStream) -> SmallRows:
    """The values of all rows of a linear map."""
    weight = linear.weight
    known = weight * stream.fixed
    positive, negative = np.maximum(known, 0), np.minimum(known, 0)
    bias = np.zeros(len(weight)) if linear.bias is None else linear.bias
    lo, hi = positive @ stream.lo + negative @ stream.hi + bias, positive @ stream.hi + negative @ stream.lo + bias
    reads = (weight != 0) & (stream.fixed == 0)[None]
    counts = reads.sum(1)
    if counts.max(initial=0) > MOST:
        row = int(counts.argmax())
        raise Undecided(f"{linear.name}: row {row} reads {counts[row]} channels that depend on the input")
    low, high = np.repeat(lo[:, None], 8, 1), np.repeat(hi[:, None], 8, 1)
    channels = [tuple(np.flatnonzero(row).tolist()) for row in reads]
    for r in np.flatnonzero(counts):
        for j, channel in enumerate(channels[r]):
            signed = weight[r, channel] * COMBINATIONS[:, j]
            a, b = signed * stream.lo[channel], signed * stream.hi[channel]
            low[r] += np.minimum(a, b)
            high[r] += np.maximum(a, b)
    total = np.abs(weight) @ stream.hi + np.abs(bias)
    finite(f"{linear.name}: a sum", total)
    slack = rounding.dot((weight != 0).sum(1) + (bias != 0), total)[:, None]
    return SmallRows(linear.name, tuple(channels), *in_float32(low - slack, high + slack))


def union_of(rows: SmallRows, chosen: Sequence[int], extra: Sequence[int] = ()) -> tuple[int, ...]:
    """All channels that some rows read, and `extra` ones, in order."""
    found = sorted({channel for row in chosen for channel in rows.channels[row]} | set(extra))
    if len(found) > MOST:
        raise Undecided(f"{rows.name}: {len(found)} channels that depend on the input meet in one channel")
    return tuple(found)


def combinations(channels: Sequence[int]) -> list[dict[int, float]]:
    """All signs of up to three channels."""
    return [
        {channel: float(COMBINATIONS[k, j]) for j, channel in enumerate(channels)} for k in range(2 ** len(channels))
    ]
