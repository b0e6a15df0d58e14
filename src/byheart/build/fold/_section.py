"""One section of one group: offsets (and slope digits) that give every key the wanted parity in K bits of the sum.

From the bottom: gap windows, then list A (the largest gap of the next bits), then list B (the top bits, whose carry
may leave the section). The windows are solved linearly and accepted when at most one digit per window is chosen;
what they cannot reach is a signature on which the two lists must agree.
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple

import numpy as np

from byheart.build.fold._elimination import key_signatures, place_fields, reduce_columns
from byheart.build.fold._join import CHUNK_BITS, base_signatures, chunk_signatures, hash_list, odd_keys, one_hot
from byheart.build.fold._kernel import kernel
from byheart.build.fold._windows import Floats, lay_windows
from byheart.build.fold._words import ONE, ZERO, Ints, Words, add_at, count_section, digit

LONGEST_SIGNATURE = 62
HEAD_BITS = 20
FILTER_BITS = 25


class Search(NamedTuple):
    """How a section is searched; the planner chooses these numbers."""

    levels: int  # K: bits of a section, even
    top: int  # bits of list B
    lower: int  # bits from which list A takes its largest gap
    cap: int  # most values in list A
    luck: float  # bits of luck that the windows may ask for
    matches: int  # most matches that are tried
    margin: float  # bits by which the expected number of solutions must exceed one
    longest: int  # bits of the longest window
    layouts: int  # layouts of which the best is searched


class Scratch(NamedTuple):
    """Memory that every section of a segment uses again."""

    place: Ints
    sizes: Ints
    digits: Ints
    field_word: Ints
    field_bit: Ints
    vectors: Words
    mixes: Words
    pivots: Ints
    signature: Words
    combination: Words
    listed: Words
    head: Ints
    following: Ints
    present: Words
    base: Words
    delta: Words
    chunk: Words
    found: Ints
    chosen: Words
    odd: Words


def make_scratch(search: Search, keys: int) -> Scratch:
    """Memory for groups of at most `keys` keys: about 20·cap + 8·K·(keys + K) bytes."""
    windows = search.levels + 1
    cap = -(-search.cap // (1 << CHUNK_BITS)) << CHUNK_BITS
    words = keys // 64 + 1

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    def bits(*shape: int) -> Words:
        return np.zeros(shape, np.uint64)

    return Scratch(
        ints(windows),
        ints(windows),
        ints(windows, keys),
        ints(windows),
        ints(windows),
        bits(keys, words),
        bits(keys, windows),
        ints(keys),
        bits(keys),
        bits(windows, keys),
        bits(cap),
        ints(1 << HEAD_BITS),
        ints(cap),
        bits(1 << (FILTER_BITS - 6)),
        bits(1 << CHUNK_BITS),
        bits(1 << CHUNK_BITS),
        bits(1 << CHUNK_BITS),
        ints(7),
        bits(windows),
        bits(keys),
    )


@kernel
def _sort(w: Ints, n: int) -> None:
    """Shell sort; the library's sort takes seconds to compile."""
    step = n // 2
    while step > 0:
        for i in range(step, n):
            v = w[i]
            j = i
            while j >= step and w[j - step] > v:
                w[j] = w[j - step]
                j -= step
            w[j] = v
        step //= 2


@kernel
def _open_gap(z: Words, n: int, q: int, length: int, offset: Words) -> int:
    """Moves the largest gap of the keys' digits in [q, q + length) to the top; returns how many values fit there."""
    if length == 0:
        return 1
    size = 1 << length
    w = np.zeros(n, np.int64)
    for i in range(n):
        w[i] = digit(z[i], q, length)
    _sort(w, n)
    gap = size - w[n - 1] + w[0]
    before = w[n - 1]
    for i in range(n - 1):
        if w[i + 1] - w[i] > gap:
            gap = w[i + 1] - w[i]
            before = w[i]
    base = np.uint64((size - gap - before) & (size - 1))
    add_at(offset, base, q)
    for i in range(n):
        add_at(z[i], base, q)
    return int(gap)


@kernel
def _spend_luck(sizes: Ints, count: int, n: int, luck: float) -> float:
    """Takes choices from the largest windows until their luck is affordable; returns the luck they ask for."""
    total = 0.0
    columns = 0
    for k in range(count):
        total += sizes[k] - 1 - log2(sizes[k])
        columns += sizes[k] - 1
    while count > 0:
        k = 0
        for j in range(1, count):
            if sizes[j] > sizes[k]:
                k = j
        if total <= luck and (columns <= n - 8 or sizes[k] <= 2):
            break
        if sizes[k] <= 2:
            break
        total -= 1 - log2(sizes[k]) + log2(sizes[k] - 1)
        sizes[k] -= 1
        columns -= 1
    return total


