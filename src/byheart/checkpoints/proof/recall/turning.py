"""Which two dimensions of a head turn together, and how fast. Dimensions that are not rotated are pairs that are
still.

The score of a pair at distance d is Re Q conj(K) exp(i theta d), with the first dimension as real half; theta = 0 gives
the plain product. So heads with a rotary share, and heads without rotation, have the rules of rotated ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.storage import Array


@dataclass(frozen=True, eq=False)
class HeadPairs:
    """Pairs of dimensions, the rotated ones first: (first[f], second[f]) turns by theta[f] per place."""

    first: Array
    second: Array
    theta: Array
    uncertainties: Array  # how many times the error of a plain frequency each one has
    rotated: int  # pairs that turn
    gain: float  # of cosines and sines

    def largest(self, query: Array, key: Array) -> float:
        """The largest score before its scale, for the largest magnitudes of a query's and a key's dimensions."""
        sizes = (np.hypot(x[self.first], x[self.second]) for x in (query, key))
        return float(self.gain**2 * np.prod(list(sizes), axis=0).sum())

    def dimensions(self, pair: int) -> tuple[int, int]:
        return int(self.first[pair]), int(self.second[pair])


def head_pairs(shape: Shape) -> HeadPairs:
    """The pairs of one layer's heads.

    Raises:
        Undecided: an odd number of dimensions is left, or some of them have a gain and others do not.
    """
    rotary = shape.rotary
    dims = 0 if rotary is None else rotary.dims
    rest = np.arange(dims, shape.head_dim)
    gain = 1.0 if rotary is None else rotary.gain
    if len(rest) % 2 or (len(rest) and gain != 1):
        raise Undecided(f"{shape.family}: {len(rest)} of {shape.head_dim} dimensions are not rotated; gain {gain:g}")
    half, still = np.arange(dims // 2), np.zeros(len(rest) // 2)
    theta, doubt = (still, still) if rotary is None else (
        np.concatenate([rotary.frequencies, still]), np.concatenate([rotary.uncertainties, still]))  # fmt: skip
    first, second = np.concatenate([half, rest[0::2]]), np.concatenate([half + dims // 2, rest[1::2]])
    return HeadPairs(first, second, theta, doubt, dims // 2, gain)
