"""The distinct contexts of a data set: what a network can tell apart, so what can carry a label of its own.

next-token: (last point, multiset of the row); seq-to-seq: (point, multiset of the row); set: the multiset;
causal: (point, multiset of the prefix that it ends). Equal contexts must have equal labels (KS25, Theorem 4.1).

    >>> index = np.array([[0, 1], [1, 0], [0, 1]])
    >>> contexts = find_contexts(Task.NEXT_TOKEN, False, index, np.array([7, 8, 7]))
    >>> contexts.row.tolist(), contexts.count.tolist(), contexts.multiset.tolist(), contexts.point.tolist()
    ([0, 1], [2, 1], [0, 0], [1, 0])

Multisets are numbered exactly and without comparing all pairs:

    >>> index = np.array([[3, 5, 5], [5, 3, 5], [3, 5, -1]])
    >>> row_multisets(index, ordered=False).tolist()
    [0, 0, 1]
    >>> prefix_multisets(index, ordered=False).tolist()
    [[0, 2, 3], [1, 2, 3], [0, 2, -1]]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index, by_appearance, distinct_rows, mix
from byheart.data.task import Task

_CHUNK = 1 << 22  # entries sorted at once


@dataclass(frozen=True, eq=False)
class Contexts:
    """K contexts in order of appearance; token (`row[c]`, `position[c]`) is the first that has context c.

    `position` is the place in the padded row. A set has no place where its label is read: its `point` is -1 and its
    position 0. `of_label` has the shape of the data set's labels and holds the context of each, -1 where none is.
    """

    row: Index  # (K,)
    position: Index  # (K,)
    label: Index  # (K,) class number
    count: Index  # (K,) how many labels of the data it stands for
    multiset: Index  # (K,) number of its multiset, in order of appearance
    point: Index  # (K,) which of the data set's points it is at
    of_label: Index  # (N,) or (N, n)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def multisets(self) -> int:
        """How many distinct multisets there are."""
        return int(self.multiset.max(initial=-1)) + 1


def find_contexts(task: Task, positions: bool, index: Index, labels: Index) -> Contexts:
    """The contexts of the labels; where equal contexts have different labels, the first one's is recorded."""
    labelled = np.flatnonzero(labels.reshape(-1) >= 0)
    n = index.shape[1] if task.labels_per_token else 1
    rows, columns = labelled // n, labelled % n
    if task is Task.NEXT_TOKEN:
        columns = np.full(len(rows), index.shape[1] - 1)
    if task is Task.CAUSAL:
        multiset = prefix_multisets(index, positions).reshape(-1)[labelled]
    else:
        multiset = row_multisets(index, positions)[rows]
    point = np.full(len(rows), -1) if task is Task.SET else index[rows, columns]
    first, which = by_appearance(multiset * (int(index.max(initial=0)) + 2) + point + 1)
    of_label = np.full(labels.size, -1, dtype=np.int64)
    of_label[labelled] = which
    return Contexts(
        row=rows[first],
        position=columns[first],
        label=labels.reshape(-1)[labelled][first],
        count=np.bincount(which, minlength=len(first)).astype(np.int64),
        multiset=multiset[first],
        point=point[first],
        of_label=of_label.reshape(labels.shape),
    )


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
