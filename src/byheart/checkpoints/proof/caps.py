"""Caps: cap * tanh(x / cap), of scores or of logits.

The map is monotone, so it maps the ends of an interval to ends. Engines divide, take tanh and multiply, and keep or
store each. A capped score's error is that of an interval, not of a difference: what two scores share is lost, since
the cap bends each by itself.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.storage import Interval, Storage, in_float32


def capped(x: Interval, cap: float, store: Storage) -> Interval:
    """cap * tanh(x / cap) of numbers in an interval.

    >>> from byheart.checkpoints.proof.storage import storage
    >>> lo, hi = capped((np.array([50.0]), np.array([60.0])), 50.0, storage("float32"))
    >>> 38.07 < float(lo[0]) < 50 * np.tanh(1.0) < 50 * np.tanh(1.2) < float(hi[0]) < 41.69
    True
    """
    lo, hi = store.maybe(*in_float32(x[0] / cap, x[1] / cap))
    bent = np.tanh(lo), np.tanh(hi)
    wide = [rounding.tanh_error() * np.abs(end) for end in bent]
    low, high = store.maybe(np.maximum(bent[0] - wide[0], -1.0), np.minimum(bent[1] + wide[1], 1.0))
    return store.maybe(cap * np.maximum(low, -1.0), cap * np.minimum(high, 1.0))
