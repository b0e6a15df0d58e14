"""The compiled beam searches: from the top digit down, a few bits of slope and constant at a time.

A candidate is a line v = s·x + u over the keys of one group. One step appends a digit to s and one to u,

    v  <-  2v ± x ± W,            W = 2^42, |x| <= W,

and sends every key through one fold. All digits to come move v by less than h = |x| + W, so a key farther than h from
every threshold is decided for good. A step scores the four children of every candidate by a table (logarithms of the
chance that a key near v ends with its label), keeps the best and carries them out. The cost per step is one look-up
per child and key, so a group of n keys with L steps and a beam of M costs 4·L·M·n look-ups.

Values have a leading word and, for ids longer than a word, fractions of 44 bits below it (`limbs`): scores look at the
leading word only, and only children that live on are computed in full.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from byheart.build.fold._kernel import kernel

WIDTH_BITS = 42
W = np.int64(1 << WIDTH_BITS)
LIMB_BITS = np.int64(44)
LIMB_MASK = np.int64((1 << 44) - 1)

ROWS = 64  # per class of a walk's table
COLUMNS = 48  # half widths W/2: values from -4W to 20W in front of a fold, whose range is 16W
COLUMN_SHIFT = np.int64(WIDTH_BITS - 1)
BELOW = 3  # a walk's range behind a fold is W·2^3


@kernel
def best(scores: Any, order: Any, count: int, wanted: int) -> int:  # pragma: no cover - compiled
    """Puts the places of the `wanted` best of `count` scores first in `order`; how many there are."""
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


@kernel
def _first(value: Any, delta: Any, i: int, slope: int) -> int:  # pragma: no cover - compiled
    """Fractions of slope·x, and what is carried into the leading word."""
    carry = 0
    for k in range(delta.shape[0] - 1, 0, -1):
        t = slope * delta[k, i] + carry
        value[k, i] = t & LIMB_MASK
        carry = t >> LIMB_BITS
    return carry


@kernel
def _next(
    old: Any, new: Any, delta: Any, i: int, left: int, key: int, twice: int, digit: int
) -> int:  # pragma: no cover - compiled
    """Fractions of twice·old + digit·x, and what is carried into the leading word."""
    carry = 0
    for k in range(delta.shape[0] - 1, 0, -1):
        t = twice * old[k, i] + digit * delta[k, key] + carry
        new[k, left] = t & LIMB_MASK
        carry = t >> LIMB_BITS
    return carry


@kernel
def _negate(value: Any, place: int) -> int:  # pragma: no cover - compiled
    """Negates the fractions at a place; what is carried into the leading word."""
    carry = 0
    for k in range(value.shape[0] - 1, 0, -1):
        t = carry - value[k, place]
        value[k, place] = t & LIMB_MASK
        carry = t >> LIMB_BITS
    return carry


@lru_cache
def trap_beam(phases: bool, long: bool) -> Any:
    """The search for traps: with several phases (more than two classes) or one, for ids of more than a word or not.

    The parts that are not needed are not compiled. Called with
      delta (1 + limbs, n): keys around the middle of the group; rows (n): where the key's label stands in a table;
      starts (2, count): slopes and constants in front of level 0; levels (L + 1, 4): range, threshold, row of the label
      that is trapped, row of the next phase's label where the range turns over (else -1); table (L + 1, rows·size),
      a column per 2^fine from `low` on; sides = classes·size: rows for keys that only have to end on one side of 0;
      values (2, beam, 1 + limbs, n), tags (2, beam, 2, n), counts (2, beam): the candidates of this step and the next.
    A tag is 8·key + state + (1 if reflected), and the row. A key beside a kink at 0 has state 2, one that only has to
    end on one side has state 4. Gives (steps, candidate) of a line on which every key ends with its label, or (step at
    which the beam died, -1); digits and parents are in `trace` (steps + 1, 2, beam).
    """

    @kernel
    def search(
        delta: Any,
        rows: Any,
        starts: Any,
        levels: Any,
        table: Any,
        fine: int,
        low: int,
        size: int,
        sides: int,
        beam: int,
        values: Any,
        tags: Any,
        counts: Any,
        scores: Any,
        order: Any,
        trace: Any,
    ) -> tuple[int, int]:  # pragma: no cover - compiled
        last = levels.shape[0] - 1
        n = delta.shape[1]
        home = delta[0]
        logs = table[0]
        for c in range(starts.shape[1]):
            total = 0
            for i in range(n):
                j = (starts[0, c] * home[i] + starts[1, c] - low) >> fine
                total += logs[rows[i] + j] if 0 <= j < size else -1000000
            scores[c] = total
        alive = best(scores, order, starts.shape[1], beam)
        for q in range(alive):
            c = order[q]
            trace[0, 1, q] = c
            counts[0, q] = n
            for i in range(n):
                values[0, q, 0, i] = starts[0, c] * home[i] + starts[1, c]
                if long:
                    values[0, q, 0, i] += _first(values[0, q], delta, i, starts[0, c])
                tags[0, q, 0, i] = 8 * i
                tags[0, q, 1, i] = rows[i]
        now = 0
        for k in range(trace.shape[0] - 1):
            level = min(k, last)
            chosen = alive
            if k:
                logs = table[level]
                for c in range(alive):
                    v, who, row = values[now, c, 0], tags[now, c, 0], tags[now, c, 1]
                    a0 = 0
                    a1 = 0
                    a2 = 0
                    a3 = 0
                    for i in range(counts[now, c]):
                        tag = who[i]
                        flip = -(tag & 1)
                        x = (home[tag >> 3] ^ flip) - flip
                        w = (W ^ flip) - flip
                        up = 2 * v[i] - low + x
                        down = up - 2 * x
                        r = row[i]
                        a0 += logs[np.uint64(r + ((up + w) >> fine))]
                        a1 += logs[np.uint64(r + ((up - w) >> fine))]
                        a2 += logs[np.uint64(r + ((down + w) >> fine))]
                        a3 += logs[np.uint64(r + ((down - w) >> fine))]
                    scores[4 * c] = a0
                    scores[4 * c + 1] = a1
                    scores[4 * c + 2] = a2
                    scores[4 * c + 3] = a3
                chosen = best(scores, order, 4 * alive, beam)
            span, edge, trap, turn = levels[level, 0], levels[level, 1], levels[level, 2], levels[level, 3]
            end = k >= last
            plain = k > 0 and not end and turn < 0 and edge < span
            new = 1 - now
            got = 0
            for q in range(chosen):
                c = order[q] >> 2 if k else q
                d = order[q] & 3 if k else 0
                da = 1 - (d & 2) if k else 0
                db = (1 - 2 * (d & 1)) * W if k else 0
                twice = 2 if k else 1
                left = 0
                fits = True
                v, who, kinds = values[now, c, 0], tags[now, c, 0], tags[now, c, 1]
                v2, who2, kinds2 = values[new, got, 0], tags[new, got, 0], tags[new, got, 1]
                for i in range(counts[now, c]):
                    tag = who[i]
                    key = tag >> 3
                    row = kinds[i]
                    flip = -(tag & 1)
                    x = twice * v[i] + (((da * home[key] + db) ^ flip) - flip)
                    h = abs(home[key]) + W
                    if long:
                        x += _next(values[now, c], values[new, got], delta, i, left, key, twice, da * (1 + 2 * flip))
                    state = tag & 6
                    flips = 0
                    if plain and state == 0:  # nearly always; without a branch on the fold, which no one can foresee
                        if x > span:
                            x = 2 * span - x
                            flips = 1
                        if x >= edge + h or x <= -h:
                            if row == trap:
                                continue
                            fits = False
                            break
                        folded = int(2 * x > edge)
                        x += folded * (edge - 2 * x)
                        flips ^= folded
                    elif end and state != 4:
                        if phases and state == 2 and x < 0:
                            x = -x
                            flips = 1
                        if x <= -h or x >= h:
                            if row == (trap if x < 0 else sides - size):
                                continue
                            fits = False
                            break
                    elif not phases:  # the first level
                        if x >= edge + h or x <= -h:
                            if row == trap:
                                continue
                            fits = False
                            break
                        if 2 * x > edge:
                            x = edge - x
                            flips = 1
                    elif state == 4:
                        if x <= -h or x >= h:
                            if (row == sides) == (x < 0):
                                continue
                            fits = False
                            break
                    else:
                        if state == 2:
                            if x < 0:
                                x = -x
                                flips = 1
                            if x >= h:
                                state = 0
                        if x > span and k:
                            x = 2 * span - x
                            flips ^= 1
                        if x >= edge + h or x <= -h:
                            if row == trap:
                                continue
                            fits = False
                            break
                        if 2 * x > edge:
                            x = edge - x
                            flips ^= 1
                            if edge == span and x < h:
                                state = 2
                        if turn >= 0:
                            if x < h and state == 0:  # on this side the next phase's trap, on the other this one's
                                if row != trap and row != turn:
                                    fits = False
                                    break
                                row = sides if row == trap else sides + size
                                state = 4
                            else:
                                state = 2 if x > (edge >> 1) - h else 0
                                x = (edge >> 1) - x
                                flips ^= 1
                    if long and flips:
                        x += _negate(values[new, got], left)
                    v2[left] = x
                    who2[left] = (8 * key + state + (tag & 1)) ^ flips
                    kinds2[left] = row
                    left += 1
                if fits:
                    counts[new, got] = left
                    trace[k, 0, got] = d
                    trace[k + 1, 1, got] = c
                    got += 1
            if got == 0:
                return k, -1
            alive = got
            now = new
            if end:
                for c in range(alive):
                    if counts[now, c] == 0:
                        return k + 1, c
        return trace.shape[0] - 1, -1

    return search


@lru_cache
def walk_beam(long: bool) -> Any:
    """The search for walks, for ids of more than a word or not. Called with
      delta (1 + limbs, n): keys around the middle of the group; goals (2, n): minus the middle of the key's cell, and
      which side of the cell is open (-1, 0, 1); starts (2, count); marks: what the folds add; forms (steps + 1, 4): how
      a step's table is read (by the nearest edge or not, bits of a row by middle and by edge, distance from the edges
      at which a key leaves); table (steps + 1, 3·ROWS·COLUMNS), the first one for the starts; the first `both` steps
      have a digit of the slope and one of the constant, the others of the constant only; half: of a cell.
    tags (2, beam, 4, n): 2·key + (1 if reflected), deviation from the middle of the cell, the deviation on the other
    side of the kink that the key is beside, and the place of its row in the table. Gives the candidate with which every
    key's walk ends in its cell, or -1.
    """

    @kernel
    def search(
        delta: Any,
        goals: Any,
        starts: Any,
        marks: Any,
        forms: Any,
        table: Any,
        both: int,
        half: int,
        beam: int,
        values: Any,
        tags: Any,
        counts: Any,
        scores: Any,
        order: Any,
        trace: Any,
    ) -> int:  # pragma: no cover - compiled
        n = delta.shape[1]
        home = delta[0]
        steps = trace.shape[0] - 1
        folds = marks.shape[0]
        before = folds - steps - BELOW + 1  # folds in front of the first digit
        alive = starts.shape[1]
        logs = table[0]
        for turn in range(2):  # all starts are scored; then the best are kept
            for q in range(alive):
                c = order[q] if turn else q
                total = 0
                for i in range(n):
                    x = starts[0, c] * home[i] + starts[1, c]
                    if long and turn:
                        x += _first(values[0, q], delta, i, starts[0, c])
                    h = abs(home[i]) + W
                    m = goals[0, i]
                    other = m
                    flips = 0
                    span = W << (before + BELOW)
                    for j in range(before):
                        if x < 0:
                            x = -x
                            flips ^= 1
                            m, other = other, m
                        if x > span:
                            x = 2 * span - x
                            flips ^= 1
                            if j:
                                m = marks[j - 1] - m
                        if 2 * x > span:
                            if x > span - 2 * h and j:
                                other = marks[j] - marks[j - 1] + m
                            m = marks[j] - m
                            x = span - x
                            flips ^= 1
                        span >>= 1
                    row = _row(m, goals[1, i] * (1 - 2 * flips), half, forms[0])
                    if turn:
                        if long and flips:
                            x += _negate(values[0, q], i)
                        values[0, q, 0, i] = x
                        tags[0, q, 0, i] = 2 * i + flips
                        tags[0, q, 1, i] = m
                        tags[0, q, 2, i] = other
                        tags[0, q, 3, i] = row
                    else:
                        column = (2 * x + 4 * W) >> COLUMN_SHIFT
                        total += logs[row + min(max(column, 0), COLUMNS - 1)]
                if turn:
                    trace[0, 1, q] = c
                    counts[0, q] = n
                else:
                    scores[c] = total
            if turn == 0:
                alive = best(scores, order, alive, beam)
        now = 0
        span = 16 * W
        for t in range(steps):
            two = t < both
            per = 4 if two else 2
            logs = table[t + 1]
            for c in range(alive):
                v, who, rows = values[now, c, 0], tags[now, c, 0], tags[now, c, 3]
                a0 = 0
                a1 = 0
                a2 = 0
                a3 = 0
                for i in range(counts[now, c]):
                    tag = who[i]
                    flip = -(tag & 1)
                    w = (W ^ flip) - flip
                    up = 2 * v[i] + 4 * W
                    r = rows[i]
                    if two:
                        x = (home[tag >> 1] ^ flip) - flip
                        up += x
                        down = up - 2 * x
                        a2 += logs[np.uint64(r + ((down + w) >> COLUMN_SHIFT))]
                        a3 += logs[np.uint64(r + ((down - w) >> COLUMN_SHIFT))]
                    a0 += logs[np.uint64(r + ((up + w) >> COLUMN_SHIFT))]
                    a1 += logs[np.uint64(r + ((up - w) >> COLUMN_SHIFT))]
                scores[per * c] = a0
                scores[per * c + 1] = a1
                if two:
                    scores[per * c + 2] = a2
                    scores[per * c + 3] = a3
            chosen = best(scores, order, per * alive, beam)
            top = scores[order[0]]
            for q in range(chosen):
                top = max(top, scores[order[q]])
            new = 1 - now
            got = 0
            mark = marks[before + t]
            previous = marks[before + t - 1] if before + t else 0
            keep = forms[t, 3]
            thin = t % 8 == 7
            for q in range(chosen):
                if scores[order[q]] < top - 15000:
                    continue
                c = order[q] // per
                d = order[q] % per
                da = 1 - (d & 2) if two else 0
                db = (1 - 2 * (d & 1)) * W
                left = 0
                v, who, ms, others = values[now, c, 0], tags[now, c, 0], tags[now, c, 1], tags[now, c, 2]
                v2, who2, ms2, others2 = values[new, got, 0], tags[new, got, 0], tags[new, got, 1], tags[new, got, 2]
                rows2 = tags[new, got, 3]
                for i in range(counts[now, c]):
                    tag = who[i]
                    key = tag >> 1
                    flip = -(tag & 1)
                    x = 2 * v[i] + (((da * home[key] + db) ^ flip) - flip)
                    if long:
                        x += _next(values[now, c], values[new, got], delta, i, left, key, 2, da * (1 + 2 * flip))
                    h = W + abs(da * home[key])
                    f = x < 0  # the fold before the last one is undone
                    m = others[i] if f else ms[i]
                    other = ms[i] if f else others[i]
                    flips = int(f)
                    x = abs(x)
                    f = x > span  # the last fold is undone
                    m = previous - m if f else m
                    x = 2 * span - x if f else x
                    flips ^= int(f)
                    f = 2 * x > span
                    other = mark - previous + m if x > span - h else other
                    m = mark - m if f else m
                    x = span - x if f else x
                    flips ^= int(f)
                    side = goals[1, key] * (1 - 2 * ((tag & 1) ^ flips))
                    inside = half - abs(m) if side == 0 else half - side * m
                    # as good as decided: leaves (every line is checked in the end)
                    if thin and x > h and inside > keep:
                        continue
                    if long and flips:
                        x += _negate(values[new, got], left)
                    v2[left] = x
                    who2[left] = tag ^ flips
                    ms2[left] = m
                    others2[left] = other
                    rows2[left] = _row(m, side, half, forms[t + 1])
                    left += 1
                counts[new, got] = left
                trace[t, 0, got] = d
                trace[t + 1, 1, got] = c
                got += 1
            alive = got
            now = new
        for c in range(alive):  # the last folds, without new digits
            fits = True
            for i in range(counts[now, c]):
                tag = tags[now, c, 0, i]
                x = values[now, c, 0, i]
                m = goals[0, 0] * 0 + tags[now, c, 1, i]
                side = goals[1, tag >> 1] * (1 - 2 * (tag & 1))
                rest = 8 * W
                for j in range(before + steps, folds):
                    if 2 * x > rest:
                        m = marks[j] - m
                        x = rest - x
                        side = -side
                    rest >>= 1
                fits = abs(m) < half if side == 0 else side * m < half
                if not fits:
                    break
            if fits:
                return c
        return -1

    return search


@kernel
def _row(m: int, side: int, half: int, form: Any) -> Any:  # pragma: no cover - compiled
    """The place of a row: by the deviation from the middle of a cell, from its upper edge, or from its lower edge."""
    if side == 0 and form[0] == 0:
        return min(max((m >> form[1]) + ROWS // 2, 0), ROWS - 1) * COLUMNS
    if side > 0 or (side == 0 and m > 0):
        return (ROWS + min(max(((m - half) >> form[2]) + ROWS // 2, 0), ROWS - 1)) * COLUMNS
    return (2 * ROWS + min(max(((m + half) >> form[2]) + ROWS // 2, 0), ROWS - 1)) * COLUMNS
