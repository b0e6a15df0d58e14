"""Which distance a head reads: its softmax is one-hot, up to a proved leak, whatever the input is.

*Rotary heads.* When q and k do not depend on the input, the score at distance d is

    s(d) = scale * Re sum_f Q_f conj(K_f) exp(i theta_f d),      Q_f = q_f + i q_{f + F/2}

plus errors. Errors of the rotated query are common to all keys, so in s(o) - s(d) they meet only the difference of two
rotated keys, of length |K_f| |1 - exp(i theta_f (o - d))|; errors of keys are independent (`rounding.rotation_error`).

*Heads over learned positions.* q and k are tabulated by position, so all pairs are scored.

Every distance that a query can see is compared, also at the start of a sequence, where a head with offset o reads
position 0 from all t < o, or, if it `stays`, its own position t.

*Sinks.* A sink is one more place, whose score is a number and whose value is 0. It adds exp(sink - s) to the leak, for
the least score s of a place that is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.bounds import POSITION, Bounds, magnitude
from byheart.checkpoints.proof.config import Rotary, Shape
from byheart.checkpoints.proof.storage import Array, Storage

LARGEST_LEAK = 2.0**-4
POSITION_BLOCK = 256
FARTHEST = 4096  # the farthest offset of a head that shows the first place where nothing is so far back


@dataclass(frozen=True)
class Copy:
    """A head that reads position t - offset, and where there is none 0, or, if it `stays`, t: `gap` nats before any
    other, `leak` of the weight elsewhere."""

    offset: int
    gap: float
    leak: float
    stays: bool = False


@dataclass(frozen=True)
class Reach:
    """The inputs that are quantified over: lengths up to `length`; tokens of `once` are at position 0 or absent."""

    length: int
    once: frozenset[int] = frozenset()


def tabulated(field: Bounds) -> tuple[Array, Array]:
    """All values of a field that depends on one symbol, or on none: one row per symbol."""
    symbols = len(field.parts[0].lo) if field.parts else 1
    lo, hi = np.tile(field.lo, (symbols, 1)), np.tile(field.hi, (symbols, 1))
    for part in field.parts:
        lo[:, part.channels] += part.lo
        hi[:, part.channels] += part.hi
    return lo, hi


@dataclass(frozen=True)
class HeadScores:
    """What a head's scores have beside queries and keys: a sink, and the error of engines that absorb a projection."""

    sink: float | None = None
    absorbed: float = 0.0

    def shifted(self, spread: Array, store: Storage) -> Array:
        """The error of scores `spread` below the largest one, which engines with sinks subtract."""
        return np.asarray(spread * 0.0 if self.sink is None else rounding.shifted_score(np.abs(spread), store))


PLAIN = HeadScores()


def one_hot(
    q: Bounds, k: Bounds, shape: Shape, reach: Reach, store: Storage, beside: HeadScores = PLAIN
) -> Copy | None:
    """The distance that this head reads, proved; None if it does not read one distance whatever the input is."""
    if shape.rotary is None and not any(p.key[0] == POSITION for p in (*q.parts, *k.parts)):
        return None  # neither rotated nor a function of the position: no distance can win
    if shape.rotary is not None:
        return _rotary_copy(folded(q), folded(k), shape.rotary, shape, reach, store, beside)
    if beside != PLAIN:
        return None  # no architecture has learned positions and sinks
    return _position_copy(folded(q, POSITION), folded(k, POSITION), shape, reach, store)


def folded(field: Bounds, kept: int | None = None) -> Bounds:
    """All parts but those of one signal replaced by their hull: a query or key that should not depend on the input."""
    return field.without({p.key[0] for p in field.parts} - {kept})


def rotated_error(first: Array, second: Array, length: int, theta: Array, store: Storage) -> Array:
    """Length of the error of a pair that is rotated to a position below `length`."""
    turned = rounding.rotation_error(first, second, store)
    return np.asarray(turned + rounding.angle_error(length, theta, np.hypot(first, second)))