@kernel
def _meet(
    low: Ints,
    high: Ints,
    wanted: Ints,
    n: int,
    values: int,
    length: int,
    count: int,
    fields: int,
    search: Search,
    s: Scratch,
) -> bool:
    """Finds values of list A and list B whose signatures agree and whose columns are one-hot; into `s.found`."""
    bits = min(CHUNK_BITS, max(1, search.lower))
    base_signatures(low, s.signature, n, bits, s.base)
    for start in range(0, values, 1 << bits):
        chunk_signatures(low, s.signature, n, start, bits, (1 << 61) - 1, s.base, s.delta, s.listed[start:])
    head_bits = max(1, min(length, HEAD_BITS, int(log2(values)) + 1))
    filter_bits = max(6, min(length, FILTER_BITS, int(log2(values)) + 5))
    hash_list(s.listed, values, head_bits, filter_bits, s.head, s.following, s.present)
    target = ZERO
    for i in range(n):
        if wanted[i]:
            target ^= s.signature[i]
    head_mask = np.uint64((1 << head_bits) - 1)
    filter_mask = np.uint64((1 << filter_bits) - 1)
    high_mask = (1 << search.top) - 1
    bits = min(CHUNK_BITS, search.top)
    base_signatures(high, s.signature, n, bits, s.base)
    tried = 0
    for start in range(0, 1 << search.top, 1 << bits):
        chunk_signatures(high, s.signature, n, start, bits, high_mask >> bits, s.base, s.delta, s.chunk)
        for j in range(1 << bits):
            v = s.chunk[j] ^ target
            f = v & filter_mask
            if not (s.present[np.int64(f >> np.uint64(6))] >> (f & np.uint64(63))) & ONE:
                continue
            a = s.head[np.int64(v & head_mask)]
            while a >= 0:
                if s.listed[a] == v:
                    odd_keys(low, a, high, start + j, high_mask, wanted, n, s.odd)
                    if one_hot(s.odd, n, s.combination, fields, count, s.field_word, s.field_bit, s.sizes, s.chosen):
                        s.found[0] = a
                        s.found[1] = start + j
                        return True
                    tried += 1
                    if tried > search.matches:
                        return False
                a = s.following[a]
    return False


@kernel
def _apply(z: Words, n: int, count: int, at_low: int, at_high: int, offset: Words, s: Scratch) -> None:
    """Adds the digits that were found to the offset and to every key."""
    for k in range(count + 2):
        if k == count:
            q, u = at_low, s.found[0]
        elif k == count + 1:
            q, u = at_high, s.found[1]
        else:
            t = (s.chosen[s.field_word[k]] >> np.uint64(s.field_bit[k])) & ((ONE << np.uint64(s.sizes[k] - 1)) - ONE)
            q, u = s.place[k], 0
            while t != ZERO:
                u += 1
                t >>= ONE
        if u > 0:
            add_at(offset, np.uint64(u), q)
            for i in range(n):
                add_at(z[i], np.uint64(u), q)


@kernel
def lay_section(
    z: Words,
    x: Words,
    used_limbs: int,
    n: int,
    start: int,
    free_stop: int,
    search: Search,
    scores: Floats,
    choices: Ints,
    offset: Words,
    slope: Words,
    s: Scratch,
) -> float:
    """Windows, the gap of list A and the reduced columns; returns the surplus of expected solutions, in bits.

    The numbers that `search_section` needs are left in `s.found`: windows, place of list A, its values, rank, fields.
    """
    at_high = start + search.levels - search.top
    count, at_low = lay_windows(
        z,
        x,
        used_limbs,
        n,
        start,
        at_high - search.lower,
        free_stop,
        search.longest,
        scores,
        choices,
        offset,
        slope,
        s.place,
        s.sizes,
        s.digits,
    )
    values = min(_open_gap(z, n, at_low, at_high - at_low, offset), search.cap)
    luck = _spend_luck(s.sizes, count, n, search.luck)
    fields = place_fields(s.sizes, count, s.field_word, s.field_bit)
    rank = reduce_columns(s.digits, s.sizes, count, n, s.field_word, s.field_bit, fields, s.vectors, s.mixes, s.pivots)
    columns = 0
    for k in range(count):
        columns += s.sizes[k] - 1
    s.found[2], s.found[3], s.found[4], s.found[5], s.found[6] = count, at_low, values, rank, fields
    if n - rank > LONGEST_SIGNATURE:
        return min(-1.0, log2(values) + search.top - (n - rank))
    return log2(values) + search.top - (n - rank) - max(0.0, luck - 0.5 * (columns - rank))


@kernel
def search_section(z: Words, target: Ints, n: int, start: int, search: Search, offset: Words, s: Scratch) -> bool:
    """Changes offset and keys so that key i has parity target[i] in bits [start, start + K), if the lists meet."""
    stop = start + search.levels
    at_high = stop - search.top
    count, at_low, values, rank, fields = s.found[2], s.found[3], s.found[4], s.found[5], s.found[6]
    length = key_signatures(n, rank, s.vectors, s.mixes, s.pivots, fields, s.signature, s.combination)
    if length > LONGEST_SIGNATURE:
        return False
    low = np.zeros(n, np.int64)
    high = np.zeros(n, np.int64)
    wanted = np.zeros(n, np.int64)
    for i in range(n):
        low[i] = digit(z[i], at_low, at_high - at_low)
        high[i] = digit(z[i], at_high, search.top)
        even, odd = count_section(z[i], start, at_low)
        wanted[i] = (even + odd + target[i]) & 1
    if not _meet(low, high, wanted, n, values, length, count, fields, search, s):
        return False
    _apply(z, n, count, at_low, at_high, offset, s)
    for i in range(n):
        even, odd = count_section(z[i], start, stop)
        if (even + odd) & 1 != target[i]:
            return False  # never happens: the windows keep their carries
    return True
