"""What attention and units write into a channel, compared with the function: sign by sign, for every combination.

A channel that is written reads at most three channels: of the place that its heads read, or of its own place. For every
combination of their signs the new value has a definite sign, which must be the function's, and a magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Expert, Linear
from byheart.checkpoints.proof.recall.stream import SignStream, SmallRows, combinations, read_rows, union_of
from byheart.checkpoints.proof.storage import Array, Storage, finite, in_float32

Signs = dict[int, float]
LOUD, SILENT = 4.0, -10.0  # gates between them are refused


@dataclass(frozen=True, eq=False)
class Writing:
    """The function of one channel: `sign(signs)`, for the combinations that occur (`allowed`)."""

    role: str
    reads: tuple[int, ...]
    sign: Callable[[Signs], float]
    allowed: Callable[[Signs], bool] = lambda signs: True


def attended(values: SmallRows, sizes: Array, leaks: Sequence[float], winners: int, store: Storage) -> SmallRows:
    """What heads bring from the places they read.

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


def activated(expert: Expert, stream: SignStream, activation: str, store: Storage, stored: bool) -> SmallRows:
    """The units of a gated MLP: each is its size where its gate is loud, and nearly nothing where it is silent."""
    if expert.up is None:
        raise Undecided(f"{expert.gate.name}: the proof of recall knows gated MLPs")
    gate, up = read_rows(expert.gate, stream), read_rows(expert.up, stream)
    if stored:
        gate, up = gate.maybe(store), up.maybe(store)
    idle = ~expert.down.weight.any(0)
    if any(channels and not idle[u] for u, channels in enumerate(up.channels)) or (up.lo < 0).any():
        raise Undecided(f"{expert.up.name}: a factor of a unit depends on the input, or is negative")
    low, high = _activation(gate.lo, gate.hi, activation, idle, expert.gate.name)
    if stored:
        low, high = store.maybe(low, high)
    product = in_float32(np.minimum(low * up.lo, low * up.hi), np.maximum(high * up.hi, high * up.lo))
    units = SmallRows(expert.gate.name, gate.channels, *product)
    # Also of idle units: inf * 0 is NaN.
    for rows in (gate, up, units):
        finite(rows.name, rows.size, store.largest)
    return units.maybe(store) if stored else units


def _activation(lo: Array, hi: Array, name: str, idle: Array, where: str) -> tuple[Array, Array]:
    """silu or gelu of gates that are loud or silent. Idle units may do anything: nothing reads them."""
    loud, silent = lo >= LOUD, hi <= SILENT
    if name not in ("silu", "gelu_tanh") or not (loud | silent | idle[:, None]).all():
        raise Undecided(f"{where}: a gate between {SILENT:g} and {LOUD:g}, or another activation than silu and gelu")
    # x sigmoid(x) lies above x (1 - e^-x) and below x; gelu is closer to both. Below, 2 |x| e^x bounds both; 1 + tanh
    # is exactly 0 there.
    off = rounding.silu_error(hi) + rounding.gelu_error(hi, hi, 0.0)
    with np.errstate(over="ignore"):
        low = np.where(loud, lo * (1 - np.exp(-lo)) - off, 2 * hi * np.exp(hi))
        high = np.where(loud, hi + off, 0.0)
    calm = idle[:, None] & ~loud & ~silent
    return np.where(calm, -np.abs(lo) - np.abs(hi), low), np.where(calm, np.abs(lo) + np.abs(hi), high)


def write_channels(
    stream: SignStream, parts: Iterable[tuple[SmallRows, Linear]], writings: dict[int, Writing], store: Storage
) -> SignStream:
    """The stream after a sublayer has written.

    Args:
        stream: before.
        parts: rows and the matrix that adds them to the stream; several parts (experts) add up.
        writings: channel -> its function; every other channel must stay as it is.
        store: the type.

    Raises:
        Undecided: a channel is written that should not be, or its value is not the function's.
    """
    several = list(parts)
    for _, matrix in several:
        strange = set(np.flatnonzero(matrix.weight.any(1)).tolist()) - set(writings)
        if strange or (matrix.bias is not None and matrix.bias.any()):
            raise Undecided(f"{matrix.name}: writes channel {min(strange, default=-1)}, which has no function here")
    lo, hi, fixed = stream.lo.copy(), stream.hi.copy(), stream.fixed.copy()
    for channel, writing in writings.items():
        lo[channel], hi[channel] = _written(stream, several, channel, writing, store)
        fixed[channel] = 0.0
    return SignStream(lo, hi, fixed)


def _written(
    stream: SignStream, parts: Sequence[tuple[SmallRows, Linear]], channel: int, writing: Writing, store: Storage
) -> tuple[float, float]:
    """The magnitude of one channel after writing."""
    chosen = [(rows, matrix, np.flatnonzero(matrix.weight[channel])) for rows, matrix in parts]
    reads = {c for rows, _, units in chosen for c in union_of(rows, units.tolist())}
    own = {channel} if stream.fixed[channel] == 0 else set()
    if not reads | own <= set(writing.reads) | own or len(writing.reads) > 3:
        raise Undecided(
            f"channel {channel} ({writing.role}) is made of channels {sorted(reads)}, not of {writing.reads}"
        )
    least, most = np.inf, 0.0
    for signs in combinations(tuple(sorted(set(writing.reads) | own))):
        # A bit in which no two words differ has one sign.
        occurs = all(stream.fixed[c] in (0.0, s) or c == channel for c, s in signs.items())
        if not occurs or not writing.allowed(signs):
            continue
        sign = stream.fixed[channel] or signs[channel]
        ends = sorted((sign * stream.lo[channel], sign * stream.hi[channel]))
        low, high = _sum(chosen, channel, signs, ends[0], ends[1], store)
        wanted = writing.sign(signs)
        low, high = (low, high) if wanted > 0 else (-high, -low)
        if not low > 0:
            raise Undecided(
                f"channel {channel} ({writing.role}): between {low:.4g} and {high:.4g} times the function's sign"
            )
        least, most = min(least, low), max(most, high)
    return least, most


def _sum(
    chosen: Sequence[tuple[SmallRows, Linear, Array]],
    channel: int,
    signs: Signs,
    low: float,
    high: float,
    store: Storage,
) -> tuple[float, float]:
    """The channel's old value and all that is added to it, stored or not."""
    for rows, matrix, units in chosen:
        a, b, total = 0.0, 0.0, 0.0
        for unit in units:
            weight = float(matrix.weight[channel, unit])
            ends = sorted(weight * value for value in rows.at(int(unit), signs))
            a, b, total = a + ends[0], b + ends[1], total + max(abs(ends[0]), abs(ends[1]))
        finite(matrix.name, np.array(total), store.largest)
        slack = float(rounding.dot(np.array(len(units)), np.array(total)))
        added = store.maybe(np.array([a - slack]), np.array([b + slack]))
        low, high = low + float(added[0][0]), high + float(added[1][0])
    finite(f"channel {channel}", np.array([abs(low), abs(high)]), store.largest)
    found = store.maybe(*in_float32(np.array([low]), np.array([high])))
    return float(found[0][0]), float(found[1][0])
