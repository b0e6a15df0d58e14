"""The plain way to solve groups, in Python integers: what benchmarks/compact.py compares byheart's solver with.

Windows without a missing digit are made by trying lengths 1, 2, …; the top bits of a section are enumerated against the
left null space; a group grows by two ids and shrinks by one. Blocks are evaluated on arrays of Python integers.
"""

from __future__ import annotations

import random

import numpy as np


def parity_table(bits: int) -> np.ndarray:
    table = np.zeros(1, np.uint8)
    for _ in range(bits):
        table = np.concatenate([table, table ^ 1])
    return np.concatenate([table, table])


def payload_places(keys: list[int], q: int, end: int, rng: random.Random) -> tuple[list[int], int, list[int]]:
    """Places where a one can be added without a carry leaving its window, after adding base digits."""
    places, offset = [], 0
    while True:
        digits = [(z >> q) & 255 for z in keys]
        for length in range(1, 9):
            if q + length > end:
                return places, offset, keys
            mask = (1 << length) - 1
            used = {v & mask for v in digits}
            if len(used) <= mask:
                missing = [v for v in range(mask + 1) if v not in used]
                base = (-1 - rng.choice(missing[:1] if length == 1 else missing)) & mask
                break
        else:
            return places, offset, keys
        if base:
            keys = [z + (base << q) for z in keys]
            offset += base << q
        places.append(q)
        q += length


def solve_section(
    keys: list[int], targets: list[int], start: int, K: int, tau: int, table: np.ndarray, rng: random.Random
) -> int | None:
    n, end = len(keys), start + K
    mask, cut = ((1 << K) - 1) << start, end - tau
    places, offset, keys = payload_places(keys, start, cut, rng)
    k = len(places)
    if n > k + tau + 2:
        return None
    rows = []
    for z in keys:
        z &= mask
        rows.append(sum((((z ^ (z + (1 << q))).bit_count() & 1) << c) for c, q in enumerate(places)))
    odd = [((z & mask & ((1 << cut) - 1)).bit_count() & 1) ^ t for z, t in zip(keys, targets, strict=True)]
    pivots: dict[int, int] = {}
    null = []
    for i, row in enumerate(rows):
        r = row | (1 << (k + i))
        while True:
            low = r & ((1 << k) - 1)
            if not low:
                null.append(r >> k)
                break
            p = low.bit_length() - 1
            if p not in pivots:
                pivots[p] = r
                break
            r ^= pivots[p]
    top = [(z >> cut) & ((1 << tau) - 1) for z in keys]
    size = 1 << tau
    fits = np.ones(size, bool)
    for vector in null:
        total, constant = np.zeros(size, np.uint8), 0
        for i in range(n):
            if vector >> i & 1:
                total ^= table[top[i] : top[i] + size]
                constant ^= odd[i]
        fits &= total == constant
        if not fits.any():
            return None
    chosen = int(np.flatnonzero(fits)[0])
    right = 0
    for i in range(n):
        right |= (odd[i] ^ (((top[i] + chosen) & (size - 1)).bit_count() & 1)) << i
    u = 0
    for p in sorted(pivots):
        r = pivots[p]
        low = r & ((1 << k) - 1)
        if (((r >> k) & right).bit_count() ^ (low & ~(1 << p) & u).bit_count()) & 1:
            u |= 1 << p
    return offset + sum(1 << places[i] for i in range(k) if u >> i & 1) + (chosen << cut)


def solve_group(keys: list[int], labels: list[int], c: int, K: int, tau: int, table: np.ndarray, rng) -> int | None:
    sums, offset = [0] * len(keys), 0
    goals = [sum((((y >> s) ^ y) & 1) << (s - 1) for s in range(1, c)) + ((y & 1) << (c - 1)) for y in labels]
    for s in range(1, c + 1):
        start = (s - 1) * K
        targets = [((t ^ e) >> (s - 1)) & 1 for t, e in zip(goals, sums, strict=True)]
        found = solve_section(keys, targets, start, K, tau, table, rng)
        if found is None:
            return None
        offset += found
        keys = [z + found for z in keys]
        even = sum(1 << p for p in range(start, start + K, 2))
        sums = [
            e + (((z & (even << 1)).bit_count() - (z & even).bit_count()) << (s - 1))
            for e, z in zip(sums, keys, strict=True)
        ]
    return offset & ((1 << c * K) - 1)


def build(ids: list[int], labels: list[int], classes: int, K: int, tau: int, seed: int = 0):
    """Blocks as (units, shift) pairs; ids ascending."""
    rng = random.Random(seed)
    c = (classes - 1).bit_length()
    guard = max((sum((K // 2) << (s + 1) for s in range(1, c + 1)) + 2 + (1 << c)).bit_length() + 1, c + 3)
    bits = c * K
    A = (1 << (bits - 1)) + rng.getrandbits(bits - 2) | 1
    table = parity_table(tau)
    modulus = 1 << bits
    keys = [(A * x) & (modulus - 1) for x in ids]
    groups: list[tuple[int, int, int]] = []
    i, n = 0, K // 4 + tau
    while i < len(ids):
        n = min(n + 2, len(ids) - i)
        offset = None
        while offset is None:
            for _ in range(3):
                offset = solve_group(keys[i : i + n], labels[i : i + n], c, K, tau, table, rng)
                if offset is not None:
                    break
            else:
                n -= 1
        groups.append((i, n, offset))
        i += n
    return assemble(ids, groups, A, bits, guard, K, c)


def assemble(ids: list[int], groups: list[tuple[int, int, int]], A: int, bits: int, guard: int, K: int, c: int):
    modulus, Q = 1 << bits, guard + bits
    units = [(1, 0, (A << guard) - 1)]
    turn, start, current = 0, groups[0][2], groups[0][2]

    def ends(j: int, turn: int, constant: int) -> list[int]:
        i, n, _ = groups[j]
        return [(A + turn * modulus) * ids[i] + constant, (A + turn * modulus) * ids[i + n - 1] + constant]

    values = ends(0, 0, current)
    middle, low, high = values[0], min(values), max(values)
    for j in range(1, len(groups)):
        last = ids[groups[j][0] - 1]
        options = []
        for e in (1, -1):
            if -2 <= turn + e <= 1:
                rest = (e * (groups[j - 1][2] - groups[j][2])) % modulus
                constant = current - e * (modulus * last + rest)
                values = ends(j, turn + e, constant)
                options.append((max(abs(v - middle) for v in values), e, rest, constant, values))
        _, e, rest, current, values = min(options, key=lambda option: option[0])
        turn += e
        low, high = min(low, *values), max(high, *values)
        units.append((1 << Q, -((last << Q) + (rest << guard)), e))
    lift = ((-low) // modulus + 1) * modulus + start
    top = (((high + lift - start) << guard) + (1 << guard)).bit_length()
    blocks = [(units, (lift << guard) + (1 << (guard - 1)) + 1)]
    for p in range(top - 1, c, -1):
        place = 1 << p
        if guard <= p < Q and (p - guard) % 2 == 0:
            place += 1 << ((p - guard) // K + 1)
        blocks.append(([(1, -place, -2)], 0))
    return blocks


def run(blocks, ids: list[int]) -> np.ndarray:
    h = np.array(ids, dtype=object)
    for units, shift in blocks:
        total = shift
        for w, b, out in units:
            active = h * w + b
            total = total + np.where(active > 0, active, 0) * out
        h = h + total
    return h
