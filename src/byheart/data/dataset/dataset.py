"""Validated, exact data: what constructions build from and certificates speak about.

>>> data = load(["ab", "ba", "b"], [0, 1, 1], task="next-token", positions=True)
>>> data.N, data.n, data.d, data.C, len(data.contexts)
(3, 2, 2, 2, 3)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from byheart.data.dataset.conflict import check_consistent
from byheart.data.dataset.contexts import Contexts, find_contexts
from byheart.data.dataset.distinct import Index
from byheart.data.dataset.encoder import Encoder
from byheart.data.dataset.fingerprint import fingerprint
from byheart.data.dataset.labels import Classes, read_labels
from byheart.data.dataset.sequences import read_tokens
from byheart.data.separation.measure import Separation, separation
from byheart.data.task import Task
from byheart.errors import DataError, OptionError
from byheart.ir.inputs import Inputs


@dataclass(frozen=True, eq=False)
class Dataset:
    """Sequences as inputs, labels as class numbers (-1 where a token has none), and the classes they stand for."""

    encoder: Encoder
    inputs: Inputs
    labels: Index  # (N,), or (N, n) for one label per token
    classes: Classes
    fingerprint: str

    @property
    def N(self) -> int:
        """How many sequences there are."""
        return len(self.inputs.index)

    @property
    def n(self) -> int:
        """Length of the longest sequence."""
        return self.encoder.length

    @property
    def d(self) -> int:
        """Width of a token's input vector, with its position if positions are on."""
        return self.encoder.input_width

    @property
    def C(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @cached_property
    def contexts(self) -> Contexts:
        """The distinct contexts with their labels."""
        return find_contexts(self.encoder.task, self.encoder.positions, self.inputs.index, self.labels)

    @cached_property
    def separation(self) -> Separation:
        """How large and how close together the points are, exactly."""
        return separation(self.inputs.points)

    def sequences(self) -> list[list[Any]]:
        """The rows as the user gave them; real numbers come back as exact ones."""
        return self.encoder.decode(self.inputs)

    def label_values(self) -> list[Any]:
        """The labels as the user gave them: one per sequence, or a list per sequence."""
        if self.labels.ndim == 1:
            return [self.classes[c] for c in self.labels.tolist()]
        return [[self.classes[c] for c in row if c >= 0] for row in self.labels.tolist()]

    def subset(self, rows: Sequence[int] | Index) -> Dataset:
        """The data set of these rows alone; symbols, length and classes are those that the rows need.

        >>> load(["ab", "ba", "b"], [0, 1, 1]).subset([2]).n
        1
        """
        chosen = np.asarray(rows, dtype=np.int64)
        if chosen.size and (int(chosen.min()) < 0 or int(chosen.max()) >= self.N):
            raise DataError(f"rows {int(chosen.min())} to {int(chosen.max())} are asked for, but there are {self.N}")
        sequences = self.encoder.decode(Inputs(self.inputs.points, self.inputs.index[chosen]))
        part = Dataset(self.encoder, self.inputs, self.labels[chosen], self.classes, "")
        return load(sequences, part.label_values(), task=self.encoder.task, positions=self.encoder.positions)


def numbered(dataset: Dataset) -> Dataset:
    """The same rows with a number in place of every distinct vector; rows of symbols are left as they are.

    >>> numbered(load([[(0.5, 1.0), (2.0, 0.0)], [(2.0, 0.0)]], [0, 1])).sequences()
    [[0, 1], [1]]
    """
    if dataset.encoder.symbols is not None:
        return dataset
    found: dict[tuple[Any, ...], int] = {}
    rows = [[found.setdefault(tuple(token), len(found)) for token in row] for row in dataset.sequences()]
    return load(rows, dataset.label_values(), task=dataset.encoder.task, positions=dataset.encoder.positions)


def load(
    sequences: Iterable[Any], labels: Iterable[Any], *, task: Task | str = Task.NEXT_TOKEN, positions: bool = True
) -> Dataset:
    """Reads and checks sequences with their labels.

    Sequences are lists, tuples, strings or arrays of tokens: ints, strs, or real vectors (floats are taken exactly).
    Labels are any hashable values, one per sequence, or one list per sequence where `task` labels every token. A set
    has no positions, whatever `positions` says. Raises a DataError that names the row, and a ConflictError when equal
    contexts have different labels.
    """
    dataset = unchecked(sequences, labels, task=task, positions=positions)
    check_consistent(dataset.encoder, dataset.inputs, dataset.labels, dataset.classes, dataset.contexts)
    return dataset


def unchecked(
    sequences: Iterable[Any], labels: Iterable[Any], *, task: Task | str = Task.NEXT_TOKEN, positions: bool = True
) -> Dataset:
    """`load` that lets equal contexts have different labels; nothing can be built from such a data set."""
    task = as_task(task)
    positions = bool(positions) and task is not Task.SET
    tokens = read_tokens(sequences, unordered=task is Task.SET)
    if not len(tokens.lengths):
        raise DataError("there are no sequences; give at least one row")
    empty = np.flatnonzero(tokens.lengths == 0)
    if empty.size:
        raise DataError(f"row {int(empty[0])} is empty; remove it, every row needs a token")
    numbers, classes = read_labels(labels, tokens.lengths, task)
    encoder = Encoder.fit(tokens, task, positions)
    inputs = encoder.place(tokens)
    placed = encoder.place_labels(tokens.lengths, numbers) if task.labels_per_token else numbers
    return Dataset(encoder, inputs, placed, classes, fingerprint(encoder, inputs, placed, classes))


def as_task(task: Task | str) -> Task:
    """The task of this name.

    >>> as_task("set") is Task.SET
    True
    """
    try:
        return Task(task)
    except ValueError:
        raise OptionError(f"unknown task {task!r}; tasks are {', '.join(Task)}") from None
