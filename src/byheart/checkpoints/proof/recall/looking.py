"""Heads that read a fixed distance: queries and keys do not depend on the input, only rotation decides.

The score at distance d is s(d) = scale Re sum_f Q_f conj(K_f) exp(i theta_f d) plus errors, as in `proof.copying`. Here
frequencies may be scaled and the context may have 131,072 positions, so distances are scored in blocks, and the angle's
rounding is bounded by the length of the turned vector: turning by an angle that is off by e moves a vector of length r
by at most e r.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.config import Shape
from byheart.checkpoints.proof.storage import Array, Storage

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
        q: bounds of the query's dimensions, the same for every input.
        k: bounds of the key's.
        shape: with rotary positions on all dimensions.
        distances: how many distances a query sees.
        store: the type.

    Returns:
        The distance with the greatest score; `leak` is at least 1 where others come close.
    """
    assert shape.rotary is not None
    theta, half = shape.rotary.frequencies, shape.rotary.dims // 2
    scale = shape.head_dim**-0.5 * shape.rotary.gain**2
    wave_q, size_q, error_q = _turned(q, theta, half, shape, store)
    wave_k, size_k, error_k = _turned(k, theta, half, shape, store)
    wave, stores = wave_q * np.conj(wave_k), rounding.score_stores(shape.head_dim**-0.5, store)
    common = error_q + stores[1] * size_q
    total = float(size_q @ size_k)
    sums = 2 * rounding.score_sum(shape.head_dim, total)

    doubtful = theta * shape.rotary.uncertainties
    waves = _waves(tuple(theta.tolist()), distances)

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
            # |1 - exp(i a)|^2 = 2 - 2 cos a; the root of the checker's own rounding is below 2^-24.
            turned = (waves[block] * np.exp(-1j * theta * wanted)).real[: len(kept)][kept]
            chord = np.sqrt(np.maximum(2 - 2 * turned, 0.0)) + 2.0**-24
            error = (chord * size_k + 2 * error_k) @ common + 2 * (size_q @ error_k) + sums
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
    starts = range(0, distances, BLOCK)
    return [np.exp(1j * np.outer(np.arange(a, min(a + BLOCK, distances)), theta)) for a in starts]


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
