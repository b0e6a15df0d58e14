"""A stream of signs: channel c is s_c m_c with a sign s_c = +-1 and a magnitude m_c in [lo, hi].

Signs of some channels are fixed; the others depend on the input. A row of a matrix reads at most three of the latter,
so its value is one interval for each of the eight combinations of their signs. Bit j of a combination's number is 1
where the row's j-th channel is -1.

LayerNorm subtracts a mean. There every channel that depends on the tokens has a twin of the opposite sign, and the
codes of positions add up to nearly nothing, so the mean is bounded by what magnitudes differ (`Balance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.storage import Array, Storage, finite, in_float32

MOST = 3
COMBINATIONS = 1 - 2 * ((np.arange(2**MOST)[:, None] >> np.arange(MOST)) & 1).astype(np.float64)  # (8, 3) signs


@dataclass(frozen=True, eq=False)
class SignStream:
    """Magnitudes (hidden,), and fixed signs (0: depends on the input).

    `symbols[c]` is the channel that channel c has the sign of: itself, or the one of which it is the twin, whose sign
    is then reversed. A mean that was subtracted adds e drift[c] to every channel, with one number e in [-1, 1] for all
    of them: rows whose weights add up to zero lose nothing to it.
    """

    lo: Array
    hi: Array
    fixed: Array
    symbols: Array = None
    drift: Array | None = None

    def __post_init__(self) -> None:
        if self.symbols is None:
            object.__setattr__(self, "symbols", np.arange(len(self.lo)))

    @property
    def turned(self) -> Array:
        """-1 for channels with the reversed sign of their symbol, else 1."""
        return np.where(self.symbols == np.arange(len(self.symbols)), 1.0, -1.0)


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


@dataclass(frozen=True, eq=False)
class Balance:
    """What keeps a mean near zero: twins[c] is the channel with the opposite sign of c, or -1; places (positions,
    hidden) has the signs of channels that depend on the position, 0 elsewhere."""

    twins: Array
    places: Array

    @property
    def symbols(self) -> Array:
        """Of each channel: itself, or the one of which it is the twin."""
        return np.where(self.twins >= 0, np.minimum(self.twins, np.arange(len(self.twins))), np.arange(len(self.twins)))

    @property
    def centred(self) -> bool:
        """Whether channels have twins, as norms that subtract a mean need them."""
        return bool((self.twins >= 0).any())

    def mean(self, stream: SignStream) -> float:
        """The largest magnitude of a stream's mean, as float32 computes it."""
        middle, radius = (stream.lo + stream.hi) / 2, (stream.hi - stream.lo) / 2
        one = np.flatnonzero(self.twins > np.arange(len(self.twins)))
        two = self.twins[one]
        if (stream.fixed[one] != -stream.fixed[two]).any():
            raise Undecided("a channel and its twin do not have opposite signs")
        apart = np.maximum(stream.hi[one] - stream.lo[two], stream.hi[two] - stream.lo[one]).sum()
        placed = self.places.any(0)
        alone = (self.twins < 0) & ~placed
        if (stream.fixed[alone] == 0).any():
            raise Undecided("a channel that depends on the tokens has no twin")
        total = apart + abs(stream.fixed[alone] @ middle[alone]) + radius[alone | placed].sum()
        total = total + np.abs(self.places @ middle).max(initial=0.0)
        size, count = stream.hi.sum(), len(stream.hi)
        return float(total + rounding.mean_error(count, size) + rounding.own(size)) / count


def hull(streams: Sequence[SignStream]) -> SignStream:
    """One stream that contains several."""
    low, high = np.min([s.lo for s in streams], axis=0), np.max([s.hi for s in streams], axis=0)
    same = np.all([s.fixed == streams[0].fixed for s in streams], axis=0)
    # Drifts are multiples of one vector.
    drifts = [s.drift for s in streams if s.drift is not None]
    drift = np.max(drifts, axis=0) if drifts else None
    return SignStream(low, high, np.where(same, streams[0].fixed, 0.0), streams[0].symbols, drift)


