"""Rows that contradict each other: refused, or skipped by a policy that is reported.

>>> settled = settle(["ab", "ab", "ba"], [0, 1, 1], policy="first")
>>> settled.dataset.N, settled.left_out, settled.note
(2, (1,), 'conflicts=first: 1 context had several labels, 1 row was skipped')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.data.dataset.conflicts import POLICIES, Conflicts
from byheart.data.dataset.dataset import Dataset, load, unchecked
from byheart.data.dataset.targets import Target
from byheart.data.read.table import Table
from byheart.data.task import Task
from byheart.errors import ConflictError, DataError, OptionError


@dataclass(frozen=True, eq=False)
class Settled:
    """A data set without contradictions, and the rows that were skipped for it."""

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
        return f"conflicts={self.policy}: {contexts} had several labels, {rows} skipped"

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
    """`load` with a policy for equal contexts of different labels: `error`, or one of `Conflicts.keep`."""
    if policy not in POLICIES:
        raise OptionError(f"conflicts={policy!r} is not one of {', '.join(POLICIES)}")
    try:
        return Settled(load(sequences, labels, task=task, positions=positions, target=target, named=named), policy)
    except ConflictError:
        if policy == "error":
            raise
    dataset = unchecked(sequences, labels, task=task, positions=positions, named=named)
    found = Conflicts.of(dataset.contexts.of_label.reshape(dataset.N, -1), dataset.labels.reshape(dataset.N, -1))
    keep = found.keep(policy)
    if not keep.any():
        raise DataError(f"conflicts={policy} leaves no row: every row contradicts another one; relabel them")
    kept = np.flatnonzero(keep).tolist()
    sequences, labels = list(sequences), list(labels)
    rest = load([sequences[i] for i in kept], [labels[i] for i in kept], task=task, positions=positions, named=named)
    return Settled(rest, policy, int(found.torn.sum()), tuple(np.flatnonzero(~keep).tolist()))


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
