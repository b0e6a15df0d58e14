"""Meet in the middle: two lists of payload values whose parities cancel on every key that the windows cannot reach."""

from __future__ import annotations

import numpy as np

from byheart.build.fold._kernel import kernel
from byheart.build.fold._words import ALL, ONE, ZERO, Ints, Words, parity, whole

CHUNK_BITS = 11
ODD = np.array([ALL if v.bit_count() & 1 else ZERO for v in range(1 << CHUNK_BITS)], np.uint64)  # masks


@kernel
def base_signatures(w: Ints, c: Words, n: int, bits: int, base: Words) -> None:
    """base[r] = xor of c_i over the keys whose (w_i + r) has odd parity in its low `bits` bits (carry dropped)."""
    size = 1 << bits
    for r in range(size):
        base[r] = ZERO
    for i in range(n):
        t = w[i] & (size - 1)
        ci = c[i]
        for r in range(size - t):
            base[r] ^= ci & ODD[t + r]
        for r in range(t):
            base[size - t + r] ^= ci & ODD[r]


@kernel
def chunk_signatures(
    w: Ints, c: Words, n: int, start: int, bits: int, high_mask: int, base: Words, delta: Words, out: Words
) -> None:
    """out[r] = xor of c_i over the keys with odd parity of w_i + start + r, for r < 2^bits; start is a multiple.

    Within a chunk a key's high part takes two values, before and after the carry out of the low bits, so it adds a
    step function; all steps together are one running xor. The low parts, `base`, are the same in every chunk.
    """
    size = 1 << bits
    for r in range(size):
        delta[r] = ZERO
    running = ZERO
    for i in range(n):
        low = w[i] & (size - 1)
        high = (w[i] + start) >> bits
        before = parity(high & high_mask)
        after = parity((high + 1) & high_mask)
        if before:
            running ^= c[i]
        if low > 0 and before != after:
            delta[size - low] ^= c[i]
    for r in range(size):
        running ^= delta[r]
        out[r] = base[r] ^ running


@kernel
def hash_list(
    signatures: Words, count: int, head_bits: int, filter_bits: int, head: Ints, following: Ints, present: Words
) -> None:
    """Chains of equal low bits, and a bit map of which low bits occur at all."""
    for h in range(1 << head_bits):
        head[h] = -1
    for f in range(1 << (filter_bits - 6)):
        present[f] = ZERO
    head_mask = np.uint64((1 << head_bits) - 1)
    filter_mask = np.uint64((1 << filter_bits) - 1)
    for a in range(count):
        bucket = whole(signatures[a] & head_mask)
        following[a] = head[bucket]
        head[bucket] = a
        low = signatures[a] & filter_mask
        present[whole(low >> np.uint64(6))] |= ONE << (low & np.uint64(63))


@kernel
def one_hot(
    odd: Words,
    n: int,
    combination: Words,
    fields: int,
    count: int,
    field_word: Ints,
    field_bit: Ints,
    sizes: Ints,
    chosen: Words,
) -> bool:
    """Xors the columns of the keys in `odd` into `chosen`; true when every window has at most one column chosen."""
    k = 0
    for f in range(fields):
        total = ZERO
        for i in range(n):
            total ^= combination[f, i] & odd[i]
        chosen[f] = total
        while k < count and field_word[k] == f:
            t = (total >> np.uint64(field_bit[k])) & ((ONE << np.uint64(sizes[k] - 1)) - ONE)
            if t & (t - ONE):
                return False
            k += 1
    return True


@kernel
def odd_keys(low: Ints, a: int, high: Ints, b: int, high_mask: int, wanted: Ints, n: int, odd: Words) -> None:
    """All ones for each key whose parity the windows still have to change, for list values a and b."""
    for i in range(n):
        odd[i] = ALL if parity((low[i] + a) ^ ((high[i] + b) & high_mask)) ^ wanted[i] else ZERO
