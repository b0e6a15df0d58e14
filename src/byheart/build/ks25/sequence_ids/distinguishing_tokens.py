"""A few tokens whose counts already tell all multisets apart."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

import numpy as np

from byheart.build.ks25.sequence_ids.multisets import Multisets
from byheart.errors import BuildError
from byheart.paper import Ref, implements


@implements(
    Ref("KS25", "Lemma B.1"),
    statement="N distinct multisets are told apart by the counts of at most N - 1 of their elements.",
    test="tests/build/ks25/sequence_ids/test_distinguishing_tokens.py",
)
def distinguishing_tokens(multisets: Multisets) -> tuple[int, ...]:
    """Tokens A, at most N - 1 (the paper says N), such that the counts of A are different in every two multisets.

    Classes of multisets that agree on A so far are refined: two members of a class differ in some token, which joins A
    and splits every class by its count. Each new token splits at least one class, so there are at most N - 1. Of the
    tokens that would do, the one that is in the most multisets is taken, because it splits the most. A token is
    looked at only where it occurs, so all together takes time O(N·n).

    >>> import numpy as np
    >>> distinguishing_tokens(Multisets.of(np.array([[0, 1], [0, 2], [3, 3], [3, 1]])))
    (1, 0)
    """
    members: dict[int, dict[int, None]] = {0: dict.fromkeys(range(multisets.size))}  # ordered sets
    label = np.zeros(multisets.size, dtype=np.int64)
    waiting = [0]
    chosen: list[int] = []
    while waiting:
        current = members[waiting[-1]]
        if len(current) < 2:
            waiting.pop()
            continue
        token = _difference(multisets, *islice(current, 2))
        chosen.append(token)
        waiting += _split(multisets, token, label, members)
    return tuple(chosen)


def _difference(multisets: Multisets, one: int, other: int) -> int:
    """The most frequent token that two multisets have in different numbers."""
    counts: dict[int, int] = defaultdict(int)
    for row, sign in ((one, 1), (other, -1)):
        for token, count in zip(*(part.tolist() for part in multisets.of_row(row)), strict=True):
            counts[token] += sign * count
    differing = [token for token, count in counts.items() if count]
    if not differing:
        raise BuildError(f"multisets {one} and {other} are equal; give each only once")
    return max(differing, key=lambda token: (multisets.frequency[token], -token))


def _split(
    multisets: Multisets,
    token: int,
    label: np.ndarray[tuple[int], np.dtype[np.int64]],
    members: dict[int, dict[int, None]],
) -> list[int]:
    """Splits every class by the count of `token`; returns the new classes."""
    parts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, count in zip(*(part.tolist() for part in multisets.of_token(token)), strict=True):
        parts[int(label[row]), count].append(row)
    made = []
    for (old, _), rows in parts.items():
        if len(rows) == len(members[old]):
            continue  # all that is left of the class: it keeps its number
        new = len(members)
        members[new] = dict.fromkeys(rows)
        label[rows] = new
        for row in rows:
            del members[old][row]
        made.append(new)
    return made
