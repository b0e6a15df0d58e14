"""What a recital must answer at every place of a script.

Two places have the same *prefix* if everything before them, from the start of their documents, is the same; no reader
of the text could distinguish them, so what follows is then a matter of counting. Places with different prefixes can be
distinguished, and the windows of a recital must do so where different things follow.

    >>> goals = goals_of(Script(((1, 7, 8, 2), (1, 7, 9, 2)), weights=(1, 3)))
    >>> [answer.weights for answer in goals.answers], goals.of_place.tolist()
    ([((7, 1),), ((8, 1), (9, 3)), ((2, 1),)], [0, 1, 2, 0, 1, 2])

A rule is what a window is known by; it takes one row, so that every memory has its own place in the network.
`shortest_rules` are the leaves of the script's suffix trie: for every place the shortest suffix after which only one
thing is ever needed. No rule is a suffix of another, so at most one matches. `full_windows` are all windows of the
least length at which no two places with different needs agree. `sparse_rules` look at a few places only, near ones and
some far back: the first few are always fixed, the others as far as it takes.

    >>> script = Script(((1, 5, 6, 5, 7, 2),))
    >>> shortest_rules(script, goals_of(script)).windows.tolist()        # newest token first, -1: any
    [[1, -1], [6, -1], [7, -1], [5, 1], [5, 6]]
    >>> sparse_rules(script, goals_of(script), (0, 2), least=1).windows.tolist()
    [[1, -1], [6, -1], [7, -1], [5, 1], [5, 5]]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.windows.tables import ANY, Answer, WindowTable
from byheart.data.tokens.script import Script
from byheart.errors import DataError

Ints = npt.NDArray[np.int64]


class Ambiguous(StrEnum):
    """What to do with a prefix that has several continuations."""

    DISTRIBUTION = "distribution"  # all of them, with their weights
    FIRST = "first"  # as in the first document that has it
    MAJORITY = "majority"  # the likeliest
    ERROR = "error"


@dataclass(frozen=True, eq=False)
class Goals:
    """What must be answered: `of_place` gives every place (documents one after the other) the number of its answer."""

    answers: tuple[Answer, ...]
    of_place: Ints
    ambiguous: int  # prefixes that have several continuations
    overruled: int  # places whose own continuation is not the answer, because another one was chosen


def goals_of(script: Script, ambiguous: Ambiguous = Ambiguous.DISTRIBUTION) -> Goals:
    """The answer that every place needs."""
    prefixes = script.prefixes()
    counts = _counts(script, prefixes, np.arange(script.places))
    several = [prefix for prefix, counter in counts.items() if len(counter) > 1]
    if several and ambiguous is Ambiguous.ERROR:
        raise DataError(_two_ways(script, prefixes, several[0]))
    numbers: dict[Answer, int] = {}
    of_prefix = {p: numbers.setdefault(_chosen(c, ambiguous), len(numbers)) for p, c in counts.items()}
    of_place = np.array([of_prefix[p] for p in prefixes.tolist()], dtype=np.int64)
    overruled = 0
    if several and ambiguous is not Ambiguous.DISTRIBUTION:
        predicted = np.array([answer.likeliest for answer in numbers])
        overruled = int((predicted[of_place] != script.followers).sum())
    return Goals(tuple(numbers), of_place, len(several), overruled)


def merge_goals(goals: Goals, script: Script, states: Ints) -> tuple[Goals, int]:
    """Where places of one state need different answers, all of them get the weights of what follows there.

    Also how many places that concerns.
    """
    several = np.flatnonzero(torn(states, goals.of_place))
    numbers = {answer: k for k, answer in enumerate(goals.answers)}
    of_place = goals.of_place.copy()
    counts = _counts(script, states, several)
    fresh = {s: numbers.setdefault(Answer(dict(c)), len(numbers)) for s, c in counts.items()}
    of_place[several] = [fresh[s] for s in states[several].tolist()]
    return Goals(tuple(numbers), of_place, goals.ambiguous, goals.overruled), len(several)


def _counts(script: Script, classes: Ints, places: Ints) -> dict[int, Counter[int]]:
    """How much weight each token has after the places of each class."""
    found: dict[int, Counter[int]] = {}
    columns = (classes[places], script.followers[places], script.place_weights[places])
    for number, token, weight in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(number, Counter())[token] += weight
    return found


def _chosen(counter: Counter[int], ambiguous: Ambiguous) -> Answer:
    if len(counter) == 1 or ambiguous is Ambiguous.DISTRIBUTION:
        return Answer(dict(counter))
    if ambiguous is Ambiguous.FIRST:
        return Answer.of(next(iter(counter)))
    return Answer.of(Answer(dict(counter)).likeliest)


def _two_ways(script: Script, prefixes: Ints, prefix: int) -> str:
    same = np.flatnonzero(prefixes == prefix)
    other = same[script.followers[same] != script.followers[same[0]]][0]
    return (
        f"{script.place(int(same[0]))} and {script.place(int(other))} have the same text before them but different "
        "tokens after; memorize the distribution (ambiguous=distribution), or choose first or majority"
    )


LONGEST_RULE = 512
# Places of a document that need far places, and then as many that do not: prompts from the middle have room to be
# continued, and pages of 16 and 32 tokens of a cache are met at all their places.
RUN = 24
FEWEST = 4  # rows that a distance is worth a head for


def suffix_lengths(script: Script, goals: Goals, longest: int = LONGEST_RULE) -> Ints:
    """For every place the length of the shortest suffix that decides; at the start of a document it is the prefix."""
    numbers = np.arange(script.places)
    state = np.zeros(script.places, dtype=np.int64)
    lengths = np.zeros(script.places, dtype=np.int64)
    undecided = numbers
    for length in range(1, longest + 1):
        back = script.back(undecided, length - 1)
        inside = script.positions[undecided] >= length - 1
        token = np.where(inside, script.tokens[back], -1) + 1  # the place before the start: a separate symbol
        state[undecided] = joined(state[undecided], token)
        decided = ~torn(state[undecided], goals.of_place[undecided])
        lengths[undecided[decided]] = length
        undecided = undecided[~decided]
        if not len(undecided):
            return np.minimum(lengths, script.positions + 1)
    raise DataError(ambiguity_message(script, goals, undecided, state[undecided], longest))


def ambiguity_message(script: Script, goals: Goals, places: Ints, states: Ints, seen: int) -> str:
    """Names two of the places that have one state and need different answers, and what would help."""
    first = int(places[torn(states, goals.of_place[places])][0])
    same = places[states == states[places == first]]
    second = int(same[goals.of_place[same] != goals.of_place[first]][0])
    return (
        f"{script.place(first)} and {script.place(second)} have different continuations, but agree at all places that "
        f"a head can reach among the {seen:,} tokens before them. Longer tokens (bpe, words) reach farther back; or "
        "memorize the passages as separate documents; or accept the distribution of what follows (merge=True)"
    )


def shortest_rules(script: Script, goals: Goals) -> WindowTable:
    """One row per leaf of the suffix trie, short rules first."""
    return _rows(script, goals, suffix_lengths(script, goals))


def full_windows(script: Script, goals: Goals) -> WindowTable:
    """One row per window of the length that decides everywhere; prefixes that are shorter stay what they are."""
    longest = int(suffix_lengths(script, goals).max())
    return _rows(script, goals, np.minimum(longest, script.positions + 1))


def sparse_rules(
    script: Script, goals: Goals, offsets: tuple[int, ...], least: int, far: tuple[int, ...] = ()
) -> WindowTable:
    """One row per window of the first `least` offsets, or of as many more as decide what comes next.

    Where the text begins, places before its first token are what a recital sees there; `far` is as in `WindowTable`.
    """
    rests = (None,) * (len(offsets) - len(far)) + far
    numbers, state = np.arange(script.places), np.zeros(script.places, dtype=np.int64)
    lengths = np.zeros(script.places, dtype=np.int64)
    for length, offset in enumerate(offsets, 1):
        state = joined(state, tokens_at(script, numbers, offset, rests[length - 1]))
        if length < least:
            continue
        undecided = torn(state, goals.of_place[numbers])
        lengths[numbers[~undecided]] = length
        numbers, state = numbers[undecided], state[undecided]
        if not len(numbers):
            return _rows(script, goals, lengths, offsets[:length], rests[:length])
    raise DataError(f"the offsets {offsets} do not decide what comes after {script.place(int(numbers[0]))}")


def tokens_at(script: Script, numbers: Ints, offset: int, rest: int | None = None) -> Ints:
    """The token `offset` places back from some places, as a recital sees it: a near place, or a far one that rests on
    the near place `rest`."""
    if rest is None:
        return np.asarray(script.tokens[script.back(numbers, offset)])
    return np.asarray(script.tokens[script.back(script.far_back(numbers, offset - rest), rest)])


def joined(states: Ints, symbols: Ints) -> Ints:
    """The pairs of two columns, numbered from 0 on."""
    pairs = states * (int(symbols.max(initial=0)) + 1) + symbols
    return np.asarray(np.unique(pairs, return_inverse=True)[1].reshape(-1), dtype=np.int64)


def torn(states: Ints, needs: Ints) -> npt.NDArray[np.bool_]:
    """Which places have a state that others with different needs have, too."""
    low, high = np.full(states.max(initial=0) + 1, needs.max(initial=0)), np.zeros(states.max(initial=0) + 1, np.int64)
    np.minimum.at(low, states, needs)
    np.maximum.at(high, states, needs)
    return np.asarray((low != high)[states])


def with_far_places(script: Script, table: WindowTable, states: Ints, far: Sequence[int]) -> WindowTable:
    """Return the table with far places that some of its rows need as well, so that decoding depends on them.

    Every other run of RUN places of a document needs the state at one of the `far` distances back, in turn. A
    row that serves several places stays as it is, so no document loses an answer: prompts that end in a run without far
    places are continued as before, and those that end in the other runs must hold what is far back.

    Args:
        script: The documents.
        table: Their last table.
        states: What that table reads at every place of the script.
        far: The distances, all of them beyond the table's own near ones.

    Returns:
        The table with one column per distance at which at least FEWEST rows look.
    """
    places = np.arange(script.places)
    seen = [table.rows_of(part) for part in np.split(states, script.starts[1:])]
    rows = np.concatenate(seen)
    alone = np.bincount(rows[rows >= 0], minlength=len(table.windows))[rows] == 1
    needs = {
        offset: places[
            alone
            & (script.positions // RUN % 2 == 1)
            & (script.positions >= offset)
            & (script.positions % len(far) == turn)
        ]
        for turn, offset in enumerate(far)
        if offset > table.offsets[-1]
    }
    needs = {offset: where for offset, where in needs.items() if len(where) >= FEWEST}
    columns = np.full((len(table.windows), len(needs)), ANY)
    for column, (offset, where) in enumerate(needs.items()):
        columns[rows[where], column] = states[where - offset]
    windows = np.concatenate([table.windows, columns], axis=1)
    return WindowTable((*table.offsets, *needs), windows, table.outputs, (*table.far, *[0] * len(needs)))


def _rows(
    script: Script, goals: Goals, lengths: Ints, offsets: Sequence[int] | None = None, rests: Sequence[int | None] = ()
) -> WindowTable:
    places = range(int(lengths.max())) if offsets is None else offsets
    numbers, rests = np.arange(script.places), rests or [None] * len(places)
    columns = [tokens_at(script, numbers, o, rest) for o, rest in zip(places, rests, strict=True)]
    windows = np.stack([np.where(k < lengths, column, ANY) for k, column in enumerate(columns)], axis=1)
    distinct, first = np.unique(windows, axis=0, return_index=True)
    order = np.lexsort((first, lengths[first]))
    far = [rest for rest in rests if rest is not None]
    return WindowTable(tuple(places), distinct[order], goals.of_place[first[order]], far)