def _rotary_copy(
    q: Bounds, k: Bounds, rotary: Rotary, shape: Shape, reach: Reach, store: Storage, beside: HeadScores
) -> Copy | None:
    half = rotary.dims // 2
    theta = rotary.frequencies
    scale = shape.scale
    longest = reach.length if shape.window is None else min(reach.length, shape.window)

    def pairs(f: Bounds) -> tuple[Array, Array, Array]:
        middle, radius = (f.lo + f.hi) / 2, (f.hi - f.lo) / 2
        size = magnitude(f.lo, f.hi)
        turned = rotated_error(size[:half], size[half : 2 * half], reach.length, theta, store)
        wave = middle[:half] + 1j * middle[half : 2 * half]
        return (
            wave,
            np.hypot(radius[:half], radius[half : 2 * half]) + turned,
            np.hypot(size[:half], size[half : 2 * half]),
        )

    wave_q, error_q, size_q = pairs(q)
    wave_k, error_k, size_k = pairs(k)
    distance = np.arange(longest)
    wave = wave_q * np.conj(wave_k)
    angle = np.outer(distance, theta)
    score = scale * (np.cos(angle) @ wave.real - np.sin(angle) @ wave.imag)  # (D,), the same for every input
    rest = slice(2 * half, None)  # dimensions that are not rotated add the same to every score, up to their slack
    plain_q, plain_k = magnitude(q.lo[rest], q.hi[rest]), magnitude(k.lo[rest], k.hi[rest])
    plain = plain_q @ (k.hi[rest] - k.lo[rest])
    total = size_q @ size_k + plain_q @ plain_k
    stores, scaling = rounding.score_stores(scale, store)
    sums = 2 * rounding.score_sum(shape.head_dim, total) + plain * (1 + scaling) + 2 * beside.absorbed
    common = error_q + scaling * size_q

    def gaps(wanted: int, others: Array) -> Array:
        chord = 2 * np.abs(np.sin(np.outer(others - wanted, theta) / 2))  # (others, F)
        error = (chord * size_k + 2 * error_k) @ common + 2 * (size_q @ error_k)
        error = (
            error + sums + rounding.frequency_error((others + wanted) * rotary.uncertainty, theta @ (size_q * size_k))
        )
        error = scale * error + rounding.own(1 + scale * total)
        # `score` is of the rotated dimensions alone; what is stored is the whole score.
        whole = abs(score[wanted]) + np.abs(score[others]) + 2 * scale * float(plain_q @ plain_k)
        error = error + stores * (whole + 2 * error)
        error = error + 2 * rounding.score_underflow(store)
        gap = score[wanted] - score[others] - error
        return np.asarray(gap - beside.shifted(np.maximum(gap, 0.0), store))

    def margin(wanted: int) -> float:
        """By how much the wanted place leads the sink."""
        if beside.sink is None:
            return math.inf
        ends = (x[rest] * y[rest] for x in (q.lo, q.hi) for y in (k.lo, k.hi))
        own = score[wanted] + scale * float(np.minimum.reduce(list(ends)).sum())
        error = common @ (size_k + error_k) + size_q @ error_k + sums
        error = scale * (error + rounding.frequency_error(wanted * rotary.uncertainty, theta @ (size_q * size_k)))
        error = error + rounding.own(1 + scale * total)
        error = error + stores * (abs(own) + error) + rounding.score_underflow(store)
        gap = float(own - error) - beside.sink
        return gap - float(beside.shifted(np.array(max(gap, 0.0)), store))

    return best_copy(score, gaps, margin)


def best_copy(score: Array, gaps: Callable[[int, Array], Array], margin: Callable[[int], float]) -> Copy | None:
    """The copy that scores by distance make: at the start of a sequence each query sees its first few distances."""
    offset = int(np.argmax(score))
    # While the offset is out of sight: the farthest distance wins for every query, or distance 0 does. In the latter
    # case the last such query sees all the distances that the others see.
    stays = offset > 1 and int(np.argmax(score[:offset])) == 0
    if offset > FARTHEST and not stays:
        return None
    first = [offset, *((0,) if stays else range(offset))]  # at distance 0 alone, a sink is the only rival
    least, leak = np.inf, 0.0
    # One wanted distance at a time: all of them together would need memory quadratic in the offset.
    for number, wanted in enumerate(first):
        others = np.delete(np.arange(len(score)), offset) if not number else np.arange(offset if stays else wanted)
        others = others[others != wanted]
        found = gaps(wanted, others) if len(others) else np.zeros(0)
        before = margin(wanted)
        least = min(least, before, float(found.min(initial=np.inf)))
        with np.errstate(over="ignore"):
            leak = max(leak, rounding.spilled(float(np.exp(-found).sum() + np.exp(-before))))
        if not leak <= LARGEST_LEAK:
            return None
    return Copy(offset, least, leak, stays)


