"""Equal inputs with different labels: which they are, and which rows a policy keeps.

Rows of a table have one input each, rows of tokens a context for every label. Both are numbers here: a group for each
label, and the label's number.

>>> conflicts = Conflicts.of(np.array([[0], [1], [0], [0]]), np.array([[5], [6], [7], [7]]))
>>> conflicts.torn.tolist(), conflicts.keep("first").tolist(), conflicts.keep("majority").tolist()
([True, False], [True, True, False, False], [False, True, True, True])
>>> conflicts.keep("drop").tolist()
[False, True, False, False]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.distinct import Index

POLICIES = ("error", "first", "majority", "drop")
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Conflicts:
    """Groups of equal inputs and their labels.

    Attributes:
        group: (N, w) the group of each label of each row; -1 where there is no label.
        label: (N, w) its number.
        first: (K,) the first label of each group.
    """

    group: Index
    label: Index
    first: Index

    @staticmethod
    def of(group: Index, label: Index) -> Conflicts:
        """Find the first label of each group.

        Args:
            group: (N, w) groups, -1 where there is no label.
            label: (N, w) labels.
        """
        found = np.full(int(group.max(initial=-1)) + 1, -1, dtype=np.int64)
        present = group.reshape(-1) >= 0
        # Of several values for one place NumPy keeps the last: backwards, that is the first label.
        found[group.reshape(-1)[present][::-1]] = label.reshape(-1)[present][::-1]
        return Conflicts(group, label, found)

    @cached_property
    def torn(self) -> Mask:
        """(K,) Which groups have several labels."""
        found = np.zeros(len(self.first), dtype=bool)
        if not found.size:
            return found
        found[self.group[(self.group >= 0) & (self.label != self.first[self.group])]] = True
        return found

    @cached_property
    def places(self) -> Mask:
        """(N, w) Which labels belong to a torn group."""
        return np.asarray((self.group >= 0) & np.append(self.torn, False)[self.group])

    def keep(self, policy: str) -> Mask:
        """Return which rows a policy keeps.

        Args:
            policy: `first`: rows are taken in order, and one that contradicts an earlier one is skipped. `majority`:
                the label that most of the occurrences have wins (a tie: the first of them), rows with another one are
                skipped. `drop`: every row of a contradiction is skipped.

        Returns:
            (N,) True for rows that are kept.
        """
        if policy == "drop" or not self.torn.any():
            return np.asarray(~self.places.any(axis=1))
        return self._first() if policy == "first" else self._majority()

    def _first(self) -> Mask:
        keep = np.ones(len(self.group), dtype=bool)
        settled: dict[int, int] = {}
        for row in np.flatnonzero(self.places.any(axis=1)).tolist():
            claimed: dict[int, int] = {}
            for group, label, torn in zip(*(part[row].tolist() for part in (self.group, self.label, self.places)),
                                          strict=True):  # fmt: skip
                if torn and claimed.setdefault(group, settled.get(group, label)) != label:
                    keep[row] = False
            if keep[row]:
                settled.update(claimed)
        return keep

    def _majority(self) -> Mask:
        winner, votes = self.first.copy(), dict[int, dict[int, int]]()
        for group, label in zip(self.group[self.places].tolist(), self.label[self.places].tolist(), strict=True):
            counted = votes.setdefault(group, {})
            counted[label] = counted.get(label, 0) + 1
        for group, counted in votes.items():
            winner[group] = max(counted, key=counted.__getitem__)  # the first among equals: dicts keep their order
        return np.asarray(~((self.group >= 0) & (self.label != winner[self.group])).any(axis=1))
