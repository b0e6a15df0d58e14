"""The distinct contexts of a data set: what a network can distinguish, so what can have a separate label.

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

The user's labels are any hashable values and become class numbers. Type and value both count: 1, 1.0 and True are
three.

>>> read_labels(["yes", "no", "yes"], np.array([2, 2, 2]), Task.NEXT_TOKEN)[1]
('no', 'yes')
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index, by_appearance, distinct_rows, mix
from byheart.data.dataset.sequences import place
from byheart.data.task import Task
from byheart.data.values import distinct, listed, plain
from byheart.data.wording import quote
from byheart.errors import DataError

Classes = tuple[Hashable, ...]


def read_labels(labels: Iterable[Any], lengths: Index, task: Task) -> tuple[Index, Classes]:
    """The class number of every sequence, or of every token one row after the other, and the classes.

    Classes are sorted by type and value (`data.values.order`), so that they do not depend on the order of the rows.
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu" and _shapes_fit(labels, lengths, task):
        values, numbers = np.unique(labels, return_inverse=True)
        return numbers.reshape(-1).astype(np.int64, copy=False), tuple(values.tolist())
    given = _as_list(labels)
    if len(given) != len(lengths):
        raise DataError(
            f"there are {len(lengths)} sequences but {len(given)} labels; give one "
            + ("list of labels per sequence" if task.labels_per_token else "label per sequence")
        )
    if task.labels_per_token:
        flat = list(chain.from_iterable(_rows(given, lengths, task)))
        places = lengths
    else:
        flat, places = given, np.ones(len(given), dtype=np.int64)
    if any(issubclass(kind, np.generic) for kind in set(map(type, flat))):
        flat = [plain(label) for label in flat]
    try:
        classes, class_numbers = distinct(flat)
    except TypeError:
        raise _unhashable(flat, places, task) from None
    for label in classes:
        if _has_nan(label):
            bad = next(i for i, other in enumerate(flat) if _has_nan(other))
            raise DataError(f"{_where(places, bad, task)}: the label {quote(label)} is not a number; replace it")
    return np.array(class_numbers, dtype=np.int64), classes


def _shapes_fit(labels: np.ndarray[Any, Any], lengths: Index, task: Task) -> bool:
    """Whether an array has one label for each sequence or, where the task wants that, for each token."""
    if not task.labels_per_token:
        return bool(labels.shape == lengths.shape)
    return labels.ndim == 2 and len(labels) == len(lengths) and bool((lengths == labels.shape[1]).all())


def _as_list(labels: Iterable[Any]) -> list[Any]:
    if isinstance(labels, (str, bytes)):
        raise DataError(f"labels is the single string {quote(labels)}; give a list with one label per sequence")
    try:
        return listed(labels) if isinstance(labels, np.ndarray) else list(labels)
    except TypeError:
        raise DataError(f"labels is {quote(labels)} ({type(labels).__name__}); give a list") from None


def _rows(given: list[Any], lengths: Index, task: Task) -> Iterable[Any]:
    for row, (labels, length) in enumerate(zip(given, lengths.tolist(), strict=True)):
        if isinstance(labels, np.ndarray) and labels.ndim:
            labels = listed(labels)
        if not isinstance(labels, (list, tuple, str)):
            raise DataError(
                f"row {row}: the label is {quote(labels)}, but {task} takes a list with one label per token; "
                "for one label per sequence use task next-token or set"
            )
        if len(labels) != length:
            raise DataError(f"row {row} has {length} tokens but {len(labels)} labels; give one label per token")
        yield labels


def _has_nan(label: Any) -> bool:
    if isinstance(label, tuple):
        return any(map(_has_nan, label))
    return isinstance(label, (float, complex)) and label != label


def _where(places: Index, number: int, task: Task) -> str:
    row, position = place(places, number)
    return f"row {row}, position {position}" if task.labels_per_token else f"row {row}"


def _is_hashable(label: Any) -> bool:
    try:
        hash(label)
    except TypeError:  # also a tuple that holds a list
        return False
    return True


def _unhashable(flat: list[Any], places: Index, task: Task) -> DataError:
    number, label = next((i, x) for i, x in enumerate(flat) if not _is_hashable(x))
    where, what = _where(places, number, task), f"{quote(label)} ({type(label).__name__})"
    if isinstance(label, (list, np.ndarray)) and not task.labels_per_token:
        return DataError(
            f"{where}: the label is the list {quote(label)}, but {task} takes one label per sequence; "
            "for one label per token use task seq-to-seq or causal, for a compound label write a tuple"
        )
    return DataError(f"{where}: the label {what} cannot be hashed; write a str, an int or a tuple")


_CHUNK = 1 << 22  # entries sorted at once


@dataclass(frozen=True, eq=False)
class Contexts:
    """K contexts in order of appearance.

    Attributes:
        row: (K,) the row of the first token that has the context.
        position: (K,) its place in the padded row; 0 for a set, whose label is read nowhere.
        label: (K,) class number.
        count: (K,) how many labels of the data have the context.
        multiset: (K,) number of its multiset, in order of appearance.
        point: (K,) which of the data set's points it is at; -1 for a set.
        of_label: The context of each label, in the shape of the data set's labels; -1 without a label.
    """

    row: Index
    position: Index
    label: Index
    count: Index
    multiset: Index
    point: Index
    of_label: Index

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

    `ordered`: a point includes its position, so that rows with equal multisets are equal.
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
