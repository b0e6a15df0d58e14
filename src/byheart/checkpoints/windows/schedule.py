"""Which places each table looks at, so that windows decide what the documents need.

A schedule is a list of offsets per table. Table by table every place gets a state: the number of its window among the
distinct ones. The schedule decides a script if places of one final window all need the same answer. Heads that look far
back have small margins, so offsets stay below LONGEST_OFFSET; more reach comes from more tables, each joining two
or three neighbouring windows of the table before.

Many schedules are tried, the cheapest that decides is taken: the cost is the number of weights that a decoder with this
schedule would have.

`choose_places` does without states: one table that looks at the newest places and at a few others, near ones and far
ones. A head that shows the first token where there is nothing so far back has scores that rise with the distance up to
its own, so its margin falls with the distance, and the first places have very low scores: LONGEST_NEAR places. One that
shows the newest token there has two peaks, and leads at any distance at which the waves of rotary positions are about
in step again (far.py). A passage that occurs twice is distinguished by one token before it; texts of 2,000 characters
need 6 to 14 places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.windows.far import LONGEST_NEAR, USUAL, FarPlaces
from byheart.checkpoints.windows.goals import (
    Goals,
    ambiguity_message,
    joined,
    merge_goals,
    suffix_lengths,
    tokens_at,
    torn,
)
from byheart.data.tokens.script import Script
from byheart.errors import DataError

Ints = npt.NDArray[np.int64]
Schedule = tuple[tuple[int, ...], ...]
LONGEST_OFFSET = 10
MOST_TABLES = 24
MOST_PLACES = 64  # of a sparse table
WORTH_FARTHER = 2  # places that are saved


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
    """The cheapest schedule that decides; a DataError names two places that no schedule distinguishes."""
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


@dataclass(frozen=True)
class SparsePlaces:
    """The offsets of a sparse table: near ones, and far ones that rest on near ones."""

    near: tuple[int, ...]
    beyond: tuple[int, ...] = ()
    far: FarPlaces = USUAL

    @property
    def offsets(self) -> tuple[int, ...]:
        return self.near + self.beyond

    @property
    def rests(self) -> tuple[int, ...]:
        return tuple(self.far.rest[offset] for offset in self.beyond)

    def tokens(self, script: Script, numbers: Ints, offset: int) -> Ints:
        return tokens_at(script, numbers, offset, None if offset in self.near else self.far.rest[offset])

    def states(self, script: Script, numbers: Ints) -> Ints:
        """The window of each of the places, as a number."""
        state = np.zeros(len(numbers), dtype=np.int64)
        for offset in self.offsets:
            state = joined(state, self.tokens(script, numbers, offset))
        return state

    def and_(self, some: Sequence[int]) -> SparsePlaces:
        """With some more, and with the near places that they rest on."""
        longest = self.far.longest
        near = {*self.near, *(o if o <= longest else self.far.rest[o] for o in some)}
        beyond = {*self.beyond, *(o for o in some if o > longest)}
        return replace(self, near=tuple(sorted(near)), beyond=tuple(sorted(beyond)))

    def without(self, offset: int) -> SparsePlaces | None:
        """Without one, unless another rests on it."""
        if offset in self.rests:
            return None
        near, beyond = (tuple(o for o in some if o != offset) for some in (self.near, self.beyond))
        return replace(self, near=near, beyond=beyond)


_EVERYWHERE = SparsePlaces(tuple(range(LONGEST_NEAR + 1)), tuple(sorted(USUAL.rest)))


def choose_places(script: Script, goals: Goals, far: FarPlaces = USUAL) -> SparsePlaces:
    """The places at which `far` starts, and more of those that heads can look at.

    Prompts from the middle of a text must be as long as the farthest place, so none is farther back than the longest
    suffix that somewhere decides; or about twice as far, if that saves WORTH_FARTHER places. A DataError names two
    places that cannot be distinguished.
    """
    longest = min(max(far.rest) + 1, int(script.positions.max()) + 1)
    most = int(suffix_lengths(script, goals, longest).max())
    nearer, farther = (
        _grown(script, goals, min(limit, longest), longest, far) for limit in (most, 2 * most + far.longest)
    )
    return farther if len(farther.offsets) <= len(nearer.offsets) - WORTH_FARTHER else nearer


def _grown(script: Script, goals: Goals, most: int, longest: int, far: FarPlaces) -> SparsePlaces:
    """Step by step those places that decide most; beyond `most` only if none nearer helps."""
    places, left = SparsePlaces(far.start, far=far), np.arange(script.places)
    state = places.states(script, left)
    while (open_ := torn(state, goals.of_place[left])).any():
        left, state = left[open_], state[open_]
        more = _best_places(script, goals, places, left, state, most)
        if not more and most < longest:
            most = longest
            continue
        if not more or len(places.offsets) > MOST_PLACES:
            raise DataError(ambiguity_message(script, goals, left, state, longest))
        places = places.and_(more)
        for offset in more:
            state = joined(state, places.tokens(script, left, offset))
    return _pruned(script, goals, places)


def _best_places(
    script: Script, goals: Goals, places: SparsePlaces, left: Ints, state: Ints, most: int
) -> tuple[int, ...]:
    """One more offset, up to `most`, or two, after which fewest of the places `left` are undecided, measured by the
    factor per offset; of equals the nearest. Nothing if no offset makes any window differ.

    Other far places than the easy ones, and pairs of these, are tried where no single one decides half: they
    recognize the end of a long run of one token, whose beginning no single place marks.
    """
    windows, needs = len(np.unique(state)), goals.of_place[left]
    rest, nearest, longest = places.far.rest, len(places.far.start), places.far.longest
    easy = frozenset(places.far.easy)
    far = [o for o in sorted(rest) if o <= max(most, longest)]
    far += [o for o in places.far.easy if o > most][:1]

    def judged(some: Sequence[tuple[int, ...]]) -> list[tuple[float, int, tuple[int, ...]]]:
        found = []
        for offsets in some:
            finer, wider = state, places.and_(offsets)
            for offset in offsets:
                finer = joined(finer, wider.tokens(script, left, offset))
            if finer.max() + 1 > windows:
                cost = len(wider.offsets) - len(places.offsets)
                share = float(torn(finer, needs).mean())
                found.append((share ** (1 / cost), max(offsets), offsets))
        return found

    single = [o for o in (*range(nearest, longest + 1), *far) if o not in places.offsets]
    found = judged([(o,) for o in single if o <= longest or o in easy])
    if not found or min(found)[0] > 0.5:
        others = [o for o in single if o > longest and o not in easy]
        found += judged([(o,) for o in others])
        found += judged([(o - 1, o) for o in others if o - 1 not in places.offsets and o - 1 in rest])
    return min(found)[2] if found else ()


def _pruned(script: Script, goals: Goals, places: SparsePlaces) -> SparsePlaces:
    """Without the places that the others make needless."""
    numbers = np.arange(script.places)
    for offset in reversed(places.offsets[len(places.far.start) :]):
        fewer = places.without(offset)
        if fewer is not None and not torn(fewer.states(script, numbers), goals.of_place).any():
            places = fewer
    return places


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
        f"{where} agree in the {seen} tokens before them but have different continuations: no window of this reach "
        "separates them. Longer tokens (bpe, words) reach farther back; or memorize the passages as documents of their "
        "own; or accept the distribution of what follows (merge=True)"
    )


def merged_goals(script: Script, goals: Goals, longest: int, sparse: bool) -> tuple[Goals, int]:
    """Goals in which places that nothing distinguishes (no place of a sparse table, or no schedule) share the
    distribution of what follows any of them.

    Also how many places that concerns.
    """
    numbers = np.arange(script.places)
    states = _EVERYWHERE.states(script, numbers) if sparse else _farthest(script, longest)[0].of_place
    if collision(states, goals) is None:
        return goals, 0
    return merge_goals(goals, script, states)
