"""How large byheart's own memories are expected to become. Estimates, checked against builds, not theorems.

>>> abs(compact_estimate(10**4, 2) - 1279) < 100, abs(native_estimate(10**5, 2) - 17319) < 2500
(True, True)
"""

from __future__ import annotations

from math import ceil, floor, log, log2, sqrt

_WINDOW = 20  # bits of a section that are found by search and not by solving
_WARM_UP = 30  # hash steps before bits are used
_BUCKETS = 16  # buckets that one selector block tells apart
_WORD = 44  # longest word that float64 scans exactly


def compact_estimate(entries: int, classes: int) -> int:
    """Dense parameters of the one-number stream: 3m + 1 + 4(Q − c − 1), Q ≈ cK + guard bits + key bits − log2 m.

    m groups of n ids; a section of K ≈ ℓ(n − τ) + τ bits answers one label bit of n ids, ℓ the smallest window with
    n ≤ 2^ℓ·ℓ·ln 2. The best n is near √(3N/(4cℓ)).
    """
    c = max(1, ceil(log2(max(classes, 2))))
    best = None
    for window in range(1, 60):
        largest = 2**window * window * log(2)
        per_group = max(1.0, min(sqrt(3 * entries / (4 * c * window)), largest, float(entries)))
        groups = ceil(entries / per_group)
        section = max(window * (per_group - _WINDOW), 0) + min(_WINDOW, per_group)
        guard = log2(section * 2 ** (c + 1)) + 2
        bits = c * section + guard + max(2 * log2(entries + 1) + 4 - log2(groups), 1)
        dense = ceil(3 * groups + 1 + 4 * bits)
        best = dense if best is None else min(best, dense)
    return best or 1


def compact_transformer_estimate(contexts: int, classes: int) -> int:
    """The whole one-number Transformer: folds that number the contexts, attention, the memory, E_in and E_out."""
    levels = 2 * log2(contexts + 1) + 6
    return compact_estimate(contexts, classes) + ceil(4 * levels) + 6


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
