"""The user's labels: any hashable values become class numbers. Type and value both count: 1, 1.0 and True are three.

>>> read_labels(["yes", "no", "yes"], np.array([2, 2, 2]), Task.NEXT_TOKEN)[1]
('no', 'yes')
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from byheart.data.dataset.distinct import Index
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
