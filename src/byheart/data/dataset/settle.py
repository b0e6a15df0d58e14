"""Rows that contradict each other: refused, or left out by a policy that is reported.

>>> settled = settle(["ab", "ab", "ba"], [0, 1, 1], policy="first")
>>> settled.dataset.N, settled.left_out, settled.note
(2, (1,), 'conflicts=first: 1 context had several labels, 1 row was left out')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.dataset import Dataset, load, unchecked
from byheart.data.dataset.distinct import Index
from byheart.data.dataset.targets import Target
from byheart.data.read.options import POLICIES
from byheart.data.read.table import Table
from byheart.data.task import Task
from byheart.errors import ConflictError, DataError, OptionError


@dataclass(frozen=True, eq=False)
class Settled:
    """A data set without contradictions, and the rows that were left out for it."""

    dataset: Dataset
    policy: str
    contexts: int = 0  # that had several labels
    left_out: tuple[int, ...] = ()

    @property
    def note(self) -> str:
        """One sentence, or nothing where there was no conflict."""
        if not self.contexts:
            return ""
        contexts = "1 context" if self.contexts == 1 else f"{self.contexts:,} contexts"
        rows = "1 row was" if len(self.left_out) == 1 else f"{len(self.left_out):,} rows were"
        return f"conflicts={self.policy}: {contexts} had several labels, {rows} left out"

    def as_dict(self) -> dict[str, Any]:
        return {"policy": self.policy, "contexts": self.contexts, "rows_left_out": len(self.left_out)}


def settle(
    sequences: Sequence[Any],
    labels: Sequence[Any],
    *,
    task: Task | str = Task.NEXT_TOKEN,
    positions: bool = True,
    policy: str = "error",
    target: Target = Target.CLASS,
    named: bool = False,
) -> Settled:
    """`load` with a policy for equal contexts of different labels.

    error: refuse them. first: rows are taken in order, and one that contradicts an earlier one is left out. majority:
    the label that most of the occurrences have wins (a tie: the first of them), rows with another one are left out.
    drop: every row that takes part in a contradiction is left out.
    """
    if policy not in POLICIES:
        raise OptionError(f"conflicts={policy!r} is not one of {', '.join(POLICIES)}")
    try:
        return Settled(load(sequences, labels, task=task, positions=positions, target=target, named=named), policy)
    except ConflictError:
        if policy == "error":
            raise
    dataset = unchecked(sequences, labels, task=task, positions=positions, named=named)
    of_label = dataset.contexts.of_label.reshape(dataset.N, -1)
    given = dataset.labels.reshape(dataset.N, -1)
    torn = _torn(of_label, given, dataset)
    keep = _CHOICES[policy](of_label, given, torn, dataset)
    if not keep.any():
        raise DataError(f"conflicts={policy} leaves no row: every row contradicts another one; relabel them")
    kept = np.flatnonzero(keep).tolist()
    sequences, labels = list(sequences), list(labels)
    rest = load([sequences[i] for i in kept], [labels[i] for i in kept], task=task, positions=positions, named=named)
    return Settled(rest, policy, int(torn.sum()), tuple(np.flatnonzero(~keep).tolist()))


def settle_table(
    table: Table,
    *,
    task: Task | str | None = None,
    positions: bool = True,
    policy: str = "error",
    named: bool = False,
) -> Settled:
    """`settle` of a table; a conflict names the lines of the file too."""
    try:
        chosen = task or table.task
        return settle(
            table.sequences,
            table.labels,
            task=chosen,
            positions=positions,
            policy=policy,
            target=table.target,
            named=named,
        )
    except ConflictError as error:
        if table.places is None:
            raise
        lines = "; ".join(f"row {row} is {table.places(row)}" for row in dict.fromkeys(error.rows))
        flags = "choose others with --sequence-column (* for all) and --label-column"
        others = f"; {table.choice}: {flags}" if table.remarks else ""
        raise ConflictError(f"{error} ({lines}{others})", error.rows) from None


Mask = npt.NDArray[np.bool_]


def _torn(of_label: Index, given: Index, dataset: Dataset) -> Mask:
    """Which contexts have several labels; `contexts.label` is the first one of each."""
    wrong = (of_label >= 0) & (given != dataset.contexts.label[of_label])
    torn = np.zeros(len(dataset.contexts), dtype=bool)
    torn[of_label[wrong]] = True
    return torn


def _first(of_label: Index, given: Index, torn: Mask, dataset: Dataset) -> Mask:
    """A row is kept when it agrees with all rows kept before it."""
    keep = np.ones(dataset.N, dtype=bool)
    settled: dict[int, int] = {}
    for row in np.flatnonzero(((of_label >= 0) & torn[of_label]).any(axis=1)).tolist():
        claimed: dict[int, int] = {}
        for context, label in zip(of_label[row].tolist(), given[row].tolist(), strict=True):
            if context >= 0 and torn[context] and claimed.setdefault(context, settled.get(context, label)) != label:
                keep[row] = False
        if keep[row]:
            settled.update(claimed)
    return keep


def _majority(of_label: Index, given: Index, torn: Mask, dataset: Dataset) -> Mask:
    winner = dataset.contexts.label.copy()
    places = (of_label >= 0) & torn[of_label]
    votes: dict[int, dict[int, int]] = {}
    for context, label in zip(of_label[places].tolist(), given[places].tolist(), strict=True):
        counted = votes.setdefault(context, {})
        counted[label] = counted.get(label, 0) + 1
    for context, counted in votes.items():
        winner[context] = max(counted, key=counted.__getitem__)  # the first among equals: dicts keep their order
    return np.asarray(~((of_label >= 0) & (given != winner[of_label])).any(axis=1))


def _drop(of_label: Index, given: Index, torn: Mask, dataset: Dataset) -> Mask:
    return np.asarray(~((of_label >= 0) & torn[of_label]).any(axis=1))


_CHOICES = {"first": _first, "majority": _majority, "drop": _drop}
