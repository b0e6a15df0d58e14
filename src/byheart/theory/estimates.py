"""How large byheart's own memories are expected to become. Estimates, checked against builds, not theorems.

>>> abs(compact_estimate(10**4, 2) - 527) < 20, abs(native_estimate(10**5, 2) - 17319) < 2500
(True, True)
"""

from __future__ import annotations

from math import ceil, floor, log2, sqrt

_WARM_UP = 30  # hash steps before bits are used
_BUCKETS = 16  # buckets that one selector block tells apart
_WORD = 44  # longest word that float64 scans exactly


def compact_estimate(entries: int, classes: int) -> int:
    """Dense parameters of the label memory: the smaller of traps and walk, at the rates of a beam of 80 and 200.

    m groups and L folds cost 3m + 4L; a group of n ids needs n·log2 C = rate·L. The walk folds the length of ids too.
    """
    bits = log2(max(classes, 2))
    groups = sqrt(4 / 3 * entries * bits / 1.65)
    traps = 2 * sqrt(12 * entries * bits / (1.72 - 0.1 * (bits - 1))) + 5 + 5 * (classes if classes > 2 else 0)
    tail = max(2.0, 2 * log2(entries + 1) + 4 - log2(groups + 1))
    width = log2(entries / groups + 2)
    reading = min(2.0 * classes, 4 * (bits + width + 3) + 2)
    walk = 2 * sqrt(12 * entries * (bits + 0.1) / 1.64) + 2 * tail + 4 * width + reading
    return ceil(min(traps, walk) if classes <= 16 else walk)


def compact_transformer_estimate(contexts: int, classes: int) -> int:
    """The whole one-number Transformer: some folds that hash tokens, attention, the memory, E_in and E_out."""
    return compact_estimate(contexts, classes) + ceil(2 * log2(contexts + 1)) + 6


def native_estimate(entries: int, classes: int) -> int:
    """Dense parameters of the float64-native memory: hash chain, selector of 2^g buckets, a scan of Z words.

    A bucket must hold its mean load and about three deviations in Z words of at most 44 levels.
    """
    c = max(1, ceil(log2(max(classes, 2))))
    best = None
    for g in range(max(1, ceil(log2(entries + 1))) + 1):
        mean = entries / 2**g
        load = mean + 3.1 * sqrt(mean)
        words = max(1, ceil(load / (_WORD - 1)))
        levels = floor(load / words) + 2
        stream = 2 + c * words
        chain = (_WARM_UP + g) * (4 * stream + 2 + stream)
        selector = ceil(2**g / _BUCKETS) * (2 * stream * (_BUCKETS + 1) + _BUCKETS + 1 + stream)
        scan = words * levels * ((2 + c) * (2 * stream + 1) + stream)
        dense = chain + selector + scan
        best = dense if best is None else min(best, dense)
    return best or 1
