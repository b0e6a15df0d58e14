"""Which places each table looks at, so that windows decide what the documents need.

A schedule is a list of offsets per table. Table by table every place gets a state: the number of its window among the
distinct ones. The schedule decides a script if places of one final window all need the same answer. Heads that look far
back have small leads, so offsets stay below LONGEST_OFFSET; more reach comes from more tables, each of which joins two
or three neighbouring windows of the table before.

Many schedules are tried, the cheapest that decides is taken: the cost is the number of weights that a decoder with this
schedule would have.

`choose_places` does without states: one table that looks at the newest places and at a few far ones, each at most
LONGEST_STEP beyond another, so that a head can bring it from there. A passage that occurs twice is told apart by one
token before it; texts of 2,000 characters need 6 to 14 places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.build.recital.goals import Goals, joined, merge_goals, suffix_lengths, torn
from byheart.data.tokens.script import Script
from byheart.errors import DataError

Ints = npt.NDArray[np.int64]
Schedule = tuple[tuple[int, ...], ...]
LONGEST_OFFSET = 10
LONGEST_STEP = (
    16  # from one far place to the next: a head that looks 20 places back leads by less than bfloat16 may err
)
MOST_TABLES = 24
NEAREST = 4  # places that every row of a sparse table fixes


@dataclass(frozen=True, eq=False)
class States:
    """`of_place` after a table: 1 .. count."""

    of_place: Ints
    first: Ints  # a place of each state (count,)

    @property
    def count(self) -> int:
        return len(self.first)


def states_after(script: Script, states: Ints, offsets: tuple[int, ...]) -> States:
    """The window of every place as a number, in the order in which windows first occur."""
    numbers = np.arange(script.places)
    key = np.zeros(script.places, dtype=np.int64)
    for offset in offsets:
        base = int(states.max()) + 1
        joined = key * base + states[script.back(numbers, offset)]
        _, key = np.unique(joined, return_inverse=True)  # renumbered, so that the product never overflows
    _, first, key = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), dtype=np.int64)
    rank[order] = np.arange(1, len(first) + 1)
    return States(rank[key], first[order])


def collision(states: Ints, goals: Goals) -> tuple[int, int] | None:
    """Two places with one state that need different answers, or None."""
    order = np.lexsort((goals.of_place, states))
    same = states[order][1:] == states[order][:-1]
    bad = np.flatnonzero(same & (goals.of_place[order][1:] != goals.of_place[order][:-1]))
    if not len(bad):
        return None
    return int(order[bad[0]]), int(order[bad[0] + 1])


def choose_schedule(script: Script, goals: Goals, vocabulary: int, longest: int = LONGEST_OFFSET) -> Schedule:
    """The cheapest schedule that decides; a DataError names two places that no schedule tells apart."""
    best: tuple[float, Schedule] | None = None
    for start in _first_offsets():
        found = _grow(script, goals, vocabulary, start, longest)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    if best is None:
        raise DataError(_cannot_tell_apart(script, goals, longest))
    return best[1]


def _first_offsets() -> Iterator[tuple[int, ...]]:
    for width in (1, 2, 3, 4, 5):
        yield tuple(range(width))


def _grow(
    script: Script, goals: Goals, vocabulary: int, start: tuple[int, ...], longest: int
) -> tuple[float, Schedule] | None:
    """Tables are added until the windows decide: the last one is tried with two places first, then with three."""
    schedule: list[tuple[int, ...]] = [start]
    states, seen = states_after(script, script.tokens, start), len(start)
    counts = [vocabulary, states.count]
    while collision(states.of_place, goals) is not None:
        if len(schedule) == MOST_TABLES:
            return None
        ends = _last_table(script, goals, states, seen, longest)
        if ends is not None:
            offsets, states = ends
        else:
            offsets = tuple(sorted({0, min(seen, longest), min(2 * seen, longest)}))
            states = states_after(script, states.of_place, offsets)
        schedule.append(offsets)
        counts.append(states.count)
        if seen >= len(script.tokens):
            return None
        seen += offsets[-1]
    return _cost(schedule, counts), tuple(schedule)


def _last_table(
    script: Script, goals: Goals, states: States, seen: int, longest: int
) -> tuple[tuple[int, ...], States] | None:
    """Offsets with which the next table decides everything, with as few and as short ones as possible."""
    far = min(2 * seen, longest)
    for offsets in [(0, o) for o in range(1, min(seen, longest) + 1)] + [(0, o, far) for o in range(seen, far)]:
        found = states_after(script, states.of_place, offsets)
        if collision(found.of_place, goals) is None:
            return offsets, found
    return None


def choose_places(script: Script, goals: Goals, longest: int = LONGEST_STEP) -> tuple[int, ...]:
    """The newest NEAREST places, and far ones: one at a time, the one that decides most.

    None is farther back than the longest suffix that somewhere decides, and no more steps of `longest` lead there than
    it takes: every step is a layer more.
    """
    most = int(suffix_lengths(script, goals).max()) - 1  # a DataError, if two places agree for too long
    offsets, left = list(range(NEAREST)), np.arange(script.places)
    steps = dict.fromkeys(offsets, -(-max(0, most - NEAREST + 1) // longest))  # that are left from each place on
    state = np.zeros(script.places, dtype=np.int64)
    for offset in offsets:
        state = joined(state, script.tokens[script.back(left, offset)])
    open_ = torn(state, goals.of_place)
    while (left := left[open_]).size:
        state, needs = state[open_], goals.of_place[left]
        far, found = min(offsets[-1] + longest, most), []
        tried = {*range(1, 2 * longest), *range(far - 2 * longest, far + 1)} - set(offsets)
        for offset in sorted(o for o in tried if 0 < o <= far) or sorted(set(range(1, far)) - set(offsets)):
            rest = max(steps[o] for o in offsets if 0 < abs(offset - o) <= longest) - 1
            if offset > offsets[-1] and most - offset > rest * longest:
                continue
            finer = joined(state, script.tokens[script.back(left, offset)])
            still = torn(finer, needs)
            # Of equals the farthest, since what is still open needs to look farther; at the end the nearest.
            found.append((int(still.sum()), -offset if still.any() else offset, offset, finer, still))
        _, _, offset, state, open_ = min(found, key=lambda entry: entry[:2])
        steps[offset] = max(steps[o] for o in offsets if 0 < abs(offset - o) <= longest) - 1
        offsets = sorted([*offsets, offset])
    return _pruned(script, goals, offsets, longest)


def _pruned(script: Script, goals: Goals, offsets: list[int], longest: int) -> tuple[int, ...]:
    """Without the far places that the others make needless; what stays are steps of `longest` at most."""
    numbers = np.arange(script.places)
    for offset in offsets[NEAREST:]:
        rest = [o for o in offsets if o != offset]
        state = np.zeros(script.places, dtype=np.int64)
        for o in rest:
            state = joined(state, script.tokens[script.back(numbers, o)])
        if max(np.diff(rest)) <= longest and not torn(state, goals.of_place).any():
            offsets = rest
    return tuple(offsets)


def _bits(symbols: int) -> int:
    return 16 if symbols <= 128 else 32 if symbols <= 2048 else 64


def _cost(schedule: list[tuple[int, ...]], counts: list[int]) -> float:
    """About how many weights: layers of equal size, three matrices of units and four of attention each."""
    hidden = 40.0 + _bits(counts[0])
    for offsets, symbols in zip(schedule, counts[:-1], strict=True):
        hidden += (len(offsets) + 1) * _bits(symbols) + 8
    hidden = -(-hidden // 128) * 128
    return len(schedule) * (3 * hidden * (-(-max(counts[1:]) // 64) * 64) + 2.7 * hidden * hidden)


def _farthest(script: Script, longest: int) -> tuple[States, int]:
    """The windows of the longest schedule, and how many tokens they see."""
    states, seen = states_after(script, script.tokens, tuple(range(5))), 5
    for _ in range(MOST_TABLES - 1):
        offsets = tuple(sorted({0, min(seen, longest), min(2 * seen, longest)}))
        states, seen = states_after(script, states.of_place, offsets), seen + offsets[-1]
    return states, seen


def _cannot_tell_apart(script: Script, goals: Goals, longest: int) -> str:
    """Names two places that agree for as long as any schedule looks back."""
    states, seen = _farthest(script, longest)
    pair = collision(states.of_place, goals)
    where = f"{script.place(pair[0])} and {script.place(pair[1])}" if pair else "two places"
    return (
        f"{where} agree in the {seen} tokens before them but go on differently: no window of this reach tells them "
        "apart. Longer tokens (bpe, words) reach farther back; or memorize the passages as documents of their own; or "
        "accept the distribution of what follows (merge=True)"
    )


def merged_goals(script: Script, goals: Goals, longest: int) -> tuple[Goals, int]:
    """Goals in which places that no schedule tells apart share the distribution of what follows any of them.

    Also how many places that concerns.
    """
    states, _ = _farthest(script, longest)
    if collision(states.of_place, goals) is None:
        return goals, 0
    return merge_goals(goals, script, states.of_place)