def norm_factor(stream: SignStream, norm: Norm, mean: float | None = None) -> tuple[float, float]:
    """By what a norm multiplies every channel of one place, before its weights; LayerNorm has subtracted a mean."""
    biased = norm.bias is not None and norm.bias.any()
    if biased or norm.centred != (mean is not None) or (norm.weight < 0).any():
        raise Undecided(f"{norm.name}: the proof of recall supports norms without biases and with weights not negative")
    count = len(stream.lo)
    finite(f"{norm.name}: a sum of squares", (stream.hi**2).sum())
    squares = rounding.widened((stream.lo**2).sum(), (stream.hi**2).sum())
    least, most = rounding.inverse_root(*squares, count, norm.eps, None if mean is None else np.array(mean))
    return float(least), float(most)


def centred(stream: SignStream, norm: Norm, mean: float) -> SignStream:
    """The stream minus a mean of at most this size."""
    low, high = in_float32(stream.lo - mean, stream.hi + mean)
    if not (low > 0).all():
        raise Undecided(f"{norm.name}: the mean may reach {mean:.3g}, the size of a channel")
    return replace(stream, lo=low, hi=high)


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
    return replace(stream, lo=low, hi=high), least / middle


def normed(stream: SignStream, norm: Norm, store: Storage, stored: bool, balance: Balance | None = None) -> SignStream:
    """The stream after its norm. `stored`: the engine rounds normed streams, before the weight, after it, or both."""
    if norm.centred and balance is None:
        raise Undecided(f"{norm.name} subtracts a mean, of which nothing is known")
    mean = balance.mean(stream) if norm.centred and balance is not None else None
    whole = stream if mean is None else centred(stream, norm, mean)
    least, most = norm_factor(whole, norm, mean)
    if not stored and mean is not None:
        near = in_float32(
            *(x + sign * rounding.centred_error(x + mean) for x, sign in ((stream.lo, -1), (stream.hi, 1)))
        )
        low, high = in_float32(near[0] * least, near[1] * most)
        low, high = in_float32(low * norm.weight, high * norm.weight)
        return replace(stream, lo=low, hi=high, drift=mean * most * norm.weight * (1 + 2.0**-20))
    low, high = in_float32(whole.lo * least, whole.hi * most)
    if not stored:
        low, high = in_float32(low * norm.weight, high * norm.weight)
        return replace(stream, lo=low, hi=high)
    before, either = store.rounded(low, high), store.maybe(low, high)
    first = in_float32(before[0] * norm.weight, before[1] * norm.weight)
    second = store.rounded(*in_float32(either[0] * norm.weight, either[1] * norm.weight))
    return replace(stream, lo=np.minimum(first[0], second[0]), hi=np.maximum(first[1], second[1]))


def read_rows(linear: Linear, stream: SignStream) -> SmallRows:
    """The values of all rows of a linear map."""
    weight, turned = linear.weight, stream.turned
    known = weight * stream.fixed
    positive, negative = np.maximum(known, 0), np.minimum(known, 0)
    bias = np.zeros(len(weight)) if linear.bias is None else linear.bias
    lo, hi = positive @ stream.lo + negative @ stream.hi + bias, positive @ stream.hi + negative @ stream.lo + bias
    reads = np.zeros(weight.shape, dtype=bool)
    rows, columns = np.nonzero((weight != 0) & (stream.fixed == 0)[None])
    reads[rows, stream.symbols[columns]] = True
    counts = reads.sum(1)
    if counts.max(initial=0) > MOST:
        row = int(counts.argmax())
        raise Undecided(f"{linear.name}: row {row} reads {counts[row]} channels that depend on the input")
    low, high = np.repeat(lo[:, None], 8, 1), np.repeat(hi[:, None], 8, 1)
    channels = [tuple(np.flatnonzero(row).tolist()) for row in reads]
    for r in np.flatnonzero(counts):
        own = np.flatnonzero((weight[r] != 0) & (stream.fixed == 0))
        for j, channel in enumerate(channels[r]):
            for c in own[stream.symbols[own] == channel]:
                signed = weight[r, c] * turned[c] * COMBINATIONS[:, j]
                a, b = signed * stream.lo[c], signed * stream.hi[c]
                low[r] += np.minimum(a, b)
                high[r] += np.maximum(a, b)
    total = np.abs(weight) @ stream.hi + np.abs(bias)
    if stream.drift is not None:
        total = total + np.abs(weight) @ stream.drift
    finite(f"{linear.name}: a sum", total)
    slack = rounding.dot((weight != 0).sum(1) + (bias != 0), total)[:, None]
    if stream.drift is not None:
        slack = slack + (np.abs(weight @ stream.drift) + rounding.own(total))[:, None]
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
