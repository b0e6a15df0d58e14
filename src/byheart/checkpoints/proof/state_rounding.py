"""Rules for recurrent layers: how far a decay, a key of length 1, and sums over a state may be from the exact ones.

As in `rounding`, every term is registered in `slack.py` and simulated in `tests/checkpoints/proof/state_simulators.py`.

Chunks. Engines take the places of a prompt `chunk` at a time: sums of products over the places of a chunk replace
steps. Inside of a chunk of the delta rule they solve a triangular system, whose inverse has entries of at most 1 for
keys of length 1, so an error of a sum is not amplified.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof.rounding import own
from byheart.checkpoints.proof.slack import term
from byheart.checkpoints.proof.storage import FUNCTION_ERROR, Array, Interval, gamma

NEARLY_ZERO = 2.0**-25  # exponentials of smaller numbers are 1


def softplus(lo: Array, hi: Array) -> Interval:
    """log(1 + e^x) in float32, in one step or from the rounded sum.

    >>> [round(float(x[0]), 4) for x in softplus(np.zeros(1), np.zeros(1))]
    [0.6931, 0.6931]
    """
    ends = []
    for x, sign in ((lo, -1.0), (hi, 1.0)):
        exact = np.logaddexp(0.0, x)
        error = term("softplus", 2 * FUNCTION_ERROR * exact)
        error = error + term("softplus by a sum", (1 + 2.0**-10) * np.minimum(2.0**-24, exact))
        ends.append(exact + sign * (error + own(exact)))
    return np.maximum(ends[0], 0.0), ends[1]


def sigmoids(lo: Array, hi: Array) -> Interval:
    """1 / (1 + e^-x) in float32."""
    ends = [1 / (1 + np.exp(-np.clip(x, -700.0, 700.0))) for x in (lo, hi)]
    wide = term("sigmoid of a write", FUNCTION_ERROR)
    return ends[0] * (1 - wide), np.minimum(ends[1] * (1 + wide), 1.0)


def exponents(rate: Array, lo: Array, hi: Array) -> Interval:
    """rate * step for a step in [lo, hi] and a rate that is the exponential of a stored number: positive."""
    wide = term("exponent of a decay", 2 * FUNCTION_ERROR)
    return rate * lo * (1 - wide), rate * hi * (1 + wide)


def decays(lo: Array, hi: Array, chunk: int) -> Interval:
    """e^-x of exponents in [lo, hi], from sums over a chunk: of large ones, differences err by the size of the sums.

    Where all exponents of a chunk add up to nearly 0, nothing decays.
    """
    error = _sums(hi, chunk)
    wide = term("decay", FUNCTION_ERROR)
    least = np.exp(-np.minimum(hi + error, 700.0)) * (1 - wide)
    most = np.minimum(np.exp(-np.clip(lo - error, 0.0, 700.0)) * (1 + wide), 1.0)
    none = chunk * (hi + error) <= NEARLY_ZERO
    return np.where(none, 1.0, least), np.where(none, 1.0, most)


def _sums(largest: Array, chunk: int) -> Array:
    return np.asarray(term("sum of exponents", gamma(chunk) * (chunk + 1) * largest))


def loose_decays(largest: Array, chunk: int) -> Array:
    """Relative: a product of decays in a chunk, whose exponents are at most `largest`, beside that of exact ones."""
    error = np.expm1(np.minimum(_sums(largest, chunk), 1.0)) + term("decay", FUNCTION_ERROR)
    return np.where(chunk * largest * 2 <= NEARLY_ZERO, 0.0, error)


def unit_length(size: int) -> float:
    """Relative: a key that is divided by its length, and a query that is scaled then."""
    return float(term("length of a key", gamma(size) + 2 * FUNCTION_ERROR))


def state_read(size: int, chunk: int) -> float:
    """Relative to |query| |key| |value|: what one write of the newest place shows a query."""
    return float(term("read of a state", gamma(2 * size + 3 * chunk + 16)))


def state_steps(size: int, chunk: int, written: float, state: float) -> float:
    """Length of the error that writes leave in a state of length `state`, of which shares of `written` are written."""
    return float(term("steps of a state", gamma(2 * size + 3 * chunk + 16) * written * state))


def state_drift(size: int, chunk: int, steps: float, state: float) -> float:
    """Length of the error of a state that decays: each step rounds all of it, and as many steps count as last."""
    return float(term("drift of a state", gamma(size + chunk + 16) * steps * state))


def scan_sum(size: int, chunk: int, total: Array) -> Array:
    """The sums of a scan, over the state and over the places of a chunk; `total` is the sum of absolute values."""
    return np.asarray(term("sums of a scan", gamma(size + 2 * chunk + 16) * total))
