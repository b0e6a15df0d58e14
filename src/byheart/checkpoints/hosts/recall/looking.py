"""Scores by distance, at any context: heads that read one or two places back, whatever the tokens are.

As in `byheart.checkpoints.hosts.rotary`, a constant query and a constant key make a score a trigonometric polynomial of
the distance. Here the context has up to 131,072 positions, frequencies are scaled, and fast frequencies err: float32
rounds the angle of a far position. So the linear program minimizes the total size under rows of the form

    score(wanted) - score(other) - error >= nats,        error of a frequency = (relative + its angle's) * its size

and its rows are found by cutting planes: it starts with near distances and a sparse set of far ones, then adds those
that are violated most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.rotary import OWN_PLACE, duels, least_sum
from byheart.errors import ExportError

Floats = npt.NDArray[np.float64]
NATS = 20.0
RELATIVE_ERROR = 19 * 2.0**-8  # of a difference of two scores in bfloat16, by the checker's rules
ANGLE_ERROR = 6 * 2.0**-23  # times position and frequency: rounded angles of query and key, and the frequency's error
NEAR, SPARSE, ADDED, ROUNDS = 48, 96, 64, 24
BLOCK = 512


@dataclass(frozen=True, eq=False)
class DistanceWave:
    """Sizes in nats: the score at distance d is sum of cosine cos(theta d) + sine sin(theta d)."""

    cosine: Floats
    sine: Floats

    def scores(self, count: int, frequencies: Floats) -> Floats:
        """Return the score at the distances 0 to count - 1.

        exp(i theta (BLOCK a + b)) is a product of a factor for a and one for b, so all scores are one product of two
        small matrices.
        """
        blocks = np.exp(1j * np.outer(BLOCK * np.arange(-(-count // BLOCK)), frequencies))
        within = np.exp(1j * np.outer(np.arange(BLOCK), frequencies))
        found = (blocks * (self.cosine - 1j * self.sine)) @ within.T
        return np.asarray(found.real.ravel()[:count])


@lru_cache(maxsize=64)
def distance_wave(frequencies: tuple[float, ...], offset: int, distances: int, positions: int) -> DistanceWave:
    """Return the smallest wave that reads `offset` places back.

    Args:
        frequencies: of the rotated pairs.
        offset: the wanted distance; at the start of a sequence, where it does not exist, the farthest.
        distances: how many distances a query sees.
        positions: the context; angles of far positions are rounded.

    Raises:
        ExportError: no sizes leave NATS after the errors of bfloat16.
    """
    theta = np.array(frequencies)
    error = RELATIVE_ERROR + np.tile(ANGLE_ERROR * positions * theta, 4)
    sparse = {int(d) for d in np.geomspace(max(NEAR, 1), max(distances - 1, 1), SPARSE)}
    pairs = [p for p in duels(offset, min(distances - 1, NEAR))]
    pairs += [(offset, d) for d in sorted(sparse) if min(distances - 1, NEAR) < d < distances]
    for _ in range(ROUNDS):
        wanted, other = np.array(pairs, dtype=np.float64).T
        margin = _waves(wanted, theta) - _waves(other, theta)
        own = _waves(np.zeros(1), theta)
        rows = np.concatenate([np.concatenate([margin, -margin], 1) - error, np.concatenate([own, -own], 1) - 2.0**-8])
        sizes = least_sum(rows, np.array([NATS] * len(margin) + [-OWN_PLACE]))
        signed = sizes[: 2 * len(theta)] - sizes[2 * len(theta) :]
        wave = DistanceWave(signed[: len(theta)], signed[len(theta) :])
        score = wave.scores(distances, theta)
        short = NATS + float(error @ sizes) - (score[offset] - score)
        short[offset] = -np.inf
        worst = np.argsort(-short)[:ADDED]
        worst = worst[short[worst] > 1e-3]
        if not len(worst):
            return wave
        pairs += [(offset, int(d)) for d in worst]
    raise ExportError(f"the scores of a head that reads {offset} places back could not be designed")


def _waves(distances: Floats, theta: Floats) -> Floats:
    angle = np.outer(distances, theta)
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
