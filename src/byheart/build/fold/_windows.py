"""Gap windows: places of a sum z = S·x + U where a payload digit can be added without a carry leaving its window.

Look at the digits that the keys of a group have in a window [q, q + l). If r cyclically consecutive digits are
used by no key, a base digit moves them to the top; then any u in 0..r added at q stays inside the window, so the
windows above do not notice. Where the slope S is free, its digit is chosen as well, to make r large.
"""

from __future__ import annotations

from math import log2

import numpy as np
import numpy.typing as npt

from byheart.build.fold._kernel import kernel
from byheart.build.fold._words import ONE, ZERO, Ints, Words, add_at, add_scaled, digit

Floats = npt.NDArray[np.float64]

LONGEST = 9  # bits of the longest window
MOST_CHOICES = 24  # largest number of payload digits of one window
SLOPES = 64  # slope digits tried for the longest windows


def window_scores(penalty: float) -> tuple[Floats, Ints]:
    """For each length l and run r: the best score (bits - penalty · luck)/l over g <= r + 1 choices, and that g.

    A window of g choices carries log2 g bits but g - 1 columns; that a linear solution picks at most one of its
    columns has probability g/2^(g-1), so it costs g - 1 - log2 g bits of luck.
    """
    runs = 1 << LONGEST
    scores = np.full((LONGEST + 1, runs + 1), -1.0)
    choices = np.zeros((LONGEST + 1, runs + 1), np.int64)
    for length in range(1, LONGEST + 1):
        best, at = -1.0, 0
        for run in range(1, (1 << length) + 1):
            g = run + 1
            if g <= MOST_CHOICES:
                score = (log2(g) - penalty * (g - 1 - log2(g))) / length
                if score > best:
                    best, at = score, g
            scores[length, run], choices[length, run] = best, at
    return scores, choices


@kernel
def _free_run_short(w: Ints, x: Ints, n: int, length: int, slope: int) -> tuple[int, int]:
    """(longest cyclic run of unused digits, its first digit) by bit tricks on one word; length <= 6."""
    size = 1 << length
    low = size - 1
    full = (ONE << np.uint64(size)) - ONE if size < 64 else ~ZERO
    used = ZERO
    for i in range(n):
        used |= ONE << np.uint64((w[i] + slope * x[i]) & low)
    left = ~used & full
    run = 0
    last = ZERO
    while left != ZERO:
        run += 1
        last = left
        left &= ((left << ONE) | (left >> np.uint64(size - 1))) & full
    if run == 0:
        return 0, 0
    end = 0
    while not (last >> np.uint64(end)) & ONE:
        end += 1
    return run, (end - run + 1) & low


@kernel
def _free_run_long(w: Ints, x: Ints, n: int, length: int, slope: int, used: Ints) -> tuple[int, int]:
    """The same for any length, by a table."""
    size = 1 << length
    low = size - 1
    for v in range(size):
        used[v] = 0
    for i in range(n):
        used[(w[i] + slope * x[i]) & low] = 1
    start = (w[0] + slope * x[0]) & low
    best = 0
    first = 0
    run = 0
    for k in range(1, size):
        v = (start + k) & low
        if used[v]:
            run = 0
        else:
            run += 1
            if run > best:
                best = run
                first = (v - run + 1) & low
    return best, first


@kernel
def _spread(w: Ints, x: Ints, n: int, length: int, slope: int, used: Ints) -> bool:
    """Do the digits look random? A slope near 0 leaves large gaps too, but then the columns are all alike."""
    size = 1 << length
    for v in range(size):
        used[v] = 0
    for i in range(n):
        used[(w[i] + slope * x[i]) & (size - 1)] += 1
    squares = 0
    for v in range(size):
        squares += used[v] * used[v]
    return squares <= n + 1.25 * n * n / size


@kernel
def _choose_window(
    w: Ints, x: Ints, n: int, room: int, free: int, longest: int, scores: Floats, choices: Ints, used: Ints, out: Ints
) -> bool:
    """The best window that fits into `room` bits; slopes are tried while the window ends within `free` bits."""
    best = 0.0
    for length in range(1, min(longest, room) + 1):
        slopes = 1
        if length <= free:
            slopes = min(1 << length, SLOPES if length > 7 else 128)
        for slope in range(slopes):
            if length <= 6:
                run, first = _free_run_short(w, x, n, length, slope)
            else:
                run, first = _free_run_long(w, x, n, length, slope, used)
            if run > 0 and scores[length, run] > best and _spread(w, x, n, length, slope, used):
                best = scores[length, run]
                out[0], out[1], out[2], out[3], out[4] = length, choices[length, run], slope, first, run
    return best > 0.0


@kernel
def lay_windows(
    z: Words,
    x: Words,
    used_limbs: int,
    n: int,
    start: int,
    stop: int,
    free_stop: int,
    longest: int,
    scores: Floats,
    choices: Ints,
    offset: Words,
    slope: Words,
    place: Ints,
    sizes: Ints,
    digits: Ints,
) -> tuple[int, int]:
    """Lays windows from bit `start` up while they end by `stop`; returns (how many, first bit above them).

    Base digits go into `offset` and slope digits (below bit `free_stop`) into `slope`, and both into the keys z.
    Per window: its place, its number of choices in `sizes`, and the keys' digits.
    """
    w = np.zeros(n, np.int64)
    low = np.zeros(n, np.int64)
    used = np.zeros(1 << LONGEST, np.int64)
    out = np.zeros(5, np.int64)
    for i in range(n):
        low[i] = np.int64(x[i, 0]) & ((1 << LONGEST) - 1)
    q = start
    count = 0
    while q < stop:
        for i in range(n):
            w[i] = digit(z[i], q, LONGEST)
        if not _choose_window(w, low, n, stop - q, free_stop - q, longest, scores, choices, used, out):
            q += 1  # keys too alike here: a level without payload
            continue
        length, g, s, first, run = out[0], out[1], out[2], out[3], out[4]
        base = ((1 << length) - first - run) & ((1 << length) - 1)
        add_at(offset, np.uint64(base), q)
        add_at(slope, np.uint64(s), q)
        for i in range(n):
            add_at(z[i], np.uint64(base), q)
            if s > 0:
                add_scaled(z[i], x[i], used_limbs, s, q)
            digits[count, i] = digit(z[i], q, length)
        place[count] = q
        sizes[count] = g
        count += 1
        q += length
    return count, q
