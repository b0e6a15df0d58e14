"""A run of neighbouring ids, cut into groups that are solved one after the other. Segments are independent.

Group j gets a slope S_j and an offset U_j with z = S_j·(x - x_first) + U_j modulo 2^Qa showing the labels of its ids
in its parities. Slopes have alternating signs, so that the piecewise linear function they make stays small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from byheart.build.fold._kernel import kernel
from byheart.build.fold._section import Scratch, Search, lay_section, search_section
from byheart.build.fold._windows import Floats
from byheart.build.fold._words import (
    ONE,
    ZERO,
    Ints,
    Words,
    add_at,
    add_product,
    copy_row,
    count_section,
    draw,
    whole,
)

STEER_UP = 8  # smallest top digit of a rising slope, in units of 2^free_bits
STEER_DOWN = 11  # of a falling one; three more because free digits only add
STEER_RANGE = 8
HOPELESS = 60  # failed searches of a group that cannot be made smaller before its segment gives up


class Slopes(NamedTuple):
    """Which slopes a group may have: free low digits under a steered top digit, or one fixed slope per sign."""

    free_bits: int  # Qs; digits of the slope below it are free (0: fixed slopes)
    rising: Words
    falling: Words


@kernel
def _make_slope(slopes: Slopes, steer: int, state: Words, slope: Words) -> None:
    for i in range(len(slope)):
        slope[i] = ZERO
    if slopes.free_bits == 0:
        for i in range(len(slope)):
            slope[i] = slopes.rising[i] if steer > 0 else slopes.falling[i]
        return
    for i in range(slopes.free_bits // 64 + 1):
        bits = min(64, slopes.free_bits - 1 - 64 * i)
        if bits > 0:
            slope[i] = draw(state) >> np.uint64(64 - bits)
    slope[0] |= ONE
    if steer >= 0:
        add_at(slope, np.uint64(steer), slopes.free_bits)
    else:
        for i in range(len(slope)):
            slope[i] = ~slope[i]
        add_at(slope, np.uint64(-steer), slopes.free_bits)
        for i in range(len(slope)):
            slope[i] = ~slope[i]


@kernel
def _multiply(z: Words, x: Words, limbs: int, n: int, factor: Words, halves: Words) -> None:
    """z += x · factor for every key."""
    for i in range(len(factor)):
        halves[2 * i] = factor[i] & np.uint64(0xFFFFFFFF)
        halves[2 * i + 1] = factor[i] >> np.uint64(32)
    for i in range(n):
        add_product(z[i], x[i], limbs, halves)


@kernel
def _vary(
    z: Words, x: Words, limbs: int, n: int, start: int, stop: int, slope: Words, halves: Words, state: Words
) -> None:
    """Adds a random number with bits in [start, stop) to the slope."""
    if stop <= start:
        return
    change = np.zeros(len(slope), np.uint64)
    for q in range(start, stop, 32):
        bits = min(32, stop - q)
        add_at(change, draw(state) >> np.uint64(64 - bits), q)
    carry = ZERO
    for i in range(len(slope)):
        total = slope[i] + change[i]
        more = ONE if total < change[i] else ZERO
        total += carry
        if total < carry:
            more = ONE
        slope[i] = total
        carry = more
    _multiply(z, x, limbs, n, change, halves)


@kernel
def _local(ids: Words, first: int, n: int, x: Words) -> int:
    """x[i] = ids[first + i] - ids[first] in 32-bit limbs; returns how many limbs are in use."""
    used = 1
    for i in range(n):
        borrow = ZERO
        for k in range(ids.shape[1]):
            v = ids[first + i, k] - ids[first, k] - borrow
            borrow = (v >> np.uint64(32)) & ONE
            x[i, k] = v & np.uint64(0xFFFFFFFF)
            if x[i, k] != ZERO and k + 1 > used:
                used = k + 1
    return used


@kernel
def _drift(z: Words, levels: int, sections: int, extremes: Ints) -> int:
    """Follows the counted folds of one key: widens `extremes` by how far the low bits wander, returns the sum Y."""
    wander = 0
    above = 0
    for p in range(sections * levels - 1, -1, -1):
        bit = whole((z[p >> 6] >> np.uint64(p & 63)) & ONE)
        s = p // levels + 1
        counted = p % 2 == 0
        here = (-wander if above else wander) - ((1 << s) if counted else 0)
        extremes[0] = min(extremes[0], here)
        extremes[1] = max(extremes[1], here)
        if counted:
            wander += (above - bit) << (s + 1)
        above = bit
    extremes[0] = min(extremes[0], -abs(wander))
    extremes[1] = max(extremes[1], abs(wander))
    return wander >> 2


@kernel
def _restore(z: Words, saved: Words, n: int, offset: Words, slope: Words, kept: Words) -> None:
    for i in range(n):
        copy_row(saved[i], z[i])
    copy_row(kept[0], offset)
    copy_row(kept[1], slope)


@kernel
def _best_layout(
    z: Words,
    saved: Words,
    x: Words,
    limbs: int,
    n: int,
    start: int,
    search: Search,
    scores: Floats,
    choices: Ints,
    slopes: Slopes,
    state: Words,
    halves: Words,
    offset: Words,
    slope: Words,
    kept: Words,
    attempt: int,
    s: Scratch,
) -> float:
    """Lays the section out several times, with other slope digits, and leaves the best layout standing."""
    free = min(start + search.levels, slopes.free_bits)
    best = -1e9
    best_state = state[0]
    best_round = 0
    last = 0
    rounds = search.layouts if free > start else 1
    for again in range(rounds + 1):
        k = again
        if again == rounds:
            if best_round == last:
                break
            k = best_round
            state[0] = best_state
        _restore(z, saved, n, offset, slope, kept)
        before = state[0]
        if attempt + k > 0:
            _vary(z, x, limbs, n, start, free, slope, halves, state)
        variant = (attempt + k) % scores.shape[0]
        surplus = lay_section(
            z, x, limbs, n, start, slopes.free_bits, search, scores[variant], choices[variant], offset, slope, s
        )
        last = k
        if surplus > best:
            best, best_state, best_round = surplus, before, k
    return best


@kernel
def _solve_group(
    ids: Words,
    wide: Ints,
    goals: Ints,
    first: int,
    n: int,
    stop: int,
    steer: int,
    sections: int,
    search: Search,
    scores: Floats,
    choices: Ints,
    slopes: Slopes,
    tries: int,
    state: Words,
    x: Words,
    z: Words,
    saved: Words,
    offset: Words,
    slope: Words,
    s: Scratch,
) -> int:
    """Solves the sections of one group bottom-up, dropping keys from its end where it must; returns how many stay."""
    limbs = _local(ids, first, n, x)
    halves = np.zeros(2 * z.shape[1], np.uint64)
    kept = np.zeros((2, len(offset)), np.uint64)
    copy_row(kept[0], offset)
    for i in range(n):
        copy_row(offset, z[i])
    _make_slope(slopes, steer, state, slope)
    _multiply(z, x, limbs, n, slope, halves)
    sums = np.zeros(n, np.int64)
    target = np.zeros(n, np.int64)
    for section in range(sections):
        start = section * search.levels
        for i in range(n):
            copy_row(z[i], saved[i])
            target[i] = ((goals[first + i] ^ sums[i]) >> section) & 1
        copy_row(offset, kept[0])
        copy_row(slope, kept[1])
        attempt = 0
        failed = 0
        lonely = 0
        while True:
            surplus = _best_layout(
                z,
                saved,
                x,
                limbs,
                n,
                start,
                search,
                scores,
                choices,
                slopes,
                state,
                halves,
                offset,
                slope,
                kept,
                attempt,
                s,
            )
            attempt += search.layouts
            drop = 0
            if surplus < search.margin and first + n < stop and lonely < HOPELESS // 2:
                drop = max(1, int(search.margin - surplus + 0.999) // 2)
            elif search_section(z, target, n, start, search, offset, s):
                break
            else:
                failed += 1
                if failed >= tries:
                    drop = 1
            if drop > 0:
                smaller = _fit(wide, first, max(1, n - drop), stop) if n > 1 else 0
                if smaller == 0:  # no smaller group ends at a wide gap: this one must be solved
                    lonely += 1
                else:
                    n = smaller
                failed = 0
            if lonely > HOPELESS:
                return 0
        for i in range(n):
            even, odd = count_section(z[i], start, start + search.levels)
            sums[i] += (odd - even) << section
    return n


@kernel
def _fit(wide: Ints, first: int, n: int, stop: int) -> int:
    """The largest size up to n after which the gap is wide enough to change the slope; 0 when there is none."""
    while n > 0 and first + n < stop and not wide[first + n - 1]:
        n -= 1
    return n


@kernel
def _split(wide: Ints, first: int, stop: int) -> int:
    """Size of the first of two groups that share the ids up to `stop`, as equal as wide gaps allow; 0 if none does."""
    half = (stop - first) // 2
    for away in range(half + 1):
        for size in (half - away, half + away):
            if 0 < size < stop - first and wide[first + size - 1]:
                return size
    return 0


@kernel
def _leave_pair(wide: Ints, first: int, n: int, stop: int) -> int:
    """The largest size up to n that leaves nothing, or ids that can be split into two groups."""
    while n > 0 and first + n < stop and _split(wide, first + n, stop) == 0:
        n = _fit(wide, first, n - 1, stop)
    return n


@kernel
def _plan_size(wide: Ints, first: int, n: int, stop: int, groups: int, even: bool) -> int:
    """Size to try for the next group; an even number of groups must come out where the next segment rises again."""
    n = _fit(wide, first, min(n, stop - first), stop)
    if even and groups % 2 == 0 and first + n == stop:
        n = _split(wide, first, stop)
    elif even and groups % 2 == 1:
        n = _leave_pair(wide, first, n, stop)
    return n


@kernel
def solve_segment(
    ids: Words,
    rough: Ints,
    wide: Ints,
    goals: Ints,
    sections: int,
    search: Search,
    scores: Floats,
    choices: Ints,
    slopes: Slopes,
    scratch: Scratch,
    first_size: int,
    growth: int,
    tries: int,
    seed: int,
    even: bool,
    starts: Ints,
    offsets: Words,
    slope_rows: Words,
    extremes: Ints,
) -> int:
    """Cuts the segment into groups and solves them; returns how many, or minus the place where it gave up, minus 1."""
    stop = len(ids)
    width = offsets.shape[1]
    keys = len(scratch.pivots)
    x = np.zeros((keys, ids.shape[1]), np.uint64)
    z = np.zeros((keys, width), np.uint64)
    saved = np.zeros((keys, width), np.uint64)
    state = np.zeros(1, np.uint64)
    state[0] = np.uint64(seed)
    mean = (rough[stop - 1] - rough[0]) / stop + 1e-9
    ceiling = 1.5 * STEER_UP * first_size * mean
    height = 0.0
    first = 0
    size = int(first_size)
    groups = 0
    while first < stop:
        size = _plan_size(wide, first, min(size + growth, keys), stop, groups, even)
        span = float(rough[min(first + size, stop - 1)] - rough[first]) + mean
        if groups % 2 == 0:
            steer = int(min(max((ceiling - height) / span, STEER_UP), STEER_UP + STEER_RANGE))
        else:
            steer = -int(min(max(height / span, STEER_DOWN), STEER_DOWN + STEER_RANGE))
        if size > 0:
            size = _solve_group(
                ids,
                wide,
                goals,
                first,
                size,
                stop,
                steer,
                sections,
                search,
                scores,
                choices,
                slopes,
                tries,
                state,
                x,
                z,
                saved,
                offsets[groups],
                slope_rows[groups],
                scratch,
            )
        if even and groups % 2 == 1:
            size = _leave_pair(wide, first, size, stop)
        if size < 1:
            return -first - 1
        for i in range(size):
            total = _drift(z[i], search.levels, sections, extremes)
            if (total ^ goals[first + i]) & ((1 << sections) - 1):
                return -first - 1
        span = float(rough[min(first + size, stop - 1)] - rough[first])
        height += (steer + 1.25) * span if slopes.free_bits > 0 else 0.0
        starts[groups] = first
        first += size
        groups += 1
    return groups
