"""Bit-packed elimination over GF(2): which combinations of payload digits change which keys' parities."""

from __future__ import annotations

import numpy as np

from byheart.build.fold._kernel import kernel
from byheart.build.fold._words import ONE, ZERO, Ints, Words, parity


@kernel
def place_fields(sizes: Ints, count: int, field_word: Ints, field_bit: Ints) -> int:
    """Gives every window a field of g - 1 bits that does not cross a word; returns the number of words."""
    word = 0
    bit = 0
    for k in range(count):
        if bit + sizes[k] - 1 > 64:
            word += 1
            bit = 0
        field_word[k] = word
        field_bit[k] = bit
        bit += sizes[k] - 1
    return word + 1


@kernel
def reduce_columns(
    digits: Ints,
    sizes: Ints,
    count: int,
    n: int,
    field_word: Ints,
    field_bit: Ints,
    fields: int,
    vectors: Words,
    mixes: Words,
    pivots: Ints,
) -> int:
    """Reduced basis of the columns v_u = parity(d + u) xor parity(d), u = 1..g-1, of every window.

    Basis vector r has a one at key `pivots[r]`, where all the others have a zero; `mixes[r]` is the set of columns
    (bits of the windows' fields) that it is the sum of. Returns the rank.
    """
    words = (n + 63) // 64
    vector = np.zeros(words, np.uint64)
    mix = np.zeros(fields, np.uint64)
    rank = 0
    for k in range(count):
        for u in range(1, sizes[k]):
            for j in range(words):
                vector[j] = ZERO
            for j in range(fields):
                mix[j] = ZERO
            mix[field_word[k]] = ONE << np.uint64(field_bit[k] + u - 1)
            for i in range(n):
                d = digits[k, i]
                if parity(d ^ (d + u)):
                    vector[i >> 6] |= ONE << np.uint64(i & 63)
            for r in range(rank):
                p = pivots[r]
                if (vector[p >> 6] >> np.uint64(p & 63)) & ONE:
                    for j in range(words):
                        vector[j] ^= vectors[r, j]
                    for j in range(fields):
                        mix[j] ^= mixes[r, j]
            p = _lowest(vector, words)
            if p < 0:
                continue
            for r in range(rank):
                if (vectors[r, p >> 6] >> np.uint64(p & 63)) & ONE:
                    for j in range(words):
                        vectors[r, j] ^= vector[j]
                    for j in range(fields):
                        mixes[r, j] ^= mix[j]
            for j in range(words):
                vectors[rank, j] = vector[j]
            for j in range(fields):
                mixes[rank, j] = mix[j]
            pivots[rank] = p
            rank += 1
    return rank


@kernel
def _lowest(vector: Words, words: int) -> int:
    """Place of the lowest one, or -1."""
    for j in range(words):
        if vector[j] != ZERO:
            bit = 0
            while not (vector[j] >> np.uint64(bit)) & ONE:
                bit += 1
            return 64 * j + bit
    return -1


@kernel
def key_signatures(
    n: int, rank: int, vectors: Words, mixes: Words, pivots: Ints, fields: int, signature: Words, combination: Words
) -> int:
    """Per key: what its parity adds to the signature (the keys without a pivot) and to the chosen columns.

    The parities r can be produced by the windows iff the xor of the signatures of the keys with r = 1 is zero, and
    then the xor of their `combination` columns is a set of columns that does it. Returns the signature's length.
    """
    pivot_of = np.full(n, -1, np.int64)
    for r in range(rank):
        pivot_of[pivots[r]] = r
    index = np.zeros(n, np.int64)
    length = 0
    for i in range(n):
        if pivot_of[i] < 0:
            index[i] = length
            length += 1
    for i in range(n):
        for j in range(fields):
            combination[j, i] = ZERO
        signature[i] = ZERO
        if pivot_of[i] < 0:
            signature[i] = ONE << np.uint64(index[i] & 63)
            continue
        r = pivot_of[i]
        for j in range(fields):
            combination[j, i] = mixes[r, j]
        for k in range(n):
            if pivot_of[k] < 0 and (vectors[r, k >> 6] >> np.uint64(k & 63)) & ONE:
                signature[i] |= ONE << np.uint64(index[k] & 63)
    return length
