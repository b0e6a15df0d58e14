"""The compiled search for walks: every key keeps its deviation from the middle of its cell until the end.

Idea. As in the search for traps, the digits of S and U are found from the highest down, four continuations while both
have digits and two for the constant's tail. But no fold decides a key here: each adds a mark to the sum that the stream
ends with, m <- mark - m where it reflects, and the result is the position of m after all marks. The table gives
the logarithm of the chance to end inside the cell, by the deviation m and the position before the fold.

Invariant. A new digit may carry a key back over the kinks of the last two folds. So these two are undone and redone
with the new digit, and `other` keeps the deviation that the key has on the other side of the kink beside it.
Candidates far below the best score are dropped, and a key deep inside its cell leaves early: both are bets, and the
last loop and the method's exact check of every line decide.

Cost. A step looks up 2·beam or 4·beam entries for each key and moves beam of them; every eighth step thins the list.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from byheart.build.fold._kernel import WIDTH_BITS, W, best, first_part, negate_part, next_part
from byheart.exact.compiled import compiled

ROWS = 64  # per class of a walk's table
COLUMNS = 48  # half widths W/2: values from -4W to 20W before a fold, whose range is 16W
COLUMN_SHIFT = np.int64(WIDTH_BITS - 1)
BELOW = 3  # a walk's range after a fold is W·2^3


@lru_cache
def walk_beam(long: bool) -> Any:
    """The search for walks, for ids of more than a word or not. Called with
      delta (1 + limbs, n): keys around the middle of the group; goals (2, n): minus the middle of the key's cell, and
      which side of the cell is open (-1, 0, 1); starts (2, count); marks: of the folds; forms (steps + 1, 4): how a
      step's table is read (by the nearest edge or not, bits of a row by middle and by edge, distance from the edges
      at which a key leaves); table (steps + 1, 3·ROWS·COLUMNS), the first one for the starts; the first `both` steps
      have a digit of the slope and one of the constant, the others of the constant only; half: of a cell.
    tags (2, beam, 4, n): 2·key + (1 if reflected), deviation from the middle of the cell, the deviation on the other
    side of the kink that the key is beside, and the index of its row in the table. Returns the candidate with which
    every key's walk ends in its cell, or -1.
    """

    @compiled
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
        before = folds - steps - BELOW + 1  # folds before the first digit
        alive = starts.shape[1]
        logs = table[0]
        for turn in range(2):  # all starts are scored; then the best are kept
            for q in range(alive):
                c = order[q] if turn else q
                total = 0
                for i in range(n):
                    x = starts[0, c] * home[i] + starts[1, c]
                    if long and turn:
                        x += first_part(values[0, q], delta, i, starts[0, c])
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
                            x += negate_part(values[0, q], i)
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
                left = np.int64(0)
                v, who, ms, others = values[now, c, 0], tags[now, c, 0], tags[now, c, 1], tags[now, c, 2]
                v2, who2, ms2, others2 = values[new, got, 0], tags[new, got, 0], tags[new, got, 1], tags[new, got, 2]
                rows2 = tags[new, got, 3]
                for i in range(counts[now, c]):
                    tag = who[i]
                    key = tag >> 1
                    flip = -(tag & 1)
                    x = 2 * v[i] + (((da * home[key] + db) ^ flip) - flip)
                    if long:
                        x += next_part(
                            values[now, c], values[new, got], delta, i, left, key, np.int64(2), da * (1 + 2 * flip)
                        )
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
                        x += negate_part(values[new, got], left)
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


@compiled
def _row(m: int, side: int, half: int, form: Any) -> Any:  # pragma: no cover - compiled
    """Return the index of a row: by the deviation from the middle of a cell, its upper edge, or its lower edge."""
    if side == 0 and form[0] == 0:
        return min(max((m >> form[1]) + ROWS // 2, 0), ROWS - 1) * COLUMNS
    if side > 0 or (side == 0 and m > 0):
        return (ROWS + min(max(((m - half) >> form[2]) + ROWS // 2, 0), ROWS - 1)) * COLUMNS
    return (2 * ROWS + min(max(((m + half) >> form[2]) + ROWS // 2, 0), ROWS - 1)) * COLUMNS
