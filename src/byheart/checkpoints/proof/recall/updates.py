"""What attention and units write into a channel, compared with the function: sign by sign, for every combination.

A channel that is written reads at most three channels: of the place that its heads read, or of its own place. For every
combination of their signs the new value has a definite sign, which must be the function's, and a magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import interval_product
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.decoder import Expert, Linear
from byheart.checkpoints.proof.recall.stream import SignStream, SmallRows, combinations, read_rows, union_of
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite, in_float32
from byheart.checkpoints.proof.units import enclose, variants

Signs = dict[int, float]


@dataclass(frozen=True, eq=False)
class Branch:
    """Rows, and the matrix that adds them to the stream; `share` is an expert's weight, `scale` a number of config.json
    that multiplies what the branch adds."""

    rows: SmallRows
    matrix: Linear
    share: Interval | None = None
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Writing:
    """The function of one channel: `sign(signs)`, for the combinations that occur (`allowed`).

    A twin's sign is the opposite of that of its symbol, before and after.
    """

    role: str
    reads: tuple[int, ...]
    sign: Callable[[Signs], float]
    allowed: Callable[[Signs], bool] = lambda signs: True

    def of_twin(self) -> Writing:
        """The function of the twin of the channel that has this one."""
        return replace(self, sign=lambda signs: -self.sign(signs))


def attended(values: SmallRows, sizes: Array, leaks: Sequence[float], winners: int, store: Storage) -> SmallRows:
    """What heads copy from the places they read.

    Args:
        values: of the places that are read, per head.
        sizes: the largest magnitude of each value at any place.
        leaks: the shares of the weight that lie elsewhere, per head.
        winners: at most so many places, all with one value, share the weight. Their shares are stored, and added in any
            order; those of one place alone are covered by the leak.
        store: the type.
    """
    leak: Array = np.repeat(np.asarray(leaks), len(values.lo) // len(leaks))[:, None]
    slack = rounding.leak_error(leak, sizes[:, None])
    if winners > 1:
        slack = slack + rounding.mixture_error(winners, np.maximum(np.abs(values.lo), np.abs(values.hi)), store)
    return SmallRows(values.name, values.channels, *in_float32(values.lo - slack, values.hi + slack)).maybe(store)


def by_head(values: SmallRows, heads: int, kv_heads: int) -> SmallRows:
    """Rows of key-value heads, repeated for the heads that share them."""
    dims = len(values.lo) // kv_heads
    rows = np.concatenate([np.arange(dims) + (h * kv_heads // heads) * dims for h in range(heads)])
    return SmallRows(values.name, tuple(values.channels[r] for r in rows), values.lo[rows], values.hi[rows])


def activated(expert: Expert, stream: SignStream, shape: Shape, store: Storage, stored: bool) -> SmallRows:
    """The units of an MLP, with or without a factor `up`, one interval per combination of signs."""
    gate = read_rows(expert.gate, stream)
    gate = gate.maybe(store) if stored else gate
    ways = [enclose(shape.activation, gate.lo, gate.hi)]
    if stored:
        ways += [store.maybe(*way) for way in variants(shape.activation, gate.lo, gate.hi, store, shape.stepwise)]
    active = np.minimum.reduce([low for low, _ in ways]), np.maximum.reduce([high for _, high in ways])
    if expert.up is not None:
        active = in_float32(*interval_product(active, _factors(expert, stream, store, stored)))
    units = SmallRows(expert.gate.name, gate.channels, *active)
    # Also of idle units: inf * 0 is NaN.
    for rows in (gate, units):
        finite(rows.name, rows.size, store.largest)
    return units.maybe(store) if stored else units


def _factors(expert: Expert, stream: SignStream, store: Storage, stored: bool) -> Interval:
    """`up`, which has one interval: what idle units read besides is not in their products."""
    assert expert.up is not None
    up, idle = read_rows(expert.up, stream), ~expert.down.weight.any(0)
    up = up.maybe(store) if stored else up
    if any(channels and not idle[u] for u, channels in enumerate(up.channels)):
        raise Undecided(f"{expert.up.name}: a factor of a unit depends on the input")
    finite(up.name, up.size, store.largest)
    return np.where(idle[:, None], -up.size[:, None], up.lo), np.where(idle[:, None], up.size[:, None], up.hi)


def write_channels(
    stream: SignStream, parts: Sequence[Branch], writings: dict[int, Writing], store: Storage
) -> SignStream:
    """The stream after a sublayer has written.

    Args:
        stream: before.
        parts: several (experts) add up before they are added to the stream.
        writings: channel -> its function; every other channel must stay as it is.
        store: the type.

    Raises:
        Undecided: a channel is written that should not be, or its value is not the function's.
    """
    for matrix in (part.matrix for part in parts):
        unknown = set(np.flatnonzero(matrix.weight.any(1)).tolist()) - set(writings)
        if unknown or (matrix.bias is not None and matrix.bias.any()):
            raise Undecided(f"{matrix.name}: writes channel {min(unknown, default=-1)}, which has no function here")
    lo, hi, fixed = stream.lo.copy(), stream.hi.copy(), stream.fixed.copy()
    for channel, writing in writings.items():
        lo[channel], hi[channel] = _written(stream, parts, channel, writing, store)
        fixed[channel] = 0.0
    return replace(stream, lo=lo, hi=hi, fixed=fixed)


def _written(
    stream: SignStream, parts: Sequence[Branch], channel: int, writing: Writing, store: Storage
) -> tuple[float, float]:
    """The magnitude of one channel after writing."""
    units = [np.flatnonzero(part.matrix.weight[channel]).tolist() for part in parts]
    reads = {c for part, some in zip(parts, units, strict=True) for c in union_of(part.rows, some)}
    symbol = int(stream.symbols[channel])
    own = {symbol} if stream.fixed[channel] == 0 else set()
    if not reads | own <= set(writing.reads) | own or len(writing.reads) > 3:
        raise Undecided(f"channel {channel} ({writing.role}) reads channels {sorted(reads)}, not of {writing.reads}")
    least, most = np.inf, 0.0
    for signs in combinations(tuple(sorted(set(writing.reads) | own))):
        # A bit in which no two words differ has one sign.
        occurs = all(stream.fixed[c] in (0.0, s) or c == symbol for c, s in signs.items())
        if not occurs or not writing.allowed(signs):
            continue
        sign = stream.fixed[channel] or signs[symbol] * stream.turned[channel]
        ends = sorted((sign * stream.lo[channel], sign * stream.hi[channel]))
        branch = [_added(part, channel, some, signs, store) for part, some in zip(parts, units, strict=True)]
        low, high = branch[0] if len(branch) == 1 else _stored(branch, store)
        low, high = _stored([(ends[0], ends[1]), (low, high)], store)
        finite(f"channel {channel}", np.array([abs(low), abs(high)]), store.largest)
        wanted = writing.sign(signs)
        low, high = (low, high) if wanted > 0 else (-high, -low)
        if not low > 0:
            raise Undecided(
                f"channel {channel} ({writing.role}): between {low:.4g} and {high:.4g} times the function's sign"
            )
        least, most = min(least, low), max(most, high)
    return least, most


def _added(part: Branch, channel: int, units: Sequence[int], signs: Signs, store: Storage) -> tuple[float, float]:
    """What a branch adds to one channel: a sum, which is stored, times its weight or multiplier, which is stored."""
    a, b, total = 0.0, 0.0, 0.0
    for unit in units:
        weight = float(part.matrix.weight[channel, unit])
        ends = sorted(weight * value for value in part.rows.at(unit, signs))
        a, b, total = a + ends[0], b + ends[1], total + max(abs(ends[0]), abs(ends[1]))
    finite(part.matrix.name, np.array(total), store.largest)
    slack = float(rounding.dot(np.array(len(units)), np.array(total)))
    low, high = store.maybe(np.array([a - slack]), np.array([b + slack]))
    if part.share is not None:
        low, high = store.maybe(*in_float32(*interval_product((low, high), part.share)))
    if part.scale != 1:  # kept in float32, or rounded to the type
        exact, slack = float(np.float32(part.scale)), rounding.multiplier(part.scale)
        short = float(store.nearest(np.full(1, part.scale))[0])
        factors = np.array([min(exact - slack, short)]), np.array([max(exact + slack, short)])
        low, high = store.maybe(*in_float32(*interval_product((low, high), factors)))
    return float(low[0]), float(high[0])


def _stored(terms: Sequence[tuple[float, float]], store: Storage) -> tuple[float, float]:
    """A sum of a few numbers in float32, stored or not."""
    low, high = store.maybe(*in_float32(*(np.array([sum(ends)]) for ends in zip(*terms, strict=True))))
    return float(low[0]), float(high[0])
