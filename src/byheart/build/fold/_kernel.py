"""Parts of the compiled beam searches: long values, and the choice of the best children.

A candidate is a line v = s·x + u over the keys of one group. One step appends a digit to s and one to u,

    v  <-  2v ± x ± W,            W = 2^42, |x| <= W,

and sends every key through one fold. All digits to come move v by less than h = |x| + W, so a key farther than h from
every threshold is decided for good. A step scores the four children of every candidate by a table (logarithms of the
chance that a key near v ends with its label), keeps the best and carries them out. The cost per step is one lookup
per child and key, so a group of n keys with L steps and a beam of M costs 4·L·M·n lookups.

Values have a leading word and, for ids longer than a word, fractions of 44 bits below it (`limbs`): scores look at the
leading word only, and only children that live on are computed in full.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from byheart.exact.compiled import compiled

# Bits of the leading word: sums of some of them fit 64 bits.
WIDTH_BITS = 42
W = np.int64(1 << WIDTH_BITS)
LIMB_BITS = np.int64(44)
LIMB_MASK = np.int64((1 << 44) - 1)


@compiled
def best(scores: Any, order: Any, count: int, wanted: int) -> int:  # pragma: no cover - compiled
    """Put the indices of the `wanted` best of `count` scores first in `order`; returns their number."""
    for i in range(count):
        order[i] = i
    if count <= wanted:
        return count
    a, b = 0, count - 1
    while a < b:
        pivot = scores[order[(a + b) >> 1]]
        i, j = a, b
        while i <= j:
            while scores[order[i]] > pivot:
                i += 1
            while scores[order[j]] < pivot:
                j -= 1
            if i <= j:
                t = order[i]
                order[i] = order[j]
                order[j] = t
                i += 1
                j -= 1
        if wanted - 1 <= j:
            b = j
        elif wanted - 1 >= i:
            a = i
        else:
            break
    return wanted


@compiled
def first_part(value: Any, delta: Any, i: int, slope: int) -> int:  # pragma: no cover - compiled
    """Return fractions of slope·x, and the carry into the leading word."""
    carry = 0
    for k in range(delta.shape[0] - 1, 0, -1):
        t = slope * delta[k, i] + carry
        value[k, i] = t & LIMB_MASK
        carry = t >> LIMB_BITS
    return carry


@compiled
def next_part(
    old: Any, new: Any, delta: Any, i: int, left: Any, key: int, twice: Any, digit: int
) -> int:  # pragma: no cover - compiled
    """Return fractions of twice·old + digit·x, and the carry into the leading word."""
    carry = 0
    for k in range(delta.shape[0] - 1, 0, -1):
        t = twice * old[k, i] + digit * delta[k, key] + carry
        new[k, left] = t & LIMB_MASK
        carry = t >> LIMB_BITS
    return carry


@compiled
def negate_part(value: Any, place: Any) -> int:  # pragma: no cover - compiled
    """Negate the fractions at an index; returns the carry into the leading word."""
    carry = 0
    for k in range(value.shape[0] - 1, 0, -1):
        t = carry - value[k, place]
        value[k, place] = t & LIMB_MASK
        carry = t >> LIMB_BITS
    return carry
