"""One row per rule: what a window is known by, so that every memory has a place of its own in the network.

`shortest_rules` are the leaves of the script's suffix trie: for every place the shortest suffix after which only one
thing is ever needed. No rule is a suffix of another, so at most one matches. `full_windows` are all windows of the
least length at which no two places with different needs agree.

    >>> from byheart.build.recital.goals import goals_of
    >>> script = Script(((1, 5, 6, 5, 7, 2),))
    >>> shortest_rules(script, goals_of(script)).windows.tolist()        # newest token first, -1: any
    [[1, -1], [6, -1], [7, -1], [5, 1], [5, 6]]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.build.recital.goals import Goals
from byheart.data.tokens.script import Script
from byheart.errors import DataError
from byheart.ir.recital import ANY, Table

Ints = npt.NDArray[np.int64]
LONGEST_RULE = 512


def suffix_lengths(script: Script, goals: Goals) -> Ints:
    """For every place the length of the shortest suffix that decides; at the start of a document it is the prefix."""
    numbers = np.arange(script.places)
    state = np.zeros(script.places, dtype=np.int64)
    lengths = np.zeros(script.places, dtype=np.int64)
    undecided = numbers
    for length in range(1, LONGEST_RULE + 1):
        back = script.back(undecided, length - 1)
        inside = script.positions[undecided] >= length - 1
        token = np.where(inside, script.tokens[back], -1) + 1  # nothing stands before the start: a symbol of its own
        _, joined = np.unique(np.stack([state[undecided], token]), axis=1, return_inverse=True)
        joined = joined.reshape(-1)
        state[undecided] = joined
        needs = goals.of_place[undecided]
        low, high = np.full(joined.max() + 1, needs.max()), np.zeros(joined.max() + 1, dtype=np.int64)
        np.minimum.at(low, joined, needs)
        np.maximum.at(high, joined, needs)
        decided = (low == high)[joined]
        lengths[undecided[decided]] = length
        undecided = undecided[~decided]
        if not len(undecided):
            return np.minimum(lengths, script.positions + 1)
    first, second = _witness(goals, state, undecided)
    raise DataError(
        f"{script.place(first)} and {script.place(second)} agree in the {LONGEST_RULE} tokens before them but go on "
        "differently; longer tokens reach farther back, or accept the distribution (merge=True)"
    )


def _witness(goals: Goals, state: Ints, undecided: Ints) -> tuple[int, int]:
    first = int(undecided[0])
    same = undecided[state[undecided] == state[first]]
    return first, int(same[goals.of_place[same] != goals.of_place[first]][0])


def shortest_rules(script: Script, goals: Goals) -> Table:
    """One row per leaf of the suffix trie, short rules first."""
    return _rows(script, goals, suffix_lengths(script, goals))


def full_windows(script: Script, goals: Goals) -> Table:
    """One row per window of the length that decides everywhere; prefixes that are shorter stay what they are."""
    longest = int(suffix_lengths(script, goals).max())
    return _rows(script, goals, np.minimum(longest, script.positions + 1))


def _rows(script: Script, goals: Goals, lengths: Ints) -> Table:
    reach = int(lengths.max())
    numbers = np.arange(script.places)
    windows = np.stack(
        [np.where(o < lengths, script.tokens[script.back(numbers, o)], ANY) for o in range(reach)], axis=1
    )
    distinct, first = np.unique(windows, axis=0, return_index=True)
    order = np.lexsort((first, lengths[first]))
    return Table(tuple(range(reach)), distinct[order], goals.of_place[first[order]])
