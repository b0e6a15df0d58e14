"""The compiled search for traps: keys leave the list as soon as they are trapped, or kill their candidate.

Idea. A group's line is z = S·x + U, and its digits are found from the highest down: one of S and one of U per level, so
that a candidate has four continuations. It stores the value of every key that is still in play, v <- 2v ± home ± W,
folded at each level as the network will fold it. A table gives, for a label and a position before the fold, the
logarithm of the share of values within reach of the digits to come that get this label; the sum over the keys is the
score, and the `beam` best continuations are kept.

Invariant. All digits to come together move a key by less than h = |home| + W. So a key that is h or more beyond an edge
is decided for good: if correct it leaves the list, if not the candidate dies. A key nearer to a kink than h is
not decided, and its state stores the open cases. The search proves nothing: `Traps.checks` runs the folds themselves
in exact integers before a line is taken.

Cost. A level looks up 4·beam entries for each key that is left, and moves beam of them. Keys are sorted by label, so
that one label's rows of the table stay in the nearest cache; ids of more than a word carry their lower limbs along.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from byheart.build.fold._kernel import W, best, first_part, negate_part, next_part
from byheart.exact.compiled import compiled


@lru_cache
def trap_beam(phases: bool, long: bool) -> Any:
    """The search for traps: with several phases (more than two classes) or one, for ids of more than a word or not.

    The parts that are not needed are not compiled. Called with
      delta (1 + limbs, n): keys around the middle of the group; rows (n): the index of the key's label in a table;
      starts (2, count): slopes and constants before level 0; levels (L + 1, 4): range, threshold, row of the label
      that is trapped, row of the next phase's label where the range turns over (else -1); table (L + 1, rows·size),
      a column per 2^fine from `low` on; sides = classes·size: rows for keys that only have to end on one side of 0;
      values (2, beam, 1 + limbs, n), tags (2, beam, 2, n), counts (2, beam): the candidates of this step and the next.
    A tag is 8·key + state + (1 if reflected), and the row. A key beside a kink at 0 has state 2, one that only has to
    end on one side has state 4. Gives (steps, candidate) of a line on which every key ends with its label, or (step at
    which the beam died, -1); digits and parents are in `trace` (steps + 1, 2, beam).
    """

    @compiled
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
                    values[0, q, 0, i] += first_part(values[0, q], delta, i, starts[0, c])
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
                left = np.int64(0)
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
                        x += next_part(
                            values[now, c], values[new, got], delta, i, left, key, twice, da * (1 + 2 * flip)
                        )
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
                        x += negate_part(values[new, got], left)
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
