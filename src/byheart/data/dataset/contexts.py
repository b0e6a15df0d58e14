"""The distinct contexts of a data set: what a network can tell apart, so what can carry a label of its own.

next-token: (last point, multiset of the row); seq-to-seq: (point, multiset of the row); set: the multiset;
causal: (point, multiset of the prefix that it ends). Equal contexts must have equal labels (KS25, Theorem 4.1).

    >>> index = np.array([[0, 1], [1, 0], [0, 1]])
    >>> contexts = find_contexts(Task.NEXT_TOKEN, False, index, np.array([7, 8, 7]))
    >>> contexts.row.tolist(), contexts.count.tolist(), contexts.multiset.tolist(), contexts.point.tolist()
    ([0, 1], [2, 1], [0, 0], [1, 0])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.data.dataset.distinct import Index, by_appearance
from byheart.data.dataset.multisets import prefix_multisets, row_multisets
from byheart.data.task import Task


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
