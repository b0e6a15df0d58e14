"""Which rows, and which prefixes of rows, hold the same multiset of points: exactly, and without all pairs.

>>> index = np.array([[3, 5, 5], [5, 3, 5], [3, 5, -1]])
>>> row_multisets(index, ordered=False).tolist()
[0, 0, 1]
>>> prefix_multisets(index, ordered=False).tolist()
[[0, 2, 3], [1, 2, 3], [0, 2, -1]]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index, by_appearance, distinct_rows, mix

_CHUNK = 1 << 22  # entries sorted at once


def row_multisets(index: Index, ordered: bool) -> Index:
    """A number for each row's multiset, in order of appearance.  # (N,)

    `ordered` says that a point tells its position, so that rows with equal multisets are equal as they stand.
    """
    return distinct_rows(index if ordered else np.sort(index, axis=1))[1]


def prefix_multisets(index: Index, ordered: bool) -> Index:
    """A number for the multiset of each prefix of each row, -1 where the row has ended.  # (N, n)

    Column by column: a prefix is its shorter prefix and one more point. Where order does not matter, prefixes are
    grouped by a sum of hashes of their points, and a prefix that is not its group's first by that rule is compared
    with it in full.
    """
    numbers = np.full(index.shape, -1, dtype=np.int64)
    active = np.arange(len(index))
    before = np.zeros(len(index), dtype=np.int64)  # number of the shorter prefix, column-wise
    sums = np.zeros(len(index), dtype=np.uint64)
    bound = int(index.max(initial=0)) + 1
    used = 0
    for column in range(index.shape[1]):
        alive = index[active, column] >= 0
        active, before, sums = active[alive], before[alive], sums[alive]
        if not active.size:
            break
        points = index[active, column]
        first, which = by_appearance(before * bound + points)
        if not ordered:
            sums = sums + mix(points.astype(np.uint64) + np.uint64(1))
            which = _merge_reordered(index[active[first], : column + 1], sums[first])[which]
        numbers[active, column] = which + used
        used += int(which.max()) + 1
        before = which
    return numbers


def _merge_reordered(prefixes: Index, sums: npt.NDArray[np.uint64]) -> Index:
    """For each of these prefixes (no two made the same way) the number of its multiset.  # (U,)"""
    first, which = by_appearance(sums)
    twins = np.flatnonzero(first[which] != np.arange(len(which)))
    step = max(1, _CHUNK // prefixes.shape[1])
    for start in range(0, len(twins), step):
        part = twins[start : start + step]
        same = np.sort(prefixes[part], axis=1) == np.sort(prefixes[first[which[part]]], axis=1)
        if not bool(same.all()):  # two multisets with one sum of hashes
            return distinct_rows(np.sort(prefixes, axis=1))[1]
    return which
