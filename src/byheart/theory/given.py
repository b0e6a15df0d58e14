"""Lower bounds for given labels, not for the worst case: how often labels change along a line.

Shattering bounds (`lower`, `capacity`) speak about the worst-case labelling of that many rows. About one given
labelling a counting argument gives no bound. But a network of ReLU or threshold units with at most one layer of linear
(uniform) attention is piecewise linear along every straight line of inputs, and labels that change often along a line
need many pieces:

    rows x_0, x_1, …, x_k on one line, neighbours with different labels
    pieces  ≤ Π (units of a layer + 1) ≤ 2^units       each unit adds one break per piece it reads
    changes ≤ pieces·C − 1                              on one piece, C classes meet at most C − 1 times
    units   ≥ log2((changes + 1)/C), and a unit has at least two parameters, a weight and a bias

One token changes, so a unit before attention, and one after it, reads a single line. A second layer of attention would
add up the lines of n tokens, and one unit could break n times as often.

Lines that are looked at: rows which are equal but for one number of one token.

>>> from byheart.data.dataset.dataset import load
>>> label_changes(load([[0.5], [1.5], [2.5], [7.5]], ["a", "b", "a", "b"], positions=False))
3
"""

from __future__ import annotations

import numpy as np

from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.distinct import Index, distinct_rows
from byheart.data.task import Task
from byheart.ir.network import ABSENT
from byheart.paper import Ref
from byheart.theory.problem import Bound

LEAST_UNITS = 3  # fewer are not worth a sentence
MOST_NUMBERS = 64  # numbers per row that are tried as the line's direction
MOST_CELLS = 10_000_000  # rows times numbers: where there are more, fewer directions are tried


def given_label_bound(dataset: Dataset) -> Bound | None:
    """The least parameters of a piecewise linear network with these labels; None where the argument gives no bound."""
    changes = label_changes(dataset)
    units = max(0, (-(-(changes + 1) // dataset.C) - 1).bit_length())
    if units < LEAST_UNITS:
        return None
    return Bound(
        "label changes along a line",
        "lower",
        "parameters",
        2 * units,
        Ref("byheart", "label changes"),
        f"2·⌈log2((changes + 1)/C)⌉, {changes:,} changes",
        (
            "tokens enter as numbers, without an embedding table",
            "ReLU or threshold units with biases, at most one layer of attention, which is uniform",
            "these labels on these rows",
        ),
    )


def label_changes(dataset: Dataset) -> int:
    """The most changes of label along rows that differ in one number of one token only; 0 without such a line."""
    if dataset.encoder.task is not Task.NEXT_TOKEN or dataset.C < 2:
        return 0
    numbers = _numbers(dataset)
    width = min(numbers.shape[1], MOST_NUMBERS, MOST_CELLS // max(1, len(numbers)))
    return max((_changes_along(numbers, column, dataset.labels) for column in range(width)), default=0)


def _numbers(dataset: Dataset) -> Index:
    """Every row as the ranks of its numbers, (N, n·d); -1 where a token is absent. Ranks keep order and equality."""
    points, index = dataset.inputs.points.numerators, dataset.inputs.index
    ranks = np.column_stack([np.unique(column, return_inverse=True)[1] for column in points.T]).astype(np.int64)
    ranks = np.vstack([ranks, np.full((1, ranks.shape[1]), ABSENT, dtype=np.int64)])  # the target of index -1
    return np.asarray(ranks[index].reshape(len(index), -1), dtype=np.int64)


def _changes_along(numbers: Index, column: int, labels: Index) -> int:
    """The most label changes within a group of rows that agree everywhere but in `column`, in that column's order."""
    present = numbers[:, column] != ABSENT
    table, labels = numbers[present], labels[present]
    if len(table) < 2:
        return 0
    group = distinct_rows(np.delete(table, column, axis=1))[1] if table.shape[1] > 1 else np.zeros(len(table), np.int64)
    order = np.lexsort((table[:, column], group))
    same_line = group[order][1:] == group[order][:-1]
    changed = (labels[order][1:] != labels[order][:-1]) & same_line
    return int(np.bincount(group[order][1:][changed], minlength=1).max())
