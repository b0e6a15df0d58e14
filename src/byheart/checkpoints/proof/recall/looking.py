"""Heads that read a fixed distance: rotation decides, or learned positions; the input's tokens do not.

The score at distance d is s(d) = scale Re sum_f Q_f conj(K_f) exp(i theta_f d) plus errors, as in `proof.copying`. Here
frequencies may be scaled and the context may have 131,072 positions, so distances are scored in blocks, and the angle's
rounding is bounded by the length of the turned vector: turning by an angle that is off by e moves a vector of length r
by at most e r.

Learned positions make queries and keys functions of the position: the scores of all pairs of places are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.attention import check_masked_row
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.recall.stream import SmallRows
from byheart.checkpoints.proof.storage import Array, Interval, Storage

BLOCK = 8192


@dataclass(frozen=True)
class FixedDistance:
    """The distance that a head reads, its least gap in nats, and the weight of all other places together."""

    offset: int
    gap: float
    leak: float


def read_distance(
    q: tuple[Array, Array], k: tuple[Array, Array], shape: Shape, distances: int, store: Storage
) -> FixedDistance:
    """The distance that a head reads.

    Args:
        q: bounds of the query's rotated dimensions, the same for every input.
        k: bounds of the key's.
        shape: with rotary positions.
        distances: how many distances a query sees.
        store: the type.

    Returns:
        The distance with the greatest score; `leak` is at least 1 where others come close.
    """
    assert shape.rotary is not None
    theta, half = shape.rotary.frequencies, shape.rotary.dims // 2
    scale = shape.scale * shape.rotary.gain**2
    wave_q, size_q, error_q = _turned(q, theta, half, shape, store)
    wave_k, size_k, error_k = _turned(k, theta, half, shape, store)
    wave, stores = wave_q * np.conj(wave_k), rounding.score_stores(shape.scale, store)
    common = error_q + stores[1] * size_q
    total = float(size_q @ size_k)
    sums = 2 * rounding.score_sum(shape.head_dim, total)

    doubtful = theta * shape.rotary.uncertainties
    key = tuple(theta.tolist())
    waves = _waves(key, distances)

    def scores(block: int) -> Array:
        return np.asarray(scale * (waves[block].real @ wave.real - waves[block].imag @ wave.imag))

    near = scores(0)
    offset = int(near.argmax())
    least, leak = np.inf, 0.0
    for wanted in range(offset, 0, -1) if offset else (0,):  # at the start the farthest place is wanted
        best, spilt = float(near[wanted]), 0.0
        seen = distances if wanted == offset else wanted
        for block in range(-(-seen // BLOCK)):
            others = np.arange(block * BLOCK, min((block + 1) * BLOCK, seen))
            kept = others != wanted
            others, score = others[kept], scores(block)[: len(kept)][kept]
            chord = _chords(key, distances, wanted)[block] if wanted == offset else _chord(waves[block], theta, wanted)
            error = chord[: len(kept)][kept] @ (size_k * common) + 2 * (error_k @ common + size_q @ error_k) + sums
            error = error + rounding.frequency_error(others + wanted, doubtful @ (size_q * size_k))
            error = scale * error + rounding.own(1 + scale * total)
            error = error + stores[0] * (abs(best) + np.abs(score) + 2 * error)
            error = error + 2 * rounding.score_underflow(store)
            gap = best - score - error
            least = min(least, float(gap.min(initial=np.inf)))
            spilt += float(np.exp(-np.clip(gap, -50, 700)).sum())
        leak = max(leak, rounding.spilled(spilt))
    return FixedDistance(offset, least, leak)


@lru_cache(maxsize=2)
def _waves(theta: tuple[float, ...], distances: int) -> list[Array]:
    """exp(i theta d) for all distances, in blocks; heads, layers and types share them."""
    within = np.exp(1j * np.outer(np.arange(BLOCK), theta))
    starts = range(0, distances, BLOCK)
    return [within[: distances - a] * np.exp(1j * a * np.array(theta)) for a in starts]


@lru_cache(maxsize=2)
def _chords(theta: tuple[float, ...], distances: int, wanted: int) -> list[Array]:
    """`_chord` of all distances, in blocks."""
    return [_chord(wave, np.array(theta), wanted) for wave in _waves(theta, distances)]


def _chord(wave: Array, theta: Array, wanted: int) -> Array:
    """How far apart a vector of length 1 lies when it is turned by one distance, and by `wanted`.

    |1 - exp(i a)|^2 = 2 - 2 cos a; the root of the checker's own rounding, and the step of float32, are below 2^-23.
    """
    turned = (wave * np.exp(-1j * theta * wanted)).real
    return np.asarray(np.sqrt(np.maximum(2 - 2 * turned, 0.0)) + 2.0**-22, dtype=np.float32)


def _turned(
    bounds: tuple[Array, Array], theta: Array, half: int, shape: Shape, store: Storage
) -> tuple[Array, Array, Array]:
    """Middle as complex numbers, largest length, and error of every rotated pair."""
    lo, hi = bounds
    middle, radius, size = (lo + hi) / 2, (hi - lo) / 2, np.maximum(np.abs(lo), np.abs(hi))
    length = np.hypot(size[:half], size[half:])
    turned = rounding.rotation_error(size[:half], size[half:], store) + rounding.angle_error(
        shape.positions, theta, length
    )
    return middle[:half] + 1j * middle[half:], length, np.hypot(radius[:half], radius[half:]) + turned


def read_places(q: SmallRows, k: SmallRows, places: Array, shape: Shape, store: Storage) -> FixedDistance:
    """The distance that a head reads by learned positions.

    Args:
        q: the query's dimensions, which read channels of the position.
        k: the key's.
        places: (positions, hidden): the sign of every channel that depends on the position, 0 elsewhere.
        shape: without rotary positions.
        store: the type.

    Returns:
        The distance that the last position reads; `leak` is at least 1 where another one reads elsewhere.
    """
    query, key = (_at_places(rows, places) for rows in (q, k))
    (middle_q, radius_q), (middle_k, radius_k) = (((a + b) / 2, (b - a) / 2) for a, b in (query, key))
    score = middle_q @ middle_k.T
    stores, scaling = rounding.score_stores(shape.scale, store)
    total = (np.abs(middle_q) + radius_q) @ (np.abs(middle_k) + radius_k).T
    error = radius_q @ np.abs(middle_k).T + np.abs(middle_q) @ radius_k.T + radius_q @ radius_k.T
    error = error + scaling * total + rounding.score_sum(shape.head_dim, total)
    score, error = shape.scale * score, shape.scale * error + rounding.own(1 + shape.scale * total)
    error = error + stores * (np.abs(score) + error) + rounding.score_underflow(store)
    check_masked_row(q.name, float((score - error).diagonal().min()), 0.0, store)
    count = len(places)
    offset = count - 1 - int(score[-1].argmax())
    at = np.arange(count)
    wanted = np.maximum(at - offset, 0)
    gaps = (score - error)[at, wanted][:, None] - (score + error)
    gaps[(at[None] > at[:, None]) | (at[None] == wanted[:, None])] = np.inf
    spilt = np.exp(-np.clip(gaps, -50, np.inf)).sum(1).max()
    return FixedDistance(offset, float(gaps.min(initial=np.inf)), rounding.spilled(float(spilt)))


def _at_places(rows: SmallRows, places: Array) -> Interval:
    """(positions, dimensions): the values of rows whose channels depend on the position alone."""
    low, high = (np.empty((len(places), len(rows.lo))) for _ in range(2))
    for row, channels in enumerate(rows.channels):
        if not places[:, list(channels)].all():
            raise Undecided(f"{rows.name}: a head that reads a fixed distance has a dimension that reads the input")
        number = (places[:, list(channels)] < 0) @ (1 << np.arange(len(channels)))
        low[:, row], high[:, row] = rows.lo[row, number], rows.hi[row, number]
    return low, high