def _position_copy(q: Bounds, k: Bounds, shape: Shape, reach: Reach, store: Storage) -> Copy | None:
    """All pairs of positions, a block of queries at a time. The query's slack meets the difference of two keys, and
    all slacks are taken by their lengths (Cauchy and Schwarz), so that two matrix products per block suffice."""
    q_lo, q_hi = _by_position(q, reach.length)
    k_lo, k_hi = _by_position(k, reach.length)
    q_mid, k_mid = (q_lo + q_hi) / 2, (k_lo + k_hi) / 2
    q_rad, k_rad = (np.linalg.norm((hi - lo) / 2, axis=1) for lo, hi in ((q_lo, q_hi), (k_lo, k_hi)))
    q_len, k_len = np.linalg.norm(q_mid, axis=1), np.linalg.norm(k_mid, axis=1)
    scale, t = shape.scale, np.arange(reach.length)
    offset = int(t[-1] - (q_mid[-1] @ k_mid.T).argmax())
    blind = offset - 1  # the last query that does not see so far back
    stays = offset > 1 and int((q_mid[blind] @ k_mid[:offset].T).argmax()) == blind
    wanted = np.where(t >= offset, t - offset, t if stays else 0)
    stores, scaling = rounding.score_stores(scale, store)
    common = q_rad + scaling * (q_len + q_rad)
    key_most, rad_most = float((k_len + k_rad).max()), float(k_rad.max())
    sums = rounding.score_sum(shape.head_dim, (q_len + q_rad) * key_most)
    fixed = scale * (2 * (q_len + q_rad) * rad_most + 2 * sums) + rounding.own(1 + scale * (q_len + q_rad) * key_most)
    fixed = fixed + 2 * rounding.score_underflow(store)
    single = rounding.single_precision(shape.head_dim)  # in which the matrices are computed
    fixed = fixed + single * (scale * (q_len + q_rad) * key_most * 4 + 4 * scale * common * key_most)
    fixed = fixed + scale * common * math.sqrt(8 * single) * key_most  # of the root, where two keys are alike
    keys, queries = k_mid.astype(np.float32), (scale * q_mid).astype(np.float32)
    long = (k_len**2).astype(np.float32)
    least, leak = np.inf, 0.0
    for first in range(0, reach.length, POSITION_BLOCK):
        rows = t[first : first + POSITION_BLOCK]
        seen = keys[: rows[-1] + 1]
        score, chord = queries[rows] @ seen.T, keys[wanted[rows]] @ seen.T
        chord *= -2
        chord += long[wanted[rows], None] + long[None, : rows[-1] + 1]
        np.sqrt(np.maximum(chord, 0.0, out=chord), out=chord)
        chord *= ((1 + 2 * stores) * scale * common[rows]).astype(np.float32)[:, None]
        best = score[np.arange(len(rows)), wanted[rows]].astype(np.float64)
        # score_wanted - score - error - stores (|score_wanted| + |score| + 2 error), for all keys that the query sees
        chord += score
        chord += np.float32(stores) * np.abs(score)
        ahead = best - stores * np.abs(best) - (1 + 2 * stores) * fixed[rows]
        gap = np.subtract(ahead.astype(np.float32)[:, None], chord, out=chord)
        gap[(t[None, : rows[-1] + 1] > rows[:, None]) | (t[None, : rows[-1] + 1] == wanted[rows, None])] = np.inf
        least = min(least, float(gap.min()))
        with np.errstate(over="ignore"):
            spilt = np.exp(np.negative(gap, out=gap), out=gap).sum(1, dtype=np.float64).max()
        leak = max(leak, rounding.spilled(float(spilt) * (1 + 2.0**-10) + 1e-30))
        if not leak <= LARGEST_LEAK:
            return None
    return Copy(offset, least, leak, stays)


def _by_position(field: Bounds, length: int) -> tuple[Array, Array]:
    lo, hi = tabulated(field)
    return (lo[:length], hi[:length]) if len(lo) > 1 else (np.tile(lo, (length, 1)), np.tile(hi, (length, 1)))
